//! Authenticates a request.
//!
//! | credential | caller |
//! |---|---|
//! | the operator's key (`ADMIN_KEY`) | the operator; opens `/v1/admin/*` and nothing else |
//! | the development key (`DEV_API_KEY`), on a developer's machine | tenant `dev` with every scope |
//! | an API key, `eh_…` | the key's tenant; the request names the user |
//! | a signed token | the tenant that trusts its issuer; the user is its `sub` |
//! | `?ticket=` on streaming routes | the caller that created the ticket, for one session |

use super::address;
use super::api_key::is_key;
use super::auth_cache::{UNKNOWN_ISSUER_TTL, UNKNOWN_KEY_TTL};
use super::credentials::{DEV_KEY, DEV_TENANT, valid_until};
use super::crypto::sha256_hex;
use super::gateway::Gateway;
use super::jwks;
use super::jwt::Token;
use super::loopback::is_loopback;
use super::request::{Request, RequestExt};
use super::route::RouteMatch;
use super::tickets::open_ticket;
use crate::ports::Credentials;
use crate::types::{ErrorCode, Principal, Problem, Scope, Scopes};
use serde_json::json;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Accepts the operator's key.
///
/// # Errors
/// `unauthenticated` without a valid credential, `missing_scope` for a credential of a tenant, `unavailable`
/// when the credential cannot be checked, `rate_limited` after too many invalid ones from the client's address,
/// `not_configured` when the operator's key is malformed.
pub async fn operator(gateway: &Gateway, request: &Request) -> Result<(), Problem> {
    let admin_key = gateway.admin_key()?;
    let credential = bearer(request).ok_or_else(missing)?;
    if is_secret(credential, admin_key) {
        return Ok(());
    }
    bearer_principal(gateway, request, credential).await?;
    Err(Problem::new(ErrorCode::MissingScope, "only the operator's key opens this route"))
}

/// Authenticates a caller of a tenant and checks its scope.
///
/// # Errors
/// `unauthenticated` without a valid credential, `missing_scope` without the scope and for the operator's key,
/// `unavailable` when the credential cannot be checked, `rate_limited` after too many invalid ones from the client's
/// address.
pub async fn principal(
    gateway: &Gateway,
    request: &Request,
    found: &RouteMatch,
    scope: Scope,
) -> Result<Principal, Problem> {
    let ticket = request.query("ticket").filter(|_| found.route.accepts_ticket && bearer(request).is_none());
    let principal = match ticket {
        None => caller(gateway, request).await?,
        Some(ticket) => {
            let holder = open_ticket(gateway, &ticket)
                .await?
                .filter(|holder| holder.session.as_deref() == Some(found.params.get("id")))
                .ok_or_else(|| refused("the ticket is not valid here; create a new one"))?;
            renewed(gateway, holder).await?
        }
    };
    let may_read = found.route.serves_readers && principal.scopes.allow(Scope::Read);
    if !principal.scopes.allow(scope) && !may_read {
        let detail = format!("this route needs the scope {}", scope.name());
        return Err(Problem::new(ErrorCode::MissingScope, detail));
    }
    // Set last, because a cached principal or a ticket has the address of an earlier request.
    Ok(Principal { address: address::of(request), ..principal })
}

/// Authenticates a caller of a tenant by its bearer credential.
///
/// # Errors
/// As for [`principal`], except for the scope.
pub async fn caller(gateway: &Gateway, request: &Request) -> Result<Principal, Problem> {
    let credential = bearer(request).ok_or_else(missing)?;
    let found = bearer_principal(gateway, request, credential).await;
    found.map_err(|problem| operators_key(gateway, credential).unwrap_or(problem))
}

/// Returns the problem of a request of a tenant with the operator's key, or `None` for another credential.
fn operators_key(gateway: &Gateway, credential: &str) -> Option<Problem> {
    let detail = "the operator's key opens only the routes below /v1/admin; use a key of a tenant";
    is_secret(credential, gateway.config.admin_key.as_deref())
        .then(|| Problem::new(ErrorCode::MissingScope, detail))
}

/// Checks the holder of a ticket. A ticket ends with the credential that created it, or with its tenant.
async fn renewed(gateway: &Gateway, holder: Principal) -> Result<Principal, Problem> {
    let found = gateway.credentials().renew(&holder, gateway.clock.now()).await?;
    found.ok_or_else(|| {
        refused("the ticket ended, because its key, token or tenant is no longer valid; create a new one")
    })
}

