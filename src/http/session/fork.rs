//! Forks a session: a new session starts as a copy of it, up to a message.

use super::call::Call;
use crate::http::body;
use crate::http::response::{self, Response, ResponseExt};
use crate::ports::{
    StoreError,
    session_store::{Records, Select},
};
use crate::session::{Session, decode_record, fold};
use crate::types::{
    ErrorCode, EventKind, GeneratedId, Grants, Imported, Problem, SessionId, SessionMeta, SessionPermissions,
    Snapshot, SnapshotMeta,
    session::{SCHEMA, Totals},
};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, schemars::JsonSchema)]
#[schemars(rename = "NewFork")]
pub(in crate::http) struct ForkBody {
    /// The last message to copy; all messages if absent.
    at_message: Option<String>,
}

/// `POST /v1/sessions/{id}/fork`.
pub async fn fork(call: &Call<'_>) -> Result<Response, Problem> {
    let session = call.session()?;
    if session.state().meta.isolated {
        let detail = "a fork would not have the files of this isolated subagent; fork its parent instead";
        return Err(Problem::new(ErrorCode::SubagentSession, detail));
    }
    let body: ForkBody = body::json_or_empty(call.request)?;
    let until = match &body.at_message {
        Some(at) => last_of(session, at)?
            .ok_or_else(|| Problem::field("/at_message", "no such message in this session"))?,
        None => session.last_seq(),
    };
    let id = fork_id(call, &session.state().meta);
    let snapshot = {
        let state = session.state();
        let now = call.host.now();
        let own = &state.meta.permissions;
        // Grants are valid only in the session in which they were given.
        let mut permissions = SessionPermissions { yolo: false, grants: Grants::default(), ..own.clone() };
        permissions.ask_again(own);
        let meta = SessionMeta {
            id: id.clone(),
            permissions,
            parent: None,
            created_at: now,
            ..SessionMeta::clone(&state.meta)
        };
        let totals = Totals { turns: state.activity.totals.turns, updated_at: now, ..Totals::default() };
        let meta = SnapshotMeta { meta, totals };
        let tenant_policy = state.guidance.tenant_policy.clone();
        let forked_from = Some(call.session_id.clone());
        Snapshot { schema: SCHEMA, meta, forked_from, tenant_policy, records: None, task: None }
    };
    call.host.check_new_session(&call.principal.tenant, &call.principal.policy.limits).await?;
    let view = match call.host.export(session, until, &id, snapshot).await? {
        Imported::Session(view) => view,
        Imported::Taken => {
            let detail = "another session has the id of the fork; use another Idempotency-Key";
            return Err(Problem::new(ErrorCode::AlreadyExists, detail));
        }
        Imported::Missing | Imported::Canceled => return Err(Problem::internal("the fork was not created")),
    };
    let location = format!("/v1/sessions/{id}");
    Ok(response::bytes(StatusCode::CREATED, "application/json", view).with("location", &location))
}

/// Returns the id of the new session. With an Idempotency-Key it is derived from the key, so that a request
/// that is repeated after a crash creates no second fork.
fn fork_id(call: &Call<'_>, source: &SessionMeta) -> SessionId {
    let Some(key) = &call.key else { return call.host.new_id() };
    // The source may be deleted, and another user may create one with the same id.
    let name = json!(["fork", source.tenant, source.id, source.user, source.created_at, key.key]);
    SessionId::derive(&name.to_string())
}

/// Returns the number of the last record that contains or belongs to a message.
fn last_of(session: &Session, message: &str) -> Result<Option<u64>, StoreError> {
    let select = Select { kinds: fold::MESSAGE_KINDS, newest_first: true, ..Select::default() };
    for stored in Records::new(session.store(), select) {
        let stored = stored?;
        // Parsing is slower than searching, and most records do not contain the id.
        if stored.json.contains(message) {
            let record = decode_record(&stored.json)?;
            if message_of(&record.kind) == Some(message) {
                return Ok(Some(stored.seq));
            }
        }
    }
    Ok(None)
}

/// Returns the message that a record contains or belongs to.
fn message_of(kind: &EventKind) -> Option<&str> {
    match kind {
        EventKind::TurnStarted { message } | EventKind::MessageCompleted { message } => Some(&message.id),
        EventKind::ToolStarted { message, .. } => Some(message),
        _ => None,
    }
}
