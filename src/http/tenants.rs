//! Tenants, for the operator.

use super::credentials::DEV_TENANT;
use super::gateway::{Gateway, GatewayCall};
use super::jwk::{Jwk, KeyError};
use super::jwks::{encryption_context, stored_set};
use super::loopback::is_loopback;
use super::owner::ID_FORM;
use super::response::{self, Response};
use super::{
    audit, body, erasure, page,
    patch::{merge, present},
    placement, scopes,
};
use crate::ports::Signatures;
use crate::ports::directory::{JwtConfig, Tenant};
use crate::types::{
    AuditAction, ErrorCode, Problem, Rules, StorageLimits, TenantId, TenantLimits, json::from_value,
};
use http::StatusCode;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

/// Longest name, in characters.
const MAX_NAME: usize = 200;
/// Most keys of a tenant's stored set.
const MAX_KEYS: usize = 20;
/// Most bytes of a tenant's rules, as JSON: they travel with each request and are part of each session's
/// state.
const MAX_RULES_BYTES: usize = 16 << 10;
/// How often an update is tried that other updates of the tenant overtake.
const UPDATE_ATTEMPTS: usize = 10;

#[derive(Deserialize, schemars::JsonSchema)]
pub(in crate::http) struct NewTenant {
    /// The id; a new one if absent.
    #[serde(default)]
    #[schemars(length(min = 1, max = 128))]
    id: Option<String>,
    /// The name, for people.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200))]
    name: Option<String>,
    /// The identity provider that signs tokens of the tenant.
    #[serde(default)]
    jwt: Option<JwtConfig>,
    /// The shard that stores the rows of the tenant; its id gives one if absent.
    #[serde(default)]
    shard: Option<String>,
    /// Whether the users of the tenant are spread over all shards.
    #[serde(default)]
    spread: bool,
    /// The permission rules of all sessions of the tenant.
    #[serde(default)]
    permissions: Option<Rules>,
    /// The limits of the tenant.
    #[serde(default)]
    limits: Option<TenantLimits>,
}

/// Absent fields stay as they are; `null` removes.
#[derive(Clone, Deserialize, schemars::JsonSchema)]
pub(in crate::http) struct TenantPatch {
    /// The name, for people.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200))]
    name: Option<String>,
    /// The identity provider; `null` removes it.
    #[serde(default, deserialize_with = "present")]
    jwt: Option<Option<JwtConfig>>,
    /// A merge patch (RFC 7396) of the rules.
    #[serde(default, deserialize_with = "present")]
    permissions: Option<Option<Map<String, Value>>>,
    /// A merge patch of the limits.
    #[serde(default, deserialize_with = "present")]
    limits: Option<Option<Map<String, Value>>>,
    /// Must be the tenant's shard: only a move changes it.
    #[serde(default)]
    shard: Option<String>,
}

/// `POST /v1/admin/tenants`.
pub(super) async fn create(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let gateway = call.gateway;
    let new: NewTenant = body::json_or_empty(call.request)?;
    let id = match new.id {
        Some(id) => TenantId::parse(&id).ok_or_else(|| Problem::field("/id", ID_FORM))?,
        None => gateway.make_id(),
    };
    let name = new.name.unwrap_or_else(|| id.to_string());
    check_name(&name)?;
    let jwt = checked_jwt(gateway, &id, new.jwt).await?;
    let shard = shard_for(gateway, &id, new.shard)?;
    let spread = new.spread.then_some(gateway.config.shards.len());
    let permissions = checked_rules(new.permissions)?;
    let limits = checked_limits(new.limits.unwrap_or_default())?;
    let created_at = gateway.clock.now();
    let version = created_at.0;
    let tenant = Tenant { id, name, created_at, jwt, shard, spread, permissions, limits, version };
    let details = audit::changes(None, &tenant);
    let audit = audit::entry(call, &tenant.id, AuditAction::TenantCreated, &tenant.id, details);
    if !gateway.directory.create_tenant(&tenant, &audit).await? {
        let detail = "a tenant has this id, or had it until a few minutes ago";
        return Err(Problem::new(ErrorCode::AlreadyExists, detail));
    }
    forget_issuer(gateway, &tenant);
    if tenant.limits.storage() != StorageLimits::default() {
        gateway.directory.copy_limits(&tenant).await?;
    }
    response::json(StatusCode::CREATED, &view(gateway, &tenant))
}

