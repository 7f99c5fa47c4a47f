//! A tenant's keys for verifying tokens: stored with the tenant, or fetched from where its identity
//! provider publishes them.

use super::failure::Failure;
use super::front::Front;
use super::jwt::{Jwk, read_set};
use crate::ports::directory::{JwtConfig, Tenant};
use crate::ports::{HttpError, HttpRequest};
use crate::types::{TenantId, Timestamp};
use futures::future::{Either, select};
use futures::{StreamExt, pin_mut};
use serde_json::Value;
use std::rc::Rc;

/// How long a published set is used.
const KEPT_MS: u64 = 10 * 60_000;
/// How long a failed fetch counts.
const FAILURE_KEPT_MS: u64 = 5_000;
/// The least time between two fetches for the sake of unknown names.
const REFETCH_MS: u64 = 60_000;
const FETCH_TIMEOUT_MS: u64 = 5_000;
const MAX_SET: usize = 256 << 10;

/// A published set, as remembered.
#[derive(Clone)]
pub(super) struct KeySet {
    /// `None` when it could not be fetched.
    keys: Option<Rc<[Jwk]>>,
    ends_at: Timestamp,
    refetched_at: Option<Timestamp>,
}

impl Front {
    /// The keys that may have signed a token of this tenant's issuer.
    pub(super) async fn keys_of(
        &self,
        tenant: &Tenant,
        jwt: &JwtConfig,
        kid: Option<&str>,
    ) -> Result<Rc<[Jwk]>, Failure> {
        if let Some(set) = self.stored_set(&tenant.id, jwt) {
            return Ok(read_set(&set).into());
        }
        match &jwt.jwks_url {
            Some(url) => self.published_keys(url, kid).await,
            None => Ok([].into()),
        }
    }

    /// The set stored with a tenant, opened.
    pub(super) fn stored_set(&self, tenant: &TenantId, jwt: &JwtConfig) -> Option<Value> {
        let sealed = jwt.jwks.as_ref()?.as_str()?;
        let opened = self.seal()?.open(&seal_context(tenant), sealed);
        if opened.is_none() {
            (self.log)(&format!(
                "the keys of tenant {tenant} cannot be opened: was the operator's key changed?"
            ));
        }
        crate::types::json::read(opened?.as_bytes()).ok()
    }

    async fn published_keys(&self, url: &str, kid: Option<&str>) -> Result<Rc<[Jwk]>, Failure> {
        let now = self.clock.now();
        let known = self.cache.key_sets.get(url, now);
        if let Some(set) = &known {
            let Some(keys) = &set.keys else { return Err(silent().into()) };
            let has_it = kid.is_none_or(|kid| keys.iter().any(|key| key.kid.as_deref() == Some(kid)));
            if has_it || set.refetched_at.is_some_and(|at| now.since(at) < REFETCH_MS) {
                return Ok(keys.clone());
            }
            // Before the fetch, so that a burst of unknown names makes one fetch and not many.
            let asked = KeySet { refetched_at: Some(now), ..set.clone() };
            self.cache.key_sets.put(url.into(), asked, set.ends_at, now);
        }
        match (self.fetch_set(url).await, known) {
            (Ok(keys), known) => {
                let keys: Rc<[Jwk]> = keys.into();
                let ends_at = now.plus(KEPT_MS);
                let set = KeySet { keys: Some(keys.clone()), ends_at, refetched_at: known.map(|_| now) };
                self.cache.key_sets.put(url.into(), set, ends_at, now);
                Ok(keys)
            }
            (Err(error), known) => {
                (self.log)(&format!("{url} does not give its keys: {error}"));
                // What was known stays good for its ten minutes.
                if let Some(keys) = known.and_then(|set| set.keys) {
                    return Ok(keys);
                }
                let ends_at = now.plus(FAILURE_KEPT_MS);
                let set = KeySet { keys: None, ends_at, refetched_at: None };
                self.cache.key_sets.put(url.into(), set, ends_at, now);
                Err(silent().into())
            }
        }
    }

    async fn fetch_set(&self, url: &str) -> Result<Vec<Jwk>, HttpError> {
        let fetch = self.fetch_json(url);
        pin_mut!(fetch);
        let set = match select(fetch, self.clock.sleep(FETCH_TIMEOUT_MS)).await {
            Either::Left((set, _)) => set?,
            Either::Right(_) => return Err(HttpError("no answer in time".into())),
        };
        // A published secret is none.
        Ok(read_set(&set).into_iter().filter(|key| !key.is_secret()).collect())
    }

    async fn fetch_json(&self, url: &str) -> Result<Value, HttpError> {
        let headers = vec![("accept".into(), "application/json".into())];
        let mut answer =
            self.http.send(HttpRequest { method: "GET", url: url.into(), headers, body: None }).await?;
        if answer.status != 200 {
            return Err(HttpError(format!("status {}", answer.status)));
        }
        let mut bytes = Vec::new();
        while let Some(piece) = answer.body.next().await {
            bytes.extend_from_slice(&piece?);
            if bytes.len() > MAX_SET {
                return Err(HttpError("too large".into()));
            }
        }
        crate::types::json::read(&bytes).map_err(|error| HttpError(error.to_string()))
    }
}

fn silent() -> crate::types::Problem {
    let detail = "the identity provider does not give its keys; try again";
    crate::types::Problem::unavailable(detail, "no key set came")
}

/// What a stored set is sealed to.
pub(super) fn seal_context(tenant: &TenantId) -> String {
    format!("jwks {tenant}")
}
