//! Who is asking, and whether the route is open to them.
//!
//! | credential | who it is |
//! |---|---|
//! | the operator's key (`ADMIN_KEY`) | the operator; opens `/v1/admin/*` and nothing else |
//! | the development key (`DEV_API_KEY`) | tenant `dev`, everything allowed |
//! | an API key, `eh_…` | its tenant; the caller names the user |
//! | a signed token | the tenant that trusts its issuer; the user is its `sub` |
//! | `?ticket=` on streaming routes | whoever asked for the ticket, for one session |

use super::ApiRequest;
use super::auth_cache::{KEPT_MS, UNKNOWN_KEPT_MS};
use super::failure::Failure;
use super::front::Front;
use super::jwt::Token;
use super::routes::{Access, Found};
use super::seal::sha256_hex;
use crate::ports::Entropy;
use crate::types::{ErrorCode, Principal, Problem, Rules, Scopes};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use subtle::ConstantTimeEq;

/// What an API key starts with, so that people and scanners recognise one.
pub const KEY_PREFIX: &str = "eh_";
const KEY_BYTES: usize = 32;
/// The tenant of the development key.
pub const DEV_TENANT: &str = "dev";

/// Who is asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Nobody in particular, on a public route.
    Anyone,
    /// The operator.
    Operator,
    /// Somebody of a tenant.
    Member(Principal),
}

impl Front {
    /// Finds out who is asking and whether the route is open to them.
    ///
    /// # Errors
    /// 401 without a valid credential, 403 when it lacks the scope, 503 when nobody can tell.
    pub(super) async fn authenticate(&self, request: &ApiRequest, found: &Found) -> Result<Caller, Failure> {
        let bearer = bearer(request);
        match found.route.access {
            Access::Public => Ok(Caller::Anyone),
            Access::Operator => {
                let credential = bearer.ok_or_else(missing)?;
                if is_secret(credential, self.config.admin_key.as_deref()) {
                    return Ok(Caller::Operator);
                }
                self.member(credential).await?;
                Err(Problem::new(ErrorCode::MissingScope, "only the operator's key opens this route").into())
            }
            Access::Scope(scope) => {
                let principal = match (bearer, request.query("ticket")) {
                    (Some(credential), _) => self.member(credential).await?,
                    (None, Some(ticket)) if found.route.ticket => {
                        let holder = self
                            .open_ticket(&ticket)
                            .filter(|holder| holder.session.as_deref() == Some(found.param("id")))
                            .ok_or_else(|| refused("the ticket is not valid here; ask for a new one"))?;
                        self.under_rules(holder).await?
                    }
                    _ => return Err(missing().into()),
                };
                if !principal.scopes.allow(scope) {
                    let detail = format!("this route needs the scope {scope:?}").to_lowercase();
                    return Err(Problem::new(ErrorCode::MissingScope, detail).into());
                }
                Ok(Caller::Member(principal))
            }
        }
    }

    /// The holder of a ticket, under the rules of its tenant: a URL has no room for them.
    async fn under_rules(&self, holder: Principal) -> Result<Principal, Failure> {
        let now = self.clock.now();
        // No hash of a credential looks like this.
        let name = format!("tenant/{}", holder.tenant);
        if let Some(known) = self.cache.callers.get(&name, now) {
            return Ok(Principal { rules: known.rules, ..holder });
        }
        let tenant = self.directory.tenant(&holder.tenant).await?;
        // The tenant of the development key has no row.
        let rules = match tenant {
            Some(tenant) => tenant.permissions,
            None if holder.tenant == DEV_TENANT => Rules::default(),
            None => return Err(refused("the ticket's tenant is gone").into()),
        };
        let known =
            Principal { rules: rules.clone(), ..Principal::new(holder.tenant.clone(), Scopes::default()) };
        self.cache.callers.put(name, known, now.plus(KEPT_MS), now);
        Ok(Principal { rules, ..holder })
    }

