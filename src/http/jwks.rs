//! The keys that verify a tenant's tokens: stored with the tenant, or published by its identity provider.

use super::auth_cache::KeySet;
use super::gateway::Gateway;
use super::jwk::{Jwk, read_set};
use crate::ports::directory::{JwtConfig, Tenant};
use crate::ports::{HttpError, HttpRequest, within};
use crate::types::{Problem, TenantId};
use futures::StreamExt;
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::Duration;

/// How long a published set is used.
const KEY_SET_TTL: Duration = Duration::from_mins(10);
/// How long a failed fetch is cached.
const FAILURE_TTL: Duration = Duration::from_secs(5);
/// Minimum time between two fetches for keys that the set does not have.
const MIN_REFETCH_INTERVAL: Duration = Duration::from_mins(1);
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest set that is read, in bytes.
const MAX_SET: usize = 256 << 10;

/// Returns the keys that may have signed a token of this tenant's issuer.
///
/// # Errors
/// `unavailable` when the identity provider does not publish its keys; `not_configured` when stored keys cannot
/// be decrypted because the operator's key is malformed.
pub(super) async fn keys_of(
    gateway: &Gateway,
    tenant: &Tenant,
    jwt: &JwtConfig,
    kid: Option<&str>,
) -> Result<Rc<[Jwk]>, Problem> {
    if let Some(set) = stored_set(gateway, &tenant.id, jwt)? {
        return Ok(read_set(&set).into());
    }
    match &jwt.jwks_url {
        Some(url) => published_keys(gateway, url, kid).await,
        None => Ok([].into()),
    }
}

/// Decrypts the set that is stored with a tenant.
///
/// # Errors
/// `not_configured` when the operator's key is malformed.
pub(super) fn stored_set(
    gateway: &Gateway,
    tenant: &TenantId,
    jwt: &JwtConfig,
) -> Result<Option<Value>, Problem> {
    let Some(encrypted) = jwt.jwks.as_ref().and_then(Value::as_str) else { return Ok(None) };
    let Some(cipher) = gateway.cipher()? else { return Ok(None) };
    let set = cipher.decrypt(&encryption_context(tenant), encrypted);
    if set.is_none() {
        gateway.log.error(&json!({
            "event": "jwks.not_decrypted", "tenant": tenant, "cause": "was the operator's key changed?",
        }));
    }
    Ok(set.and_then(|set| serde_json::from_str(&set).ok()))
}

/// Returns the context with which a tenant's set is encrypted.
pub(super) fn encryption_context(tenant: &TenantId) -> String {
    format!("jwks {tenant}")
}

async fn published_keys(gateway: &Gateway, url: &str, kid: Option<&str>) -> Result<Rc<[Jwk]>, Problem> {
    let (now, key_sets) = (gateway.clock.now(), &gateway.cache.key_sets);
    let known = key_sets.get(url, now);
    if let Some(set) = &known {
        let Some(keys) = &set.keys else { return Err(unpublished()) };
        let has_it = kid.is_none_or(|kid| keys.iter().any(|key| key.kid.as_deref() == Some(kid)));
        if has_it || set.refetched_at.is_some_and(|at| now.since(at) < MIN_REFETCH_INTERVAL) {
            return Ok(keys.clone());
        }
        // Before the fetch, so that a burst of tokens with unknown keys causes one fetch.
        let asked = KeySet { refetched_at: Some(now), ..set.clone() };
        key_sets.put(url.into(), asked, set.ends_at, now);
    }
    match fetch_keys(gateway, url).await {
        Ok(keys) => {
            let keys: Rc<[Jwk]> = keys.into();
            let ends_at = now + KEY_SET_TTL;
            let set = KeySet { keys: Some(keys.clone()), ends_at, refetched_at: known.map(|_| now) };
            key_sets.put(url.into(), set, ends_at, now);
            Ok(keys)
        }
        Err(error) => {
            gateway
                .log
                .error(&json!({ "event": "jwks.unavailable", "url": url, "cause": error.to_string() }));
            // The cached keys stay valid until they expire.
            if let Some(keys) = known.and_then(|set| set.keys) {
                return Ok(keys);
            }
            let ends_at = now + FAILURE_TTL;
            key_sets.put(url.into(), KeySet { keys: None, ends_at, refetched_at: None }, ends_at, now);
            Err(unpublished())
        }
    }
}

async fn fetch_keys(gateway: &Gateway, url: &str) -> Result<Vec<Jwk>, HttpError> {
    let set = within(&*gateway.clock, FETCH_TIMEOUT, fetch_json(gateway, url)).await;
    let set = set.map_err(|unfinished| HttpError(unfinished.to_string()))??;
    // A published secret is not secret, so it verifies nothing.
    Ok(read_set(&set).into_iter().filter(|key| !key.is_secret()).collect())
}

async fn fetch_json(gateway: &Gateway, url: &str) -> Result<Value, HttpError> {
    let headers = vec![("accept".into(), "application/json".into())];
    let request = HttpRequest { method: "GET", url: url.into(), headers, ..HttpRequest::default() };
    let mut response = gateway.http.send(request).await?;
    if response.status != 200 {
        return Err(HttpError(format!("status {}", response.status)));
    }
    let mut bytes = Vec::new();
    while let Some(piece) = response.body.next().await {
        bytes.extend_from_slice(&piece?);
        if bytes.len() > MAX_SET {
            return Err(HttpError("too large".into()));
        }
    }
    serde_json::from_slice(&bytes).map_err(|error| HttpError(error.to_string()))
}

fn unpublished() -> Problem {
    let detail = "the identity provider does not publish its keys; try again";
    Problem::unavailable(detail, "no key set")
}
