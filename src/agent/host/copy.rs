//! Copies: what goes from one session's object to another's, and how a session is made from it. Artifacts stay
//! where they are: what the copy's messages say of them can be read in the session that was copied only.

use super::SessionHost;
use crate::session::{Session, decode, encode};
use crate::types::{
    DenyReason, EventKind, Problem, Record, Rules, SessionMeta, StopReason, ToolOutcome, TurnEnd,
    TurnOptions, TurnStatus,
};
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// What goes from one session's object to the other's.
#[derive(Serialize, Deserialize)]
pub struct Snapshot {
    /// What the new session is.
    pub meta: SessionMeta,
    /// The session that it begins as a copy of.
    #[serde(default)]
    pub forked_from: Option<String>,
    /// The tenant's rules.
    pub tenant_rules: Rules,
    /// The copied log; not for one that should be there already.
    pub records: Option<Vec<Record>>,
    /// What it is to do at once, where it is a subagent's.
    #[serde(default)]
    pub task: Option<(String, TurnOptions)>,
}

impl SessionHost {
    /// Makes this object's session from a snapshot, and returns it as clients see it. A session that is there
    /// already stays as it is, unless it is a subagent's: that goes by the rules of the snapshot from then on. One that
    /// is not there and cannot be made without its log is nothing, an empty text.
    ///
    /// # Errors
    /// When the snapshot cannot be read, another session has the place, or a store breaks.
    pub async fn import(self: &Rc<Self>, snapshot: &str) -> Result<String, Problem> {
        let mut snapshot: Snapshot = decode(snapshot)?;
        let task = snapshot.task.take();
        let (session, is_new) = match self.open()? {
            Some(session) => {
                if task.is_some() {
                    self.follow_rules(&session, snapshot)?;
                }
                (session, false)
            }
            None if snapshot.records.is_none() => return Ok(String::new()),
            None => (self.make(snapshot)?, true),
        };
        if let Some((task, options)) = task {
            self.take_up(&session, task, options)?;
        }
        if is_new && self.list(&session).await.is_err() {
            self.wake_soon();
        }
        session.view().and_then(|view| encode(&view)).map_err(Problem::from)
    }

    fn make(self: &Rc<Self>, snapshot: Snapshot) -> Result<Rc<Session>, Problem> {
        let Snapshot { meta, forked_from, tenant_rules, records, .. } = snapshot;
        let (records, ruled_at) = (records.unwrap_or_default(), meta.updated_at);
        let session = self.blank(meta);
        let closing = closing(&records);
        let copied = records.last().map_or(0, |record| record.seq);
        session.commit(self.now(), |draft| {
            draft.created(forked_from);
            draft.state.tenant_rules = tenant_rules;
            if draft.state.meta.parent.is_some() {
                draft.state.sent_rules = draft.state.tenant_rules.clone();
                draft.state.ruled_at = ruled_at;
            }
            // What follows turns has followed these where they were said.
            for follow_up in self.agent.follow_ups() {
                draft.state.follow_ups.entry(follow_up.name().to_owned()).or_default().seen = copied;
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
        })?;
        self.adopt(&session);
        Ok(session)
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