    /// The tenant's caller behind a bearer credential.
    async fn member(&self, credential: &str) -> Result<Principal, Failure> {
        if is_secret(credential, self.config.dev_api_key.as_deref()) {
            return Ok(Principal::new(DEV_TENANT, Scopes::all()));
        }
        let now = self.clock.now();
        let hash = sha256_hex(credential.as_bytes());
        if let Some(principal) = self.cache.callers.get(&hash, now) {
            return Ok(principal);
        }
        let (principal, end) = if is_key(credential) {
            if self.cache.unknown.get(&hash, now).is_some() {
                return Err(unknown_key().into());
            }
            let Some((key, rules)) = self.directory.key_by_hash(&hash, now).await? else {
                self.cache.unknown.put(hash, (), now.plus(UNKNOWN_KEPT_MS), now);
                return Err(unknown_key().into());
            };
            let holder = Principal::new(key.tenant, key.scopes);
            (Principal { key: Some(key.id), rules, ..holder }, key.expires_at)
        } else {
            let token = Token::parse(credential).ok_or_else(unknown_key)?;
            (self.token_holder(&token).await?, Some(token.claims.ends_at()))
        };
        let end = end.map_or(now.plus(KEPT_MS), |end| end.min(now.plus(KEPT_MS)));
        self.cache.callers.put(hash, principal.clone(), end, now);
        Ok(principal)
    }

    /// The user that a token speaks for, in the one tenant that trusts its signature.
    async fn token_holder(&self, token: &Token<'_>) -> Result<Principal, Failure> {
        let now = self.clock.now();
        let (mut holders, mut failure) = (Vec::new(), Failure::from(refused("the token is not valid")));
        for tenant in self.directory.tenants_by_issuer(&token.claims.iss).await? {
            let Some(jwt) = &tenant.jwt else { continue };
            let keys = match self.keys_of(&tenant, jwt, token.kid()).await {
                Ok(keys) => keys,
                Err(silent) => {
                    failure = silent;
                    continue;
                }
            };
            match token.is_signed_by(&keys, &*self.signatures).await {
                Ok(true) => {}
                Ok(false) => continue,
                Err(fault) => {
                    (self.log)(&format!("a key of tenant {} cannot be used: {fault}", tenant.id));
                    continue;
                }
            }
            match token.claims.fault(jwt.audience.as_deref(), now) {
                Some(fault) => failure = refused(fault).into(),
                None => holders.push((tenant.id, tenant.permissions)),
            }
        }
        // Two tenants may share an issuer if audiences tell them apart; guessing would let one
        // tenant's users into the other.
        match (holders.pop(), holders.pop()) {
            (Some((tenant, rules)), None) => {
                let user = Some(token.claims.sub.clone());
                Ok(Principal { user, rules, ..Principal::new(tenant, token.claims.scopes()) })
            }
            (Some(_), Some(_)) => Err(refused("several tenants trust this token; set an audience").into()),
            (None, _) => Err(failure),
        }
    }
}

/// A new API key: what its holder keeps, and the hash that we keep.
pub(super) fn make_key(entropy: &dyn Entropy) -> (String, String) {
    let mut bytes = [0; KEY_BYTES];
    entropy.fill(&mut bytes);
    let secret = format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    let hash = sha256_hex(secret.as_bytes());
    (secret, hash)
}

/// Whether it could be an API key at all: what cannot be is refused without asking anybody.
fn is_key(credential: &str) -> bool {
    credential
        .strip_prefix(KEY_PREFIX)
        .and_then(|text| URL_SAFE_NO_PAD.decode(text).ok())
        .is_some_and(|bytes| bytes.len() == KEY_BYTES)
}

/// Compares hashes, so that neither the content nor the length of the secret shows in the time.
fn is_secret(credential: &str, secret: Option<&str>) -> bool {
    use sha2::{Digest, Sha256};
    secret.is_some_and(|secret| Sha256::digest(credential).ct_eq(&Sha256::digest(secret)).into())
}

fn bearer(request: &ApiRequest) -> Option<&str> {
    let (scheme, credential) = request.header("authorization")?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(credential.trim())
}

fn refused(detail: &str) -> Problem {
    Problem::new(ErrorCode::Unauthenticated, detail)
}

fn missing() -> Problem {
    refused("send a key: Authorization: Bearer …")
}

fn unknown_key() -> Problem {
    refused("the key is not valid: unknown, revoked or expired")
}
