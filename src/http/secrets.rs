//! The secrets of a tenant. A value is stored and never returned.

use super::gateway::TenantCall;
use super::response::{self, Response};
use super::{audit, body, page};
use crate::ports::secret_store::{MAX_SECRETS, PutSecret};
use crate::types::{AuditAction, ErrorCode, Problem, secret::check_name};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Maximum size of a value, in bytes.
const MAX_VALUE: usize = 16 << 10;

/// A value to store.
#[derive(Deserialize, schemars::JsonSchema)]
pub(in crate::http) struct NewSecret {
    /// The value: 1 byte to 16 kB of text.
    #[serde(default)]
    #[schemars(with = "String", required, length(min = 1, max = 16384))]
    // Not a string, because the error about another type would contain the value.
    value: Value,
}

/// `GET /v1/secrets`, in the order of their names.
pub(super) async fn list(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let data = call.gateway.secrets.store().list(&call.caller.tenant).await?;
    response::json(StatusCode::OK, &page::Page { data, next_cursor: None })
}

/// `PUT /v1/secrets/{name}`.
pub(super) async fn put(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let (gateway, tenant) = (call.gateway, &call.caller.tenant);
    let name = name(call)?;
    let NewSecret { value } = body::json(call.request)?;
    let value = value.as_str().filter(|value| (1..=MAX_VALUE).contains(&value.len()));
    let value = value
        .ok_or_else(|| Problem::field("/value", format!("expected a text of 1 to {MAX_VALUE} bytes")))?;
    let Some(cipher) = gateway.cipher()? else {
        let detail = "secrets are encrypted with the ADMIN_KEY, which this deployment does not have; set it with \
                      `npx wrangler secret put ADMIN_KEY`";
        return Err(Problem::new(ErrorCode::NotConfigured, detail));
    };
    let audit = audit::entry(call, tenant, AuditAction::SecretStored, name, Map::new());
    match gateway.secrets.put(&cipher, name, value, &audit).await? {
        Some(PutSecret::Created) => response::json(StatusCode::CREATED, &json!({ "name": name })),
        Some(PutSecret::Replaced) => Ok(response::empty(StatusCode::NO_CONTENT)),
        Some(PutSecret::Refused) => {
            let detail = format!("a tenant has at most {MAX_SECRETS} secrets; delete one first");
            Err(Problem::new(ErrorCode::QuotaExceeded, detail))
        }
        None => Err(Problem::internal("the secret could not be encrypted")),
    }
}

/// `DELETE /v1/secrets/{name}`. Other isolates may use the value for one more minute.
pub(super) async fn delete(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let name = name(call)?;
    let audit = audit::entry(call, &call.caller.tenant, AuditAction::SecretDeleted, name, Map::new());
    match call.gateway.secrets.delete(name, &audit).await? {
        true => Ok(response::empty(StatusCode::NO_CONTENT)),
        false => Err(Problem::not_found("secret")),
    }
}

fn name<'a>(call: &'a TenantCall<'_>) -> Result<&'a str, Problem> {
    let name = call.params.get("name");
    check_name(name).map_err(|error| Problem::fields(vec![error]))?;
    Ok(name)
}