/// `GET /v1/admin/tenants`, by id.
pub(super) async fn list(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let limit = page::limit(call.request)?;
    let after: Option<TenantId> = page::cursor(call.request)?;
    let found = call.gateway.directory.tenants(after.as_ref(), limit + 1).await?;
    page::respond(found, limit, |tenant| tenant.id.clone(), |tenant| view(call.gateway, tenant))
}

/// `GET /v1/admin/tenants/{tenant}`, with the shards of users that have moved. Of a deleted tenant, it shows how far its erasure is.
pub(super) async fn show(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let (directory, id) = (&call.gateway.directory, call.tenant());
    if let Some(deleted_at) = directory.deleted_at(&id).await? {
        let (left, storage) =
            (directory.count_sessions(&id, None).await?, directory.storage(&id, None).await?);
        let view = json!({ "id": id, "deleted_at": deleted_at, "sessions_left": left, "storage": storage });
        return response::json(StatusCode::OK, &view);
    }
    let tenant = existing_tenant(call.gateway, &id).await?;
    let mut view = view(call.gateway, &tenant);
    view["storage"] = json!(call.gateway.directory.storage(&tenant.id, None).await?);
    let moved = call.gateway.moves.user_shards(&tenant.id).await?;
    if !moved.is_empty() {
        view["user_shards"] = json!(moved);
    }
    response::json(StatusCode::OK, &view)
}

/// `PATCH /v1/admin/tenants/{tenant}`.
pub(super) async fn update(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let (gateway, id) = (call.gateway, &call.tenant());
    let patch: TenantPatch = body::json(call.request)?;
    if patch.limits.is_some() {
        // The move copies the limits that the shard has.
        gateway.last_move(id).await?;
    }
    for _ in 0..UPDATE_ATTEMPTS {
        let stored = existing_tenant(gateway, id).await?;
        let mut tenant = stored.clone();
        apply(gateway, &mut tenant, patch.clone()).await?;
        tenant.version = tenant.next_version(gateway.clock.now());
        let details = audit::changes(Some(&stored), &tenant);
        let audit = audit::entry(call, id, AuditAction::TenantUpdated, id, details);
        if gateway.directory.update_tenant(&tenant, stored.version, &audit).await? {
            gateway.cache.forget_tenant(id);
            forget_issuer(gateway, &tenant);
            if patch.limits.is_some() {
                gateway.directory.copy_limits(&tenant).await?;
            }
            return response::json(StatusCode::OK, &view(gateway, &tenant));
        }
    }
    Err(Problem::unavailable(
        "other requests are changing this tenant; try again",
        "its version keeps changing",
    ))
}

/// Applies a patch to a tenant.
async fn apply(gateway: &Gateway, tenant: &mut Tenant, patch: TenantPatch) -> Result<(), Problem> {
    if patch.shard.is_some_and(|shard| shard_of(gateway, tenant) != Some(&shard)) {
        let detail =
            format!("cannot change here; move the tenant with POST /v1/admin/tenants/{}/moves", tenant.id);
        return Err(Problem::field("/shard", detail));
    }
    if let Some(name) = patch.name {
        check_name(&name)?;
        tenant.name = name;
    }
    if let Some(jwt) = patch.jwt {
        tenant.jwt = checked_jwt(gateway, &tenant.id, jwt).await?;
    }
    if let Some(patch) = patch.permissions {
        tenant.permissions = checked_rules(
            patch.map(|patch| patched(&tenant.permissions, patch, "/permissions")).transpose()?,
        )?;
    }
    if let Some(patch) = patch.limits {
        let limits = patch.map(|patch| patched(&tenant.limits, patch, "/limits")).transpose()?;
        tenant.limits = checked_limits(limits.unwrap_or_default())?;
    }
    Ok(())
}

