//! The session as a resource: creates and reads it.

use super::call::Call;
use super::checks;
use super::permissions::patched;
use crate::http::response::{self, Response, ResponseExt};
use crate::http::{body, page};
use crate::session::Session;
use crate::types::{BudgetPatch, Problem, SessionPermissions};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize, schemars::JsonSchema)]
pub(in crate::http) struct NewSession {
    /// The id of the session; a new one if absent.
    #[allow(dead_code, reason = "the gateway reads it, because it names the session's object")]
    #[schemars(length(min = 1, max = 128))]
    id: Option<String>,
    /// The agent.
    agent: Option<String>,
    /// The user, if you authenticate with a key.
    user: Option<String>,
    /// The title; taken from the first message if absent.
    #[schemars(length(max = 200))]
    title: Option<String>,
    /// The mode that the session starts in.
    mode: Option<String>,
    /// The model, as `provider/model`.
    model: Option<String>,
    /// Data of the caller, returned unchanged.
    metadata: Option<Map<String, Value>>,
    /// Limits of each turn.
    #[serde(default)]
    budget: Option<BudgetPatch>,
    /// The permission rules of the session.
    #[schemars(with = "Option<SessionPermissions>")]
    permissions: Option<Value>,
}

/// `POST /v1/sessions`. Responds with the existing session if there is one.
pub async fn create(call: &Call<'_>) -> Result<Response, Problem> {
    let host = call.host;
    let new: NewSession = body::json_or_empty(call.request)?;
    let user = call.named_user(new.user)?;
    if let Some(session) = call.find(user.as_deref())? {
        return shown(StatusCode::OK, session);
    }
    let mut meta = call.new_meta(user, new.agent)?;
    meta.title = checks::title(new.title)?;
    if let Some(mode) = &new.mode {
        meta.begin_in(host.agent().modes().find(mode)?, &host.tenant_limits());
    }
    meta.model = checks::model(host, new.model.or(meta.model))?;
    meta.title_pinned = meta.title.is_some();
    meta.metadata = checks::object("/metadata", new.metadata.unwrap_or_default())?;
    let budget = new.budget.unwrap_or_default();
    checks::budget(host, &budget)?;
    meta.budget = meta.budget.patched(&budget);
    checks::priced(host, meta.budget.max_cost_usd, meta.model.as_deref(), "/budget/max_cost_usd")?;
    meta.permissions = patched(&meta.permissions, new.permissions.unwrap_or_default())?;
    let session = host.create(meta)?;
    // A new session is in the list when the client gets the response, unless the list cannot be reached.
    host.await_list_update().await;
    let location = format!("/v1/sessions/{}", call.session_id);
    Ok(shown(StatusCode::CREATED, &session)?.with("location", &location))
}

/// `GET /v1/sessions/{id}`.
pub async fn show(call: &Call<'_>) -> Result<Response, Problem> {
    shown(StatusCode::OK, call.session()?)
}

/// `GET /v1/sessions/{id}/view`: everything that a user interface displays.
pub async fn view(call: &Call<'_>) -> Result<Response, Problem> {
    let view = call.session()?.display(|call_id| call.host.has_begun(call_id))?;
    response::json(StatusCode::OK, &view)
}

/// `GET /v1/sessions/{id}/messages`.
pub async fn messages(call: &Call<'_>) -> Result<Response, Problem> {
    let session = call.session()?;
    let limit = page::limit(call.request)?;
    let after: Option<u64> = page::cursor(call.request)?;
    let (messages, next) = session.conversation(after.unwrap_or(0), limit)?;
    let next = next.map(|next| page::encode(&next)).transpose()?;
    response::json(StatusCode::OK, &page::Page { data: messages, next_cursor: next })
}

/// `GET /v1/sessions/{id}/turns/{turn}`.
pub async fn turn(call: &Call<'_>) -> Result<Response, Problem> {
    match call.session()?.turn(&call.params.id("turn"))? {
        Some(turn) => response::json(StatusCode::OK, &turn),
        None => Err(Problem::not_found("turn")),
    }
}

/// Builds the response with a session as clients see it.
pub(super) fn shown(status: StatusCode, session: &Session) -> Result<Response, Problem> {
    response::json(status, &session.view()?)
}
