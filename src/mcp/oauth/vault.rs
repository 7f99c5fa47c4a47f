//! The encrypted rows of the store of consent.

use super::Ports;
use crate::mcp::error::McpError;
use crate::ports::consents::{ConsentKey, ConsentKind};
use crate::types::{TenantId, Timestamp, UserId, json};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

/// Returns the key of a row.
pub fn key(tenant: &TenantId, user: Option<&UserId>, kind: ConsentKind, name: &str) -> ConsentKey {
    ConsentKey { tenant: tenant.clone(), user: user.cloned(), kind, name: name.to_owned() }
}

/// Returns the context with which a row is encrypted.
fn context(key: &ConsentKey) -> String {
    json!(["consent", key.tenant, key.user, key.kind.name(), key.name]).to_string()
}

fn sealed(ports: &Ports, key: &ConsentKey, value: &impl Serialize) -> Result<String, McpError> {
    let text = json!(value).to_string();
    let why = "the deployment has no ADMIN_KEY, with which tokens are encrypted";
    ports.sealer.seal(&context(key), &text).ok_or_else(|| McpError::Consent(why.into()))
}

/// Decrypts a value. One that was encrypted with another key counts as absent.
pub fn open<T: DeserializeOwned>(ports: &Ports, key: &ConsentKey, sealed: &str) -> Option<T> {
    json::from_str(&ports.sealer.open(&context(key), sealed)?).ok()
}

/// Returns a value and its version.
pub async fn get<T: DeserializeOwned>(ports: &Ports, key: &ConsentKey) -> Result<Option<(T, u64)>, McpError> {
    let Some(sealed) = ports.consents.get(key).await? else { return Ok(None) };
    Ok(open(ports, key, &sealed.value).map(|value| (value, sealed.version)))
}

/// Stores a value.
pub async fn put(
    ports: &Ports,
    key: &ConsentKey,
    value: &impl Serialize,
    expires_at: Option<Timestamp>,
) -> Result<(), McpError> {
    let value = sealed(ports, key, value)?;
    Ok(ports.consents.put(key, &value, expires_at, ports.clock.now()).await?)
}

/// Stores a token in place of a request that has not changed since this version. Returns whether it did.
pub async fn redeem(
    ports: &Ports,
    (request, version): (&ConsentKey, u64),
    key: &ConsentKey,
    token: &impl Serialize,
) -> Result<bool, McpError> {
    let value = sealed(ports, key, token)?;
    Ok(ports.consents.redeem(request, version, key, &value).await?)
}

/// Replaces a value that has not changed since this version. Returns whether it did.
pub async fn replace(
    ports: &Ports,
    key: &ConsentKey,
    value: &impl Serialize,
    version: u64,
) -> Result<bool, McpError> {
    let value = sealed(ports, key, value)?;
    Ok(ports.consents.replace(key, &value, version).await?)
}
