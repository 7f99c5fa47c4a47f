//! Forking: a new session that starts as a copy of this one, up to a message. Artifacts stay where they
//! are: what the copy's messages say of them can be read in the session that was copied only.

use super::{Handler, SessionRequest, broken};
use crate::agent::SessionHost;
use crate::http::{ApiResponse, body, idempotency};
use crate::ports::session_store::Select;
use crate::session::{Session, decode, encode};
use crate::types::{
    DenyReason, EventKind, Grants, Problem, Record, Rules, SessionMeta, SessionPermissions, StopReason,
    ToolOutcome, TurnEnd, TurnStatus, Usage, id,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::rc::Rc;

#[derive(Deserialize)]
struct ForkBody {
    at_message: Option<String>,
}

/// What goes from one session's object to the other's.
#[derive(Serialize, Deserialize)]
struct Snapshot {
    meta: SessionMeta,
    forked_from: String,
    tenant_rules: Rules,
    records: Vec<Record>,
}

impl Handler {
    pub(super) async fn fork(&self, call: &SessionRequest) -> Result<ApiResponse, Problem> {
        let session = self.session(call)?;
        let body: ForkBody = body::json_or_empty(&call.request)?;
        let mut records =
            session.records(Select { limit: usize::MAX, ..Select::default() }).map_err(broken)?;
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
                created_at: now,
                updated_at: now,
                ..state.meta.clone()
            };
            let tenant_rules = state.tenant_rules.clone();
            encode(&Snapshot { meta, forked_from: call.session.clone(), tenant_rules, records })
                .map_err(broken)?
        };
        let tenant = &call.principal.tenant;
        let view = self.peers.import(tenant, &id, snapshot).await.map_err(Problem::internal)?;
        Ok(ApiResponse::bytes(201, "application/json", view).with("location", &format!("/v1/sessions/{id}")))
    }

    /// The new session's id: under an Idempotency-Key it follows from the key, so that a repetition
    /// after a crash does not make a second one.
    fn fork_id(&self, call: &SessionRequest) -> Result<String, Problem> {
        let Some(key) = idempotency::key(&call.request)? else { return Ok(self.host.new_id(id::SESSION)) };
        let name = json!(["fork", call.principal.tenant, call.session, key]).to_string();
        let hash = idempotency::body_hash(name.as_bytes());
        Ok(format!("{}{}", id::SESSION, hash.get(..32).unwrap_or(&hash)))
    }
}

/// Makes this object's session from a snapshot. A session that is there already stays as it is.
///
/// # Errors
/// When the snapshot cannot be read or a store breaks.
pub async fn import(host: &Rc<SessionHost>, snapshot: &str) -> Result<String, Problem> {
    if let Some(session) = host.open().map_err(broken)? {
        return view(&session);
    }
    let Snapshot { meta, forked_from, tenant_rules, records } = decode(snapshot).map_err(broken)?;
    let session = host.blank(meta);
    let closing = closing(&records);
    let copied = records.last().map_or(0, |record| record.seq);
    session
        .commit(host.now(), |draft| {
            draft.created(Some(forked_from));
            draft.state.tenant_rules = tenant_rules;
            // What follows turns has followed these where they were said.
            for follow_up in host.agent().follow_ups() {
                draft.state.handovers.entry(follow_up.name().to_owned()).or_default().seen = copied;
            }
            let mut waiting = 0;
            for record in records {
                match &record.kind {
                    EventKind::TaskListUpdated { tasks } => draft.state.tasks.clone_from(tasks),
                    EventKind::FollowupQueued { count } => waiting = *count,
                    _ => {}
                }
                // The copy has its own first record; everything behind it keeps its number and
                // its time.
                if !matches!(record.kind, EventKind::SessionCreated { .. }) {
                    draft.copy(record);
                }
            }
            closing.into_iter().for_each(|(turn, kind)| draft.record(Some(&turn), kind));
            if waiting > 0 {
                draft.record(None, EventKind::FollowupQueued { count: 0 });
            }
        })
        .map_err(broken)?;
    host.adopt(&session);
    if host.list(&session).await.is_err() {
        host.wake_soon();
    }
    view(&session)
}

fn view(session: &Session) -> Result<String, Problem> {
    session.view().and_then(|view| encode(&view)).map_err(broken)
}

/// The message that a record holds or belongs to.
fn message_of(kind: &EventKind) -> Option<&str> {
    match kind {
        EventKind::TurnStarted { message } | EventKind::MessageCompleted { message } => Some(&message.id),
        EventKind::ToolStarted { message, .. } => Some(message),
        _ => None,
    }
}

/// What ends the turns that the copy cut through: each open call gets its outcome, each turn its end,
/// also those that waited. What they said waits on in the session that was copied.
fn closing(records: &[Record]) -> Vec<(String, EventKind)> {
    let mut open: Option<&str> = None;
    let mut queued: Vec<&str> = Vec::new();
    let mut calls: Vec<(&str, &str)> = Vec::new();
    for record in records {
        let turn = record.turn.as_deref();
        match &record.kind {
            EventKind::TurnQueued { .. } => queued.extend(turn),
            EventKind::TurnStarted { .. } => {
                queued.retain(|queued| Some(*queued) != turn);
                open = turn;
            }
            EventKind::ToolStarted { call_id, name, .. } => calls.push((call_id, name)),
            EventKind::ToolCompleted { call_id, .. } => calls.retain(|(open, _)| open != call_id),
            kind if kind.turn_end().is_some() => {
                queued.retain(|queued| Some(*queued) != turn);
                open = open.filter(|open| Some(*open) != turn);
            }
            _ => {}
        }
    }
    let mut closing: Vec<(String, EventKind)> = Vec::new();
    for turn in open.into_iter().chain(queued) {
        for (call_id, name) in calls.drain(..) {
            let outcome =
                ToolOutcome::denied(DenyReason::Canceled, "the session was forked before this call");
            let (call_id, name) = (call_id.to_owned(), name.to_owned());
            closing.push((turn.to_owned(), EventKind::completed(call_id, name, outcome)));
        }
        let end = TurnEnd::ended(TurnStatus::Canceled, StopReason::Canceled);
        closing.push((turn.to_owned(), EventKind::TurnCanceled(end)));
    }
    closing
}
