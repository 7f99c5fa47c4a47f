//! The routes of the operator.

use super::operation::Operation;
use super::shapes::{CreatedKey, Erasing, Key, Move, ShownTenant, Tenant, UsageReport};
use super::tenant::{days, part};
use crate::http::keys::NewKey;
use crate::http::moves::NewMove;
use crate::http::page::Page;
use crate::http::tenants::{NewTenant, TenantPatch};
use crate::types::ErrorCode::AlreadyExists;
use crate::types::{AuditAction, AuditEntry};
use http::Method;
use serde_json::json;

pub(super) fn operations() -> Vec<Operation> {
    let mut all = tenants();
    all.extend(records());
    all.extend(keys());
    all
}

fn tenants() -> Vec<Operation> {
    let one = "/v1/admin/tenants/{tenant}";
    let user = "/v1/admin/tenants/{tenant}/users/{user}";
    vec![
        Operation::post("/v1/admin/tenants", "createTenant", "Creates a tenant.")
            .body::<NewTenant>(json!({ "id": "acme", "name": "Acme", "limits": { "concurrent_turns": 10 } }))
            .optional()
            .returns::<Tenant>(201, "The new tenant.")
            .fails(&[AlreadyExists]),
        Operation::get("/v1/admin/tenants", "listTenants", "Lists tenants by id.")
            .list()
            .returns::<Page<Tenant>>(200, "A page of tenants."),
        Operation::get(one, "getTenant", "Returns a tenant, or how far the erasure of a deleted one is.")
            .returns::<ShownTenant>(200, "The tenant."),
        Operation::new(Method::PATCH, one, "updateTenant", "Changes a tenant.")
            .text("`permissions` and `limits` are merged key by key (RFC 7396): `null` removes a key.")
            .body::<TenantPatch>(json!({ "name": "Acme Inc." }))
            .returns::<Tenant>(200, "The tenant."),
        Operation::delete(one, "deleteTenant", "Deletes a tenant, and erases its data in the background.")
            .returns_nothing(204, "The keys of the tenant no longer work."),
        Operation::delete(user, "eraseUserOfTenant", "Erases everything of a user.")
            .returns_nothing(204, "Everything is erased.")
            .returns::<Erasing>(202, "Something remains; repeat the request."),
    ]
}

fn records() -> Vec<Operation> {
    let time = || json!({ "type": "string", "format": "date-time" });
    let moves = "/v1/admin/tenants/{tenant}/moves";
    vec![
        part(Operation::get(
            "/v1/admin/tenants/{tenant}/export",
            "exportTenantAsOperator",
            "Returns a part of an export of a tenant, or of one user.",
        )),
        days(Operation::get(
            "/v1/admin/tenants/{tenant}/usage",
            "getTenantUsage",
            "Returns the usage of a tenant.",
        ))
        .returns::<UsageReport>(200, "Sums."),
        Operation::get(
            "/v1/admin/tenants/{tenant}/audit",
            "listAuditEntries",
            "Lists the audit trail, newest first.",
        )
        .query_as("from", "The earliest time.", time())
        .query_as("to", "The time before which the rows were written.", time())
        .query_of::<AuditAction>("action", "Only rows of this action.")
        .list()
        .returns::<Page<AuditEntry>>(200, "A page of rows."),
        Operation::post(moves, "moveTenant", "Starts, continues or cancels a move to another shard.")
            .body::<NewMove>(json!({ "to": "DB_1" }))
            .returns::<Move>(202, "The move.")
            .fails(&[AlreadyExists]),
        Operation::get(moves, "listMoves", "Lists the latest move of the tenant or of one of its users.")
            .returns::<Page<Move>>(200, "The move, if there is one."),
    ]
}

fn keys() -> Vec<Operation> {
    let all = "/v1/admin/tenants/{tenant}/keys";
    vec![
        Operation::post(all, "createKey", "Creates a key.")
            .body::<NewKey>(json!({ "name": "web", "scopes": ["chat", "read"] }))
            .optional()
            .returns::<CreatedKey>(201, "The new key, which is shown only once."),
        Operation::get(all, "listKeys", "Lists keys, without the keys themselves.")
            .list()
            .returns::<Page<Key>>(200, "A page of keys."),
        Operation::delete("/v1/admin/tenants/{tenant}/keys/{key}", "revokeKey", "Revokes a key.")
            .returns_nothing(204, "The key is revoked. All isolates refuse it after at most a minute."),
    ]
}
