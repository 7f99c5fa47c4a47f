//! Tenants, for the operator.

use super::auth::DEV_TENANT;
use super::auth_cache::KEPT_MS;
use super::failure::Failure;
use super::front::Front;
use super::jwks::seal_context;
use super::jwt::Jwk;
use super::placement::PLACED_MS;
use super::{ApiRequest, ApiResponse, body, page, placement};
use crate::ports::Signatures;
use crate::ports::directory::{JwtConfig, Tenant};
use crate::types::{ErrorCode, GeneratedId, Problem, Rules, TenantId, Timestamp};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

/// Sessions that one request, or one sweep, erases at most: each wakes an object.
const ERASED_AT_ONCE: usize = 40;
const DELETED_AT_ONCE: usize = 10;
/// How long a deleted tenant's id stays taken at least: until no isolate can remember one of its
/// keys, or its shard, lest one opens the next tenant of that name.
const ID_HELD_MS: u64 = 2 * if KEPT_MS > PLACED_MS { KEPT_MS } else { PLACED_MS };
const MAX_NAME: usize = 200;
const MAX_KEYS: usize = 20;
/// Most bytes of a tenant's rules, in JSON: they go with each request, and stand in the state of each session.
const MAX_RULES_BYTES: usize = 16 << 10;

#[derive(Deserialize)]
struct NewTenant {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    jwt: Option<JwtConfig>,
    #[serde(default)]
    shard: Option<String>,
    #[serde(default)]
    permissions: Option<Rules>,
}

#[derive(Deserialize)]
struct TenantPatch {
    #[serde(default)]
    name: Option<String>,
    /// Absent: stays. `null`: removed.
    #[serde(default, deserialize_with = "present")]
    jwt: Option<Option<JwtConfig>>,
    /// Likewise.
    #[serde(default, deserialize_with = "present")]
    permissions: Option<Option<Rules>>,
    /// Nothing but what it is: a tenant does not move.
    #[serde(default)]
    shard: Option<String>,
}

fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl Front {
    /// `POST /v1/admin/tenants`.
    pub(super) async fn create_tenant(&self, request: &ApiRequest) -> Result<ApiResponse, Failure> {
        let new: NewTenant = body::json_or_empty(request)?;
        let id = match new.id {
            Some(id) => TenantId::parse(&id)
                .ok_or_else(|| Problem::field("/id", "expected 1 to 128 of A-Z a-z 0-9 _ - . ~ : @"))?,
            None => self.make_id(TenantId::PREFIX).into(),
        };
        let name = new.name.unwrap_or_else(|| id.to_string());
        check_name(&name)?;
        let jwt = self.checked_jwt(&id, new.jwt).await?;
        let shard = self.shard_for(&id, new.shard)?;
        let permissions = checked_rules(new.permissions)?;
        let tenant = Tenant { id, name, created_at: self.clock.now(), jwt, shard, permissions };
        if !self.directory.create_tenant(&tenant).await? {
            let detail = "a tenant has this id, or had it until minutes ago";
            return Err(Problem::new(ErrorCode::AlreadyExists, detail).into());
        }
        Ok(ApiResponse::json(201, &self.view(&tenant))?)
    }

    /// `GET /v1/admin/tenants`, by id.
    pub(super) async fn list_tenants(&self, request: &ApiRequest) -> Result<ApiResponse, Failure> {
        let limit = page::limit(request)?;
        let after: Option<TenantId> = page::cursor(request)?;
        let found = self.directory.tenants(after.as_ref(), limit + 1).await?;
        Ok(page::answer(found, limit, |tenant| tenant.id.clone(), |tenant| self.view(tenant))?)
    }

    /// `GET /v1/admin/tenants/{tenant}`.
    pub(super) async fn show_tenant(&self, id: &TenantId) -> Result<ApiResponse, Failure> {
        let tenant = self.existing_tenant(id).await?;
        Ok(ApiResponse::json(200, &self.view(&tenant))?)
    }

    /// `PATCH /v1/admin/tenants/{tenant}`.
    pub(super) async fn update_tenant(
        &self,
        id: &TenantId,
        request: &ApiRequest,
    ) -> Result<ApiResponse, Failure> {
        let patch: TenantPatch = body::json(request)?;
        let mut tenant = self.existing_tenant(id).await?;
        if patch.shard.is_some_and(|shard| self.shard_of(&tenant) != Some(&shard)) {
            return Err(
                Problem::field("/shard", "cannot change: the tenant's rows would have to move").into()
            );
        }
        if let Some(name) = patch.name {
            check_name(&name)?;
            tenant.name = name;
        }
        if let Some(jwt) = patch.jwt {
            tenant.jwt = self.checked_jwt(id, jwt).await?;
        }
        if let Some(rules) = patch.permissions {
            tenant.permissions = checked_rules(rules)?;
        }
        if !self.directory.update_tenant(&tenant).await? {
            return Err(Problem::not_found("tenant").into());
        }
        self.cache.forget_tenant(id);
        Ok(ApiResponse::json(200, &self.view(&tenant))?)
    }

    /// `DELETE /v1/admin/tenants/{tenant}`: its keys stop at once; its sessions and files are erased here as
    /// far as one request can, and the rest by [`Front::sweep`].
    pub(super) async fn delete_tenant(&self, id: &TenantId) -> Result<ApiResponse, Failure> {
        if !self.directory.delete_tenant(id, self.clock.now()).await? {
            return Err(Problem::not_found("tenant").into());
        }
        self.cache.forget_tenant(id);
        let mut budget = ERASED_AT_ONCE;
        // The mark stands, so the sweep goes on where this stops.
        for done in [self.erase_sessions(id, &mut budget).await, self.erase_files(id).await] {
            if let Err(error) = done {
                (self.log)(&format!("erasing tenant {id}: {error}"));
            }
        }
        Ok(ApiResponse::empty(204))
    }

    /// What cron runs: finishes the erasure of deleted tenants, removes what is past its time and
    /// objects that no file has any more.
    /// Bounded; returns whether more is left to do at once.
    ///
    /// # Errors
    /// When the directory or the file store does not answer.
    pub async fn sweep(&self) -> Result<bool, Failure> {
        let now = self.clock.now();
        let mut budget = ERASED_AT_ONCE;
        let mut more = false;
        for (tenant, since) in self.directory.deleted_tenants(DELETED_AT_ONCE).await? {
            match self.erase(&tenant, now.since(since) >= ID_HELD_MS, &mut budget).await {
                Ok(left) => more |= left,
                // Its shard may be down, or gone; the others' tenants are not to wait for it.
                Err(error) => (self.log)(&format!("erasing tenant {tenant}: {error}")),
            }
        }
        let (collected, expired) = (self.files.collect(now).await, self.directory.expire(now).await);
        Ok(collected? || expired? || more || budget == 0)
    }

    /// Erases what a deleted tenant has, and the tenant itself if `last`; returns whether files are left.
    async fn erase(&self, tenant: &TenantId, last: bool, budget: &mut usize) -> Result<bool, Failure> {
        let no_sessions = self.erase_sessions(tenant, budget).await?;
        // Last, so that what still ran in a session cannot have written behind it.
        let no_files = self.erase_files(tenant).await?;
        if no_sessions && no_files && last {
            self.directory.purge_tenant(tenant).await?;
        }
        Ok(!no_files)
    }

    /// Erases up to `budget` sessions of a tenant; returns whether none is left. A session that
    /// cannot be erased now is left for the next time.
    async fn erase_sessions(&self, tenant: &TenantId, budget: &mut usize) -> Result<bool, Failure> {
        let mut is_empty = true;
        let mut before: Option<(Timestamp, String)> = None;
        loop {
            let behind = before.as_ref().map(|(at, id)| (*at, id.as_str()));
            // One more than may be erased: it tells whether any is left.
            let page = self.directory.sessions(tenant, None, None, behind, *budget + 1, true).await?;
            let is_last = page.len() <= *budget;
            for entry in page.into_iter().take(*budget) {
                *budget -= 1;
                match self.eraser.erase(tenant, &entry.id).await {
                    Ok(()) => self.directory.delete_session(tenant, &entry.id).await?,
                    Err(error) => {
                        is_empty = false;
                        (self.log)(&format!("erasing session {} of tenant {tenant}: {error}", entry.id));
                    }
                }
                before = Some((entry.created_at, entry.id));
            }
            if is_last {
                return Ok(is_empty);
            }
            if *budget == 0 {
                return Ok(false);
            }
        }
    }

    /// Erases memories and files of a tenant; returns whether none is left.
    async fn erase_files(&self, tenant: &TenantId) -> Result<bool, Failure> {
        Ok(self.memories.erase(tenant, None).await? && self.files.erase(tenant).await?)
    }

    /// The tenant of that id.
    pub(super) async fn existing_tenant(&self, id: &TenantId) -> Result<Tenant, Failure> {
        Ok(self.directory.tenant(id).await?.ok_or_else(|| Problem::not_found("tenant"))?)
    }

    /// The shard of a new tenant: the one that the operator chose, or the one that its name gives.
    fn shard_for(&self, tenant: &TenantId, chosen: Option<String>) -> Result<Option<String>, Problem> {
        let shards = &self.config.shards;
        match chosen {
            None => Ok(placement::by_name(tenant, shards).map(Into::into)),
            Some(_) if tenant == DEV_TENANT => {
                Err(Problem::field("/shard", "the development tenant has rows where its name puts it"))
            }
            Some(shard) if shards.contains(&shard) => Ok(Some(shard)),
            Some(_) => Err(Problem::field("/shard", format!("expected one of: {}", shards.join(", ")))),
        }
    }

    /// The shard that a tenant is on.
    fn shard_of<'a>(&'a self, tenant: &'a Tenant) -> Option<&'a str> {
        tenant.shard.as_deref().or_else(|| placement::by_name(&tenant.id, &self.config.shards))
    }

    /// An issuer that can work, its keys sealed.
    async fn checked_jwt(
        &self,
        tenant: &TenantId,
        jwt: Option<JwtConfig>,
    ) -> Result<Option<JwtConfig>, Problem> {
        let Some(mut jwt) = jwt else { return Ok(None) };
        if jwt.issuer.is_empty() {
            return Err(Problem::field("/jwt/issuer", "must not be empty"));
        }
        jwt.jwks = match (&jwt.jwks_url, jwt.jwks.take()) {
            (Some(url), None) => {
                check_url(url)?;
                None
            }
            (None, Some(set)) => {
                let text = checked_set(&set, &*self.signatures).await?.to_string();
                let sealed =
                    self.seal().and_then(|seal| seal.seal(&*self.entropy, &seal_context(tenant), &text));
                Some(Value::String(sealed.ok_or_else(|| Problem::internal("the keys could not be sealed"))?))
            }
            _ => return Err(Problem::field("/jwt", "give either jwks_url or jwks")),
        };
        Ok(Some(jwt))
    }

    /// A tenant as the operator sees it: public keys, but no secret.
    fn view(&self, tenant: &Tenant) -> Value {
        let mut view = json!({
            "id": tenant.id, "name": tenant.name, "created_at": tenant.created_at,
            "shard": self.shard_of(tenant),
        });
        if !tenant.permissions.is_empty() {
            view["permissions"] = json!(tenant.permissions);
        }
        if let Some(jwt) = &tenant.jwt {
            let mut set = self.stored_set(&tenant.id, jwt);
            let keys = set.as_mut().and_then(|set| set.get_mut("keys")).and_then(Value::as_array_mut);
            for key in keys.into_iter().flatten().filter_map(Value::as_object_mut) {
                key.remove("k");
            }
            view["jwt"] = json!({ "issuer": jwt.issuer, "audience": jwt.audience, "jwks_url": jwt.jwks_url, "jwks": set });
        }
        view
    }
}

