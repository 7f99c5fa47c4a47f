//! API keys, for the operator. A key's secret is shown once and stored only as a hash.

use super::admin::check_name;
use super::auth::make_key;
use super::failure::Failure;
use super::front::Front;
use super::{ApiRequest, ApiResponse, body, page};
use crate::ports::directory::ApiKey;
use crate::types::{Problem, Scope, Scopes, TenantId, Timestamp, id};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct NewKey {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    scopes: Option<Vec<Scope>>,
    #[serde(default)]
    expires_at: Option<Timestamp>,
}

impl Front {
    /// `POST /v1/admin/tenants/{tenant}/keys`: talking and reading, unless told otherwise.
    pub(super) async fn create_key(
        &self,
        tenant: &TenantId,
        request: &ApiRequest,
    ) -> Result<ApiResponse, Failure> {
        let new: NewKey = body::json_or_empty(request)?;
        let now = self.clock.now();
        let mut scopes = new.scopes.unwrap_or_else(|| vec![Scope::Chat, Scope::Read]);
        scopes.sort_by_key(|scope| *scope as u8);
        scopes.dedup();
        if scopes.is_empty() {
            return Err(Problem::field("/scopes", "expected some of chat, read, admin").into());
        }
        if new.expires_at.is_some_and(|end| end <= now) {
            return Err(Problem::field("/expires_at", "lies in the past").into());
        }
        let id = self.make_id(id::KEY);
        let name = new.name.unwrap_or_else(|| id.clone());
        check_name(&name)?;
        let (tenant, expires_at) = (tenant.to_owned(), new.expires_at);
        let key = ApiKey { id, tenant, name, scopes: Scopes(scopes), created_at: now, expires_at };
        let (secret, hash) = make_key(&*self.entropy);
        if !self.directory.create_key(&key, &hash).await? {
            return Err(Problem::not_found("tenant").into());
        }
        let mut view = view(&key);
        view["key"] = secret.into();
        Ok(ApiResponse::json(201, &view)?)
    }

    /// `GET /v1/admin/tenants/{tenant}/keys`, by id.
    pub(super) async fn list_keys(
        &self,
        tenant: &TenantId,
        request: &ApiRequest,
    ) -> Result<ApiResponse, Failure> {
        let limit = page::limit(request)?;
        let after: Option<String> = page::cursor(request)?;
        self.existing_tenant(tenant).await?;
        let found = self.directory.keys(tenant, after.as_deref().unwrap_or_default(), limit + 1).await?;
        Ok(page::answer(found, limit, |key| key.id.clone(), view)?)
    }

    /// `DELETE /v1/admin/tenants/{tenant}/keys/{key}`. Other isolates may remember it for a minute.
    pub(super) async fn delete_key(&self, tenant: &TenantId, id: &str) -> Result<ApiResponse, Failure> {
        if !self.directory.delete_key(tenant, id).await? {
            return Err(Problem::not_found("key").into());
        }
        self.cache.forget_tenant(tenant);
        Ok(ApiResponse::empty(204))
    }
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
