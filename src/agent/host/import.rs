//! Creates a session from a snapshot of another session: a fork or a child. Artifacts remain in the original;
//! the copy's messages refer to them, but only the original can read them.

use super::SessionHost;
use crate::session::{OpenError, Session};
use crate::types::{
    CallId, DenyReason, EventKind, Imported, Problem, Record, Snapshot, SnapshotMeta, StopReason,
    ToolOutcome, TurnEnd, TurnId, TurnStatus,
    session::{Account, SCHEMA},
};
use std::rc::Rc;

impl SessionHost {
    /// Creates this object's session from a snapshot. An existing session is not replaced; an existing child
    /// applies the rules of the snapshot.
    ///
    /// # Errors
    /// When the snapshot or the session has a newer version, another session has this id, or a store fails.
    pub async fn import(self: &Rc<Self>, snapshot: Snapshot) -> Result<Imported, Problem> {
        if snapshot.schema > SCHEMA {
            return Err(OpenError::Newer(snapshot.schema).into());
        }
        let is_child = snapshot.task.is_some();
        if is_child && self.is_canceled()? {
            return Ok(Imported::Canceled);
        }
        let session = match self.recover()? {
            Some(session) => {
                if session.state().meta.user != snapshot.meta.meta.user {
                    return Ok(Imported::Taken);
                }
                if is_child {
                    self.follow_rules(&session, &snapshot)?;
                }
                session
            }
            None if snapshot.records.is_none() => return Ok(Imported::Missing),
            None => {
                let session = self.make(snapshot)?;
                self.await_list_update().await;
                session
            }
        };
        let view = session.view().and_then(|view| crate::session::encode(&view))?;
        Ok(Imported::Session(view))
    }

    /// Creates the session. A child is stored together with the start of its task, so that no child exists whose
    /// task has not started.
    fn make(self: &Rc<Self>, snapshot: Snapshot) -> Result<Rc<Session>, Problem> {
        let Snapshot {
            meta: SnapshotMeta { meta, totals }, forked_from, tenant_policy, records, task, ..
        } = snapshot;
        let (records, ruled_at) = (records.unwrap_or_default(), totals.updated_at);
        let task =
            task.and_then(|(task, options)| self.task_turn(&meta, &tenant_policy.limits, task, options));
        let session = self.blank(meta);
        let closing = closing(&records);
        let copied = records.last().map_or(0, |record| record.seq);
        session.commit(self.now(), |draft| {
            draft.created(forked_from);
            draft.set_tenant_policy(tenant_policy);
            draft.set_ruled_at(ruled_at);
            draft.set_totals(totals);
            // The original session reports the usage of the copied turns.
            draft.set_account(Account { reported: copied, slot_until: None });
            // Follow-ups for the copied turns run in the original session.
            for follow_up in self.agent.follow_ups() {
                draft.follow_up_mut(follow_up.name()).seen = copied;
            }
            let mut queued = 0;
            for record in records {
                if let EventKind::FollowupQueued { count } = &record.kind {
                    queued = *count;
                }
                // The copy has its own first record; all others keep their numbers and times.
                if !matches!(record.kind, EventKind::SessionCreated { .. }) {
                    draft.copy(record);
                }
            }
            closing.into_iter().for_each(|(turn, kind)| draft.record(Some(&turn), kind));
            if queued > 0 {
                draft.record(None, EventKind::FollowupQueued { count: 0 });
            }
            if let Some((turn, message)) = task {
                draft.start_turn(turn, message);
            }
        })?;
        self.adopt_new(&session);
        Ok(session)
    }
}

/// Returns the records that end the copied turns that were running, waiting or queued: an outcome for each
/// open call and an end for each turn. These turns continue in the original session.
fn closing(records: &[Record]) -> Vec<(TurnId, EventKind)> {
    let mut open: Option<&TurnId> = None;
    let mut queued: Vec<&TurnId> = Vec::new();
    let mut calls: Vec<(&CallId, &str)> = Vec::new();
    for record in records {
        let turn = record.turn.as_ref();
        match &record.kind {
            EventKind::TurnQueued { .. } => queued.extend(turn),
            EventKind::TurnStarted { .. } => {
                queued.retain(|queued| Some(*queued) != turn);
                open = turn;
            }
            EventKind::ToolStarted { call_id, name, .. } => calls.push((call_id, name)),
            EventKind::ToolCompleted { call_id, .. } => calls.retain(|(open, _)| *open != call_id),
            kind if kind.turn_end().is_some() => {
                queued.retain(|queued| Some(*queued) != turn);
                open = open.filter(|open| Some(*open) != turn);
            }
            _ => {}
        }
    }
    let mut closing: Vec<(TurnId, EventKind)> = Vec::new();
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