/// A name for people.
pub(super) fn check_name(name: &str) -> Result<(), Problem> {
    if name.is_empty() || name.chars().count() > MAX_NAME {
        return Err(Problem::field("/name", format!("expected 1 to {MAX_NAME} characters")));
    }
    Ok(())
}

/// Rules that can be kept, or none.
fn checked_rules(rules: Option<Rules>) -> Result<Rules, Problem> {
    let rules = rules.unwrap_or_default();
    rules.check().map_err(|(pointer, fault)| Problem::field(format!("/permissions{pointer}"), fault))?;
    if json!(rules).to_string().len() > MAX_RULES_BYTES {
        return Err(Problem::field("/permissions", format!("larger than {MAX_RULES_BYTES} bytes of JSON")));
    }
    Ok(rules)
}

/// Keys travel unprotected over http, which only a provider on the same machine may do.
fn check_url(url: &str) -> Result<(), Problem> {
    let is_loopback = url.strip_prefix("http://").is_some_and(|rest| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
            _ => host,
        };
        ["localhost", "127.0.0.1", "[::1]"].contains(&name)
    });
    if is_loopback || url.strip_prefix("https://").is_some_and(|rest| !rest.is_empty()) {
        return Ok(());
    }
    Err(Problem::field("/jwt/jwks_url", "expected an https URL (http only for this machine)"))
}

/// A set in which every key can verify tokens here, without anything that we do not need to know,
/// such as the private half of a key.
async fn checked_set(set: &Value, signatures: &dyn Signatures) -> Result<Value, Problem> {
    let keys = set.get("keys").and_then(Value::as_array).filter(|keys| (1..=MAX_KEYS).contains(&keys.len()));
    let keys =
        keys.ok_or_else(|| Problem::field("/jwt/jwks/keys", format!("expected 1 to {MAX_KEYS} keys")))?;
    let mut kept = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let fault = |fault| Problem::field(format!("/jwt/jwks/keys/{index}"), fault);
        Jwk::read(key).map_err(fault)?.check(signatures).await.map_err(fault)?;
        let fields = key.as_object().into_iter().flatten();
        let known = ["kty", "kid", "alg", "use", "n", "e", "crv", "x", "y", "k"];
        let fields = fields.filter(|(name, _)| known.contains(&name.as_str()));
        kept.push(fields.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>());
    }
    Ok(json!({ "keys": kept }))
}
