//! Lists of the gateway: a tenant's sessions, and the models. Also the check of health.

use super::gateway::{GatewayCall, TenantCall};
use super::page;
use super::request::RequestExt;
use super::response::{self, Response, ResponseExt};
use crate::ports::directory::{SessionEntry, SessionKinds};
use crate::types::{AgentId, Problem, SessionId, SessionStatus, Timestamp};
use http::StatusCode;
use serde_json::{Value, json};

/// The document that [`super::openapi`] builds.
const OPENAPI: &str = include_str!("../../docs/openapi.json");

/// `GET /healthz`.
pub(super) async fn health(_call: &GatewayCall<'_>) -> Result<Response, Problem> {
    response::json(StatusCode::OK, &json!({ "status": "ok" }))
}

/// `GET /openapi.json`.
pub(super) async fn openapi(_call: &GatewayCall<'_>) -> Result<Response, Problem> {
    // Other origins may read it, because it is the same for all callers.
    Ok(response::bytes(StatusCode::OK, "application/json", OPENAPI)
        .with("cache-control", "public, max-age=3600")
        .with("access-control-allow-origin", "*"))
}

/// `GET /v1/sessions`, newest first. A token or ticket lists the sessions of its own user only.
pub(super) async fn sessions(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let limit = page::limit(call.request)?;
    let before: Option<(Timestamp, SessionId)> = page::cursor(call.request)?;
    let user = call.listed_user();
    let agent = call.request.query("agent").map(AgentId::from);
    let before = before.as_ref().map(|(at, id)| (*at, id));
    let directory = &call.gateway.directory;
    let found = directory
        .sessions(
            SessionKinds::Conversations,
            &call.caller.tenant,
            user.as_ref(),
            agent.as_ref(),
            before,
            limit + 1,
        )
        .await?;
    page::respond(found, limit, |entry| (entry.created_at, entry.id.clone()), view)
}

/// `GET /v1/models`, in the format of OpenAI's API: the agents, and the models that the tenant may use.
pub(super) async fn models(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let models = model_entries(call).await?;
    response::json(StatusCode::OK, &json!({ "object": "list", "data": models, "next_cursor": null }))
}

/// `GET /v1/models/{model}`.
pub(super) async fn model(call: &TenantCall<'_>) -> Result<Response, Problem> {
    let id = call.params.get("model");
    let found = model_entries(call).await?.into_iter().find(|entry| entry["id"] == id);
    response::json(StatusCode::OK, &found.ok_or_else(|| Problem::not_found("model"))?)
}

async fn model_entries(call: &TenantCall<'_>) -> Result<Vec<Value>, Problem> {
    let (config, limits) = (&call.gateway.config, &call.caller.policy.limits);
    let entry =
        |id: &str, owner: &str| json!({ "id": id, "object": "model", "created": 0, "owned_by": owner });
    let models = config.models.iter().filter(|id| limits.allow_model(id));
    let models = models.map(move |id| entry(id, id.split('/').next().unwrap_or_default()));
    let agents = call.gateway.agents.list(&call.caller.tenant).await?;
    Ok(agents.iter().map(|agent| entry(&agent.id, "edge-harness")).chain(models).collect())
}

/// Returns an entry with the parent of a subagent's session.
pub(super) fn view_with_parent(entry: &SessionEntry) -> Value {
    let mut view = view(entry);
    if let Some(parent) = &entry.parent {
        view["parent"] = json!(parent);
    }
    view
}

fn view(entry: &SessionEntry) -> Value {
    json!({
        "id": entry.id,
        "user": entry.user,
        "agent": entry.agent,
        "title": entry.title,
        "status": match entry {
            SessionEntry { pending: 1.., .. } => SessionStatus::Waiting,
            SessionEntry { running: true, .. } => SessionStatus::Running,
            _ => SessionStatus::Idle,
        },
        "pending": entry.pending,
        "created_at": entry.created_at,
        "updated_at": entry.updated_at,
    })
}