/// `DELETE /v1/admin/tenants/{tenant}`. The tenant's keys stop working at once. Its sessions and files are
/// erased here as far as one request can, and the rest by [`erasure::sweep`].
pub(super) async fn delete(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let (gateway, id) = (call.gateway, &call.tenant());
    let audit = audit::entry(call, id, AuditAction::TenantDeleted, id, Map::new());
    if !gateway.directory.delete_tenant(&audit).await? {
        return Err(Problem::not_found("tenant"));
    }
    gateway.cache.forget_tenant(id);
    erasure::begin(gateway, id).await;
    Ok(response::empty(StatusCode::NO_CONTENT))
}

/// Returns the tenant with this id.
///
/// # Errors
/// `not_found`, or a failed directory.
pub(super) async fn existing_tenant(gateway: &Gateway, id: &TenantId) -> Result<Tenant, Problem> {
    gateway.directory.tenant(id).await?.ok_or_else(|| Problem::not_found("tenant"))
}

/// Returns the shard of a new tenant: the one that the operator chose, or the one that its id gives.
fn shard_for(
    gateway: &Gateway,
    tenant: &TenantId,
    chosen: Option<String>,
) -> Result<Option<String>, Problem> {
    let shards = &gateway.config.shards;
    match chosen {
        None => Ok(placement::shard(tenant, shards).map(Into::into)),
        Some(_) if tenant.as_str() == DEV_TENANT => {
            Err(Problem::field("/shard", "cannot be chosen for the development tenant"))
        }
        Some(shard) if shards.contains(&shard) => Ok(Some(shard)),
        Some(_) => Err(Problem::field("/shard", format!("expected one of: {}", shards.join(", ")))),
    }
}

/// Returns the shard that a tenant is on.
pub(super) fn shard_of<'a>(gateway: &'a Gateway, tenant: &'a Tenant) -> Option<&'a str> {
    tenant.shard.as_deref().or_else(|| placement::shard(&tenant.id, &gateway.config.shards))
}

/// Checks the issuer of a tenant, and encrypts its keys.
async fn checked_jwt(
    gateway: &Gateway,
    tenant: &TenantId,
    jwt: Option<JwtConfig>,
) -> Result<Option<JwtConfig>, Problem> {
    let Some(mut jwt) = jwt else { return Ok(None) };
    if jwt.issuer.is_empty() {
        return Err(Problem::field("/jwt/issuer", "must not be empty"));
    }
    check_audience(&jwt)?;
    jwt.max_scopes = scopes::checked(jwt.max_scopes.0, "/jwt/max_scopes")?;
    jwt.jwks = match (&jwt.jwks_url, jwt.jwks.take()) {
        (Some(url), None) => {
            check_url(url)?;
            None
        }
        (None, Some(set)) => {
            let text = checked_set(&set, &*gateway.signatures).await?.to_string();
            let context = encryption_context(tenant);
            let cipher = gateway.cipher()?;
            let encrypted = cipher.and_then(|cipher| cipher.encrypt(&*gateway.entropy, &context, &text));
            let encrypted = encrypted.ok_or_else(|| Problem::internal("the keys could not be encrypted"))?;
            Some(Value::String(encrypted))
        }
        _ => return Err(Problem::field("/jwt", "give either jwks_url or jwks")),
    };
    Ok(Some(jwt))
}

/// Requires an audience, because an issuer also signs tokens for other services.
fn check_audience(jwt: &JwtConfig) -> Result<(), Problem> {
    match jwt.audience.as_deref() {
        Some("") => Err(Problem::field("/jwt/audience", "must not be empty")),
        Some(_) if jwt.any_audience => {
            Err(Problem::field("/jwt/any_audience", "cannot be combined with an audience"))
        }
        None if !jwt.any_audience => {
            let detail = "missing; to accept tokens for any audience, set any_audience to true";
            Err(Problem::field("/jwt/audience", detail))
        }
        _ => Ok(()),
    }
}

/// Accepts tokens of the tenant's issuer at once in this isolate.
fn forget_issuer(gateway: &Gateway, tenant: &Tenant) {
    if let Some(jwt) = &tenant.jwt {
        gateway.cache.forget_issuer(&jwt.issuer);
    }
}