/// Finds the caller of a bearer credential of a tenant. Only a credential that the isolate does not know, whether valid
/// or not, causes a query.
async fn bearer_principal(
    gateway: &Gateway,
    request: &Request,
    credential: &str,
) -> Result<Principal, Problem> {
    let now = gateway.clock.now();
    // A deployment that got the key by mistake must not accept it.
    let is_dev = gateway.config.dev || request.header("host").is_some_and(is_loopback);
    if is_dev && is_secret(credential, gateway.config.dev_api_key.as_deref()) {
        let holder = Principal::new(DEV_TENANT, Scopes::all());
        return Ok(Principal { key: Some(DEV_KEY.into()), valid_until: valid_until(now, None), ..holder });
    }
    let hash = sha256_hex(credential.as_bytes());
    if let Some(principal) = gateway.cache.callers.get(&hash, now) {
        return Ok(principal);
    }
    let failures = &gateway.cache.failures;
    let principal = if is_key(credential) {
        if gateway.cache.unknown.get(&hash, now).is_some() {
            return Err(unknown_key());
        }
        failures.limited(request, now, key_principal(gateway, &hash)).await?
    } else {
        let token = Token::parse(credential).ok_or_else(unknown_key)?;
        // Hashed, because a caller chooses the name and its length.
        let issuer = sha256_hex(token.claims.iss.as_bytes());
        if gateway.cache.unknown_issuers.get(&issuer, now).is_some() {
            return Err(invalid_token());
        }
        failures.limited(request, now, token_principal(gateway, &token, issuer)).await?
    };
    gateway.cache.callers.put(hash, principal.clone(), principal.valid_until, now);
    Ok(principal)
}

/// Finds the holder of the key with this hash.
async fn key_principal(gateway: &Gateway, hash: &str) -> Result<Principal, Problem> {
    let now = gateway.clock.now();
    let Some((key, policy)) = gateway.directory.key_by_hash(hash, now).await? else {
        gateway.cache.unknown.put(hash.to_owned(), (), now + UNKNOWN_KEY_TTL, now);
        return Err(unknown_key());
    };
    let valid_until = valid_until(now, key.expires_at);
    Ok(Principal { key: Some(key.id), policy, valid_until, ..Principal::new(key.tenant, key.scopes) })
}

/// Finds the user of a token in the one tenant that trusts its signature. `issuer` is the hash of the issuer.
async fn token_principal(gateway: &Gateway, token: &Token<'_>, issuer: String) -> Result<Principal, Problem> {
    let now = gateway.clock.now();
    let (mut holders, mut failure) = (Vec::new(), invalid_token());
    let tenants = gateway.directory.tenants_by_issuer(&token.claims.iss).await?;
    if tenants.is_empty() {
        gateway.cache.unknown_issuers.put(issuer, (), now + UNKNOWN_ISSUER_TTL, now);
    }
    for tenant in tenants {
        let Some(jwt) = &tenant.jwt else { continue };
        let keys = match jwks::keys_of(gateway, &tenant, jwt, token.kid()).await {
            Ok(keys) => keys,
            Err(problem) => {
                failure = problem;
                continue;
            }
        };
        match token.is_signed_by(&keys, &*gateway.signatures).await {
            Ok(true) => {}
            Ok(false) => continue,
            Err(fault) => {
                gateway.log.error(
                    &json!({ "event": "jwks.key_unusable", "tenant": tenant.id, "cause": fault.to_string() }),
                );
                continue;
            }
        }
        match token.claims.fault(jwt, now) {
            Some(fault) => failure = refused(fault),
            None => {
                let scopes = token.claims.scopes().within(&jwt.max_scopes);
                holders.push((tenant.policy(), tenant.id, scopes));
            }
        }
    }
    // Two tenants may share an issuer if their audiences differ. Choosing one of several would give one
    // tenant's users access to the other.
    match (holders.pop(), holders.pop()) {
        (Some((policy, tenant, scopes)), None) => {
            let (user, end) = (Some(token.claims.sub.as_str().into()), Some(token.claims.ends_at()));
            let valid_until = valid_until(now, end);
            Ok(Principal { user, policy, expires_at: end, valid_until, ..Principal::new(tenant, scopes) })
        }
        (Some(_), Some(_)) => Err(refused("several tenants trust this token; set an audience")),
        (None, _) => Err(failure),
    }
}

/// Compares hashes, so that the time taken reveals neither the content nor the length of the secret.
fn is_secret(credential: &str, secret: Option<&str>) -> bool {
    secret.is_some_and(|secret| Sha256::digest(credential).ct_eq(&Sha256::digest(secret)).into())
}

fn bearer(request: &Request) -> Option<&str> {
    let (scheme, credential) = request.header("authorization")?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(credential.trim())
}

fn refused(detail: &str) -> Problem {
    Problem::new(ErrorCode::Unauthenticated, detail)
}

fn missing() -> Problem {
    refused("send a key: Authorization: Bearer …")
}

fn invalid_token() -> Problem {
    refused("the token is not valid")
}

fn unknown_key() -> Problem {
    refused("the key is not valid: unknown, revoked or expired")
}
