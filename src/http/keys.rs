//! API keys, for the operator. The secret of a key is shown once and stored only as a hash.

use super::api_key::make_secret;
use super::gateway::GatewayCall;
use super::response::{self, Response};
use super::tenants::{check_name, existing_tenant};
use super::{audit, body, page, scopes};
use crate::ports::directory::ApiKey;
use crate::types::{AuditAction, KeyId, Problem, Scope, Scopes, Timestamp};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize, schemars::JsonSchema)]
pub(in crate::http) struct NewKey {
    /// The name, for people.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200))]
    name: Option<String>,
    /// The scopes; `chat` and `read` if absent.
    #[serde(default)]
    scopes: Option<Vec<Scope>>,
    /// When the key stops working; never if absent.
    #[serde(default)]
    expires_at: Option<Timestamp>,
}

/// `POST /v1/admin/tenants/{tenant}/keys`. The default scopes are `chat` and `read`.
pub(super) async fn create(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let gateway = call.gateway;
    let new: NewKey = body::json_or_empty(call.request)?;
    let now = gateway.clock.now();
    let scopes = match new.scopes {
        Some(named) => scopes::checked(named, "/scopes")?,
        None => Scopes::standard(),
    };
    if new.expires_at.is_some_and(|end| end <= now) {
        return Err(Problem::field("/expires_at", "lies in the past"));
    }
    let id = gateway.make_id::<KeyId>();
    let name = new.name.unwrap_or_else(|| id.to_string());
    check_name(&name)?;
    let (tenant, expires_at) = (call.tenant(), new.expires_at);
    let key = ApiKey { id, tenant, name, scopes, created_at: now, expires_at };
    let (secret, hash) = make_secret(&*gateway.entropy);
    let details = [("scopes", json!(key.scopes)), ("expires_at", json!(key.expires_at))];
    let details = details.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let audit = audit::entry(call, &key.tenant, AuditAction::KeyCreated, &key.id, details);
    if !gateway.directory.create_key(&key, &hash, &audit).await? {
        return Err(Problem::not_found("tenant"));
    }
    let mut view = view(&key);
    view["key"] = secret.into();
    response::json(StatusCode::CREATED, &view)
}

/// `GET /v1/admin/tenants/{tenant}/keys`, by id.
pub(super) async fn list(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let (gateway, tenant) = (call.gateway, &call.tenant());
    let limit = page::limit(call.request)?;
    let after: Option<KeyId> = page::cursor(call.request)?;
    existing_tenant(gateway, tenant).await?;
    let found = gateway.directory.keys(tenant, after.as_ref(), limit + 1).await?;
    page::respond(found, limit, |key| key.id.clone(), view)
}

/// `DELETE /v1/admin/tenants/{tenant}/keys/{key}`. Other isolates may accept the key for one more minute.
pub(super) async fn delete(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let (gateway, tenant, id): (_, _, KeyId) = (call.gateway, &call.tenant(), call.params.id("key"));
    let audit = audit::entry(call, tenant, AuditAction::KeyRevoked, &id, Map::new());
    if !gateway.directory.delete_key(&id, &audit).await? {
        return Err(Problem::not_found("key"));
    }
    gateway.cache.forget_tenant(tenant);
    Ok(response::empty(StatusCode::NO_CONTENT))
}

fn view(key: &ApiKey) -> Value {
    json!({
        "id": key.id,
        "tenant": key.tenant,
        "name": key.name,
        "scopes": key.scopes,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
    })
}
