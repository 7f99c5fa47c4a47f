//! Forking: a new session that starts as a copy of this one, up to a message.

use super::{Handler, SessionRequest};
use crate::http::{ApiResponse, body, idempotency};
use crate::ports::session_store::Select;
use crate::types::{
    EventKind, Grants, Imported, Problem, SessionMeta, SessionPermissions, Snapshot, Usage, id,
};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct ForkBody {
    at_message: Option<String>,
}

impl Handler {
    pub(super) async fn fork(&self, call: &SessionRequest) -> Result<ApiResponse, Problem> {
        let session = self.session(call)?;
        let body: ForkBody = body::json_or_empty(&call.request)?;
        let mut records = session.records(Select { limit: usize::MAX, ..Select::default() })?;
        if let Some(at) = body.at_message {
            let place = records.iter().rposition(|record| message_of(&record.kind) == Some(at.as_str()));
            let place =
                place.ok_or_else(|| Problem::field("/at_message", "no such message in this session"))?;
            records.truncate(place + 1);
        }
        let id = self.fork_id(call)?;
        let snapshot = {
            let state = session.state();
            let now = self.host.now();
            let own = &state.meta.permissions;
            // What somebody has allowed was allowed here.
            let mut permissions =
                SessionPermissions { yolo: false, grants: Grants::default(), ..own.clone() };
            permissions.ask_again(own);
            let meta = SessionMeta {
                id: id.clone(),
                usage: Usage::default(),
                cost_usd: None,
                permissions,
                parent: None,
                created_at: now,
                updated_at: now,
                ..state.meta.clone()
            };
            let tenant_rules = state.tenant_rules.clone();
            let forked_from = Some(call.session.clone());
            let records = Some(records);
            Snapshot { meta, forked_from, tenant_rules, records, task: None }
        };
        let tenant = &call.principal.tenant;
        let imported = self.host.peers().import(tenant, &id, snapshot).await;
        let imported = imported.map_err(|error| Problem::internal(error.to_string()))?;
        let Imported::Session(view) = imported else {
            return Err(Problem::internal("the copy was not created"));
        };
        Ok(ApiResponse::bytes(201, "application/json", view).with("location", &format!("/v1/sessions/{id}")))
    }

    /// The new session's id: under an Idempotency-Key it follows from the key, so that a repetition
    /// after a crash does not make a second one.
    fn fork_id(&self, call: &SessionRequest) -> Result<String, Problem> {
        let Some(key) = idempotency::key(&call.request)? else { return Ok(self.host.new_id(id::SESSION)) };
        let name = json!(["fork", call.principal.tenant, call.session, key]).to_string();
        Ok(id::derive(id::SESSION, &name))
    }
}

/// The message that a record holds or belongs to.
fn message_of(kind: &EventKind) -> Option<&str> {
    match kind {
        EventKind::TurnStarted { message } | EventKind::MessageCompleted { message } => Some(&message.id),
        EventKind::ToolStarted { message, .. } => Some(message),
        _ => None,
    }
}
