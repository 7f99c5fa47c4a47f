//! The audit trail of a tenant, for the operator.

use super::gateway::{Gateway, GatewayCall, TenantCall};
use super::request::{Request, RequestExt};
use super::response::Response;
use super::{address, page};
use crate::ports::directory::Tenant;
use crate::types::{
    Actor, AuditAction, AuditEntry, AuditId, AuditQuery, Problem, RequestId, TenantId, Timestamp,
};
use serde_json::{Map, Value, json};

/// Maximum size of a row's details, in bytes of JSON. With more, they name the changed fields only.
const MAX_DETAILS: usize = 4 << 10;
/// The fields of a tenant that a request changes.
const FIELDS: [&str; 6] = ["name", "jwt", "shard", "spread", "permissions", "limits"];

/// The request that a row is about, and who sent it.
pub(super) struct Origin<'a> {
    gateway: &'a Gateway,
    request: &'a Request,
    request_id: &'a RequestId,
    actor: Actor,
}

impl<'a> From<&GatewayCall<'a>> for Origin<'a> {
    fn from(call: &GatewayCall<'a>) -> Self {
        let GatewayCall { gateway, request, request_id, .. } = call;
        Self { gateway, request, request_id, actor: Actor::Operator }
    }
}

impl<'a> From<&TenantCall<'a>> for Origin<'a> {
    fn from(call: &TenantCall<'a>) -> Self {
        let TenantCall { gateway, request, request_id, caller, .. } = call;
        let actor = Actor::Caller { user: caller.user.clone(), key: caller.key.clone() };
        Self { gateway, request, request_id, actor }
    }
}

/// Returns the row for what this request does.
pub(super) fn entry<'a>(
    origin: impl Into<Origin<'a>>,
    tenant: &TenantId,
    action: AuditAction,
    object: &str,
    details: Map<String, Value>,
) -> AuditEntry {
    let Origin { gateway, request, request_id, actor } = origin.into();
    AuditEntry {
        tenant: tenant.clone(),
        id: gateway.make_id(),
        at: gateway.clock.now(),
        actor,
        action,
        object: object.to_owned(),
        address: address::of(request),
        request_id: Some(request_id.clone()),
        details,
    }
}

/// Adds the row of a request whose work must not begin without it. Requests of a minute that only differ in their ids share
/// a row, so that a caller cannot fill the database, from which no row can be removed.
///
/// # Errors
/// If the directory fails.
pub(super) async fn record<'a>(
    origin: impl Into<Origin<'a>>,
    tenant: &TenantId,
    action: AuditAction,
    object: &str,
    details: Map<String, Value>,
) -> Result<(), Problem> {
    let origin = origin.into();
    let gateway = origin.gateway;
    let row = entry(origin, tenant, action, object, details);
    let at = row.at.start_of_minute();
    let what = json!([&row.actor, action, object, &row.details]).to_string();
    let row = AuditEntry { id: AuditId::of_repeated(at, &what), at, ..row };
    Ok(gateway.directory.append_audit(&[row]).await?)
}

/// Describes a change of a tenant: the names of the changed fields, and their values before and after. The name of the
/// tenant, its keys and their URL, which may contain secrets, are left out.
pub(super) fn changes(before: Option<&Tenant>, after: &Tenant) -> Map<String, Value> {
    let (before, after) = (json!(before), json!(after));
    let changed: Vec<_> = FIELDS.into_iter().filter(|field| before[*field] != after[*field]).collect();
    let named = Map::from_iter([("changed".to_owned(), json!(changed))]);
    let mut details = named.clone();
    for field in changed.into_iter().filter(|field| *field != "name") {
        let [before, after] = [&before, &after].map(|tenant| {
            let mut value = tenant[field].clone();
            if let Some(jwt) = value.as_object_mut().filter(|_| field == "jwt") {
                jwt.retain(|key, _| key != "jwks" && key != "jwks_url");
            }
            value
        });
        details.insert(field.to_owned(), json!({ "before": before, "after": after }));
    }
    if Value::Object(details.clone()).to_string().len() > MAX_DETAILS { named } else { details }
}

/// `GET /v1/admin/tenants/{tenant}/audit`, newest first. The tenant may be deleted.
pub(super) async fn list(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let (request, tenant) = (call.request, call.tenant());
    let limit = page::limit(request)?;
    let action = request.query("action").map(|name| name.parse::<AuditAction>()).transpose();
    let query = AuditQuery {
        from: time(request, "from")?,
        to: time(request, "to")?,
        action: action.map_err(|error| Problem::field("?action", error.to_string()))?,
        before: page::cursor(request)?,
        limit: limit + 1,
    };
    let found = call.gateway.directory.audit(&tenant, &query).await?;
    page::respond(found, limit, |entry| entry.id.clone(), |entry| json!(entry))
}

fn time(request: &Request, name: &str) -> Result<Option<Timestamp>, Problem> {
    let Some(text) = request.query(name) else { return Ok(None) };
    let time = Timestamp::parse(&text);
    let detail = "expected an RFC 3339 time such as 2026-11-20T12:00:00Z";
    time.map(Some).ok_or_else(|| Problem::field(format!("?{name}"), detail))
}
