//! First responses of the gateway's own routes, stored in the directory. They are encrypted, because they may
//! contain the secret of a new key.

use super::{RequestKey, ResponseStore, reused};
use crate::http::crypto::Cipher;
use crate::http::gateway::Gateway;
use crate::http::pattern::Params;
use crate::http::request::Request;
use crate::ports::directory::Claim;
use crate::types::{Problem, TenantId};
use async_trait::async_trait;
use http::StatusCode;
use serde_json::{Value, json};

/// Stores responses in the directory.
pub struct DirectoryStore<'a> {
    /// The gateway.
    pub gateway: &'a Gateway,
    /// Encrypts the responses.
    pub cipher: Cipher,
    /// The tenant of the request; `None` for the operator's.
    pub tenant: Option<&'a TenantId>,
    /// The id of the request, for the log.
    pub request_id: &'a str,
}

#[async_trait(?Send)]
impl ResponseStore for DirectoryStore<'_> {
    async fn claim(&self, key: &RequestKey) -> Result<Claim, Problem> {
        match claim_key(self.gateway, self.tenant, key).await? {
            Claim::Done(status, encrypted) => {
                let body = self.cipher.decrypt(&context(key), &encrypted);
                let body = body.ok_or_else(|| Problem::internal("a stored response cannot be decrypted"))?;
                Ok(Claim::Done(status, body))
            }
            claim => Ok(claim),
        }
    }

    /// The work is done, so a failure to store its response is only logged; the claim expires.
    async fn settle(&self, key: &RequestKey, response: Option<(StatusCode, &str)>) -> Result<(), Problem> {
        let encrypted = response.and_then(|(status, body)| {
            let body = self.cipher.encrypt(&*self.gateway.entropy, &context(key), body)?;
            Some((status.as_u16(), body))
        });
        let response = encrypted.as_ref().map(|(status, body)| (*status, body.as_str()));
        if let Err(error) = self.gateway.directory.settle(self.tenant, &key.scope, &key.key, response).await {
            let id = self.request_id;
            self.gateway.log.error(&json!({
                "event": "idempotency.response_not_stored", "request_id": id, "cause": error.to_string(),
            }));
        }
        Ok(())
    }
}

/// Returns the context for encrypting a stored response; see [`Cipher::encrypt`].
fn context(key: &RequestKey) -> String {
    format!("answer {} {}", key.scope, key.key)
}

async fn claim_key(gateway: &Gateway, tenant: Option<&TenantId>, key: &RequestKey) -> Result<Claim, Problem> {
    let now = gateway.clock.now();
    Ok(gateway.directory.claim(tenant, &key.scope, &key.key, &key.body_hash, now).await?)
}

/// The claim of a request that creates a session. The object of the session stores the response; the
/// directory stores the claim alone, because another body may lead to another object.
#[derive(Debug)]
pub struct IdempotencyClaim(TenantId, RequestKey);

/// Claims the Idempotency-Key of a request that creates a session. Returns `None` when there is no key, or
/// when an earlier request with the same body claimed it: the object then has the stored response.
///
/// # Errors
/// `idempotency_key_reused` for another body; a failed directory.
pub async fn claim(
    gateway: &Gateway,
    request: &Request,
    params: &Params,
    tenant: &TenantId,
    owner: &Value,
) -> Result<Option<IdempotencyClaim>, Problem> {
    let Some(key) = RequestKey::of(request, params, owner)? else { return Ok(None) };
    match claim_key(gateway, Some(tenant), &key).await? {
        Claim::Fresh => Ok(Some(IdempotencyClaim(tenant.clone(), key))),
        Claim::Reused => Err(reused()),
        Claim::Running | Claim::Done(..) => Ok(None),
    }
}

/// Stores the claim if the session was created, and releases its key otherwise, so that the client can
/// correct the request.
pub async fn settle(gateway: &Gateway, claim: &IdempotencyClaim, status: u16) {
    let response = (status < 300).then_some((status, ""));
    let IdempotencyClaim(tenant, key) = claim;
    if let Err(error) = gateway.directory.settle(Some(tenant), &key.scope, &key.key, response).await {
        gateway.log.error(&json!({ "event": "idempotency.claim_not_settled", "cause": error.to_string() }));
    }
}