/// Returns a tenant as the operator sees it: with public keys, without secrets.
pub(super) fn view(gateway: &Gateway, tenant: &Tenant) -> Value {
    let mut view = json!({
        "id": tenant.id, "name": tenant.name, "created_at": tenant.created_at,
        "shard": shard_of(gateway, tenant),
    });
    if let Some(spread) = tenant.spread {
        view["spread"] = json!(spread);
    }
    if !tenant.permissions.is_empty() {
        view["permissions"] = json!(tenant.permissions);
    }
    if !tenant.limits.is_empty() {
        view["limits"] = json!(tenant.limits);
    }
    if let Some(jwt) = &tenant.jwt {
        let mut set = stored_set(gateway, &tenant.id, jwt).ok().flatten();
        let keys = set.as_mut().and_then(|set| set.get_mut("keys")).and_then(Value::as_array_mut);
        for key in keys.into_iter().flatten().filter_map(Value::as_object_mut) {
            key.remove("k");
        }
        view["jwt"] = json!({
            "issuer": jwt.issuer, "audience": jwt.audience, "any_audience": jwt.any_audience,
            "max_scopes": jwt.max_scopes, "jwks_url": jwt.jwks_url, "jwks": set,
        });
    }
    view
}

/// Checks the name of a tenant or a key.
pub(super) fn check_name(name: &str) -> Result<(), Problem> {
    if name.is_empty() || name.chars().count() > MAX_NAME {
        return Err(Problem::field("/name", format!("expected 1 to {MAX_NAME} characters")));
    }
    Ok(())
}

/// Applies a merge patch (RFC 7396) to a value of a tenant. `at` is the JSON Pointer to the value.
fn patched<T: Serialize + DeserializeOwned>(
    stored: &T,
    patch: Map<String, Value>,
    at: &str,
) -> Result<T, Problem> {
    let mut merged = json!(stored);
    merge(&mut merged, Value::Object(patch));
    from_value(merged).map_err(|error| Problem::field(format!("{at}{}", error.pointer), error.detail))
}

/// Checks a tenant's limits.
fn checked_limits(limits: TenantLimits) -> Result<TenantLimits, Problem> {
    let errors = limits.violations("/limits");
    if errors.is_empty() { Ok(limits) } else { Err(Problem::fields(errors)) }
}

/// Checks a tenant's rules.
fn checked_rules(rules: Option<Rules>) -> Result<Rules, Problem> {
    let rules = rules.unwrap_or_default();
    rules.check().map_err(|field| Problem::field(format!("/permissions{}", field.pointer), field.detail))?;
    if json!(rules).to_string().len() > MAX_RULES_BYTES {
        return Err(Problem::field("/permissions", format!("larger than {MAX_RULES_BYTES} bytes of JSON")));
    }
    Ok(rules)
}

/// Accepts https, and http for a provider on the same machine: http does not protect the keys on their way.
fn check_url(url: &str) -> Result<(), Problem> {
    let is_local = url
        .strip_prefix("http://")
        .is_some_and(|rest| is_loopback(rest.split(['/', '?', '#']).next().unwrap_or_default()));
    if is_local || url.strip_prefix("https://").is_some_and(|rest| !rest.is_empty()) {
        return Ok(());
    }
    Err(Problem::field("/jwt/jwks_url", "expected an https URL (http only for this machine)"))
}

/// Returns the set with only the fields that verify tokens, and so without the private half of a key.
///
/// # Errors
/// `validation_failed` for a key that cannot verify tokens here.
async fn checked_set(set: &Value, signatures: &dyn Signatures) -> Result<Value, Problem> {
    let keys = set.get("keys").and_then(Value::as_array).filter(|keys| (1..=MAX_KEYS).contains(&keys.len()));
    let keys =
        keys.ok_or_else(|| Problem::field("/jwt/jwks/keys", format!("expected 1 to {MAX_KEYS} keys")))?;
    let mut kept = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let fault = |error: KeyError| Problem::field(format!("/jwt/jwks/keys/{index}"), error.to_string());
        Jwk::read(key).map_err(fault)?.check(signatures).await.map_err(fault)?;
        let fields = key.as_object().into_iter().flatten();
        let known = ["kty", "kid", "alg", "use", "n", "e", "crv", "x", "y", "k"];
        let fields = fields.filter(|(name, _)| known.contains(&name.as_str()));
        kept.push(fields.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>());
    }
    Ok(json!({ "keys": kept }))
}
