//! The erasure of a user, for the operator and for the tenant itself.

use super::audit::{self, Origin};
use super::erasure;
use super::gateway::{Gateway, GatewayCall};
use super::response::{self, Response};
use super::tenants::existing_tenant;
use crate::types::{AuditAction, Problem, TenantId, UserId};
use http::StatusCode;
use serde_json::{Map, json};

/// `DELETE /v1/admin/tenants/{tenant}/users/{user}`.
pub(super) async fn delete(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let user = UserId::parse(call.params.get("user")).ok_or_else(|| Problem::not_found("user"))?;
    let tenant = existing_tenant(call.gateway, &call.tenant()).await?;
    erase(call.gateway, call, &tenant.id, &user).await
}

/// Erases a user, as far as one request can. The response is 204 when nothing is left.
pub(super) async fn erase<'a>(
    gateway: &Gateway,
    origin: impl Into<Origin<'a>>,
    tenant: &TenantId,
    user: &UserId,
) -> Result<Response, Problem> {
    gateway.last_move(tenant).await?;
    audit::record(origin, tenant, AuditAction::UserErased, user, Map::new()).await?;
    let Some(left) = erasure::erase_user(gateway, tenant, user).await? else {
        return Ok(response::empty(StatusCode::NO_CONTENT));
    };
    let detail = "repeat the request until its status is 204";
    response::json(StatusCode::ACCEPTED, &json!({ "status": "erasing", "left": left, "detail": detail }))
}
