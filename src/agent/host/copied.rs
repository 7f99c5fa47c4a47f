//! What a copied log leaves open, and the state that it has led to.

use crate::ports::StoreError;
use crate::session::{Draft, encode, window::ContextState};
use crate::types::{
    CallId, DenyReason, EventKind, Record, StopReason, Task, TaskEnd, ToolOutcome, TurnEnd, TurnId,
    TurnStatus, Usage,
};
use std::collections::HashMap;

/// The fold of a copied log.
#[derive(Default)]
pub(super) struct Copied {
    /// Sequence number of the last record; 0 for an empty log.
    pub last_seq: u64,
    /// The state of the context window.
    pub context: ContextState,
    tasks: Vec<Task>,
    queue_length: usize,
    running: Option<TurnId>,
    queued: Vec<TurnId>,
    /// The open calls, with the numbers of their records and their names.
    calls: HashMap<CallId, (u64, String)>,
    /// The background tasks that have not ended.
    background: Vec<TaskEnd>,
}

impl Copied {
    /// Applies a record.
    pub fn fold(&mut self, record: Record) {
        self.last_seq = record.seq;
        self.context.fold(&record.kind);
        let turn = record.turn;
        match record.kind {
            EventKind::TurnQueued { .. } => self.queued.extend(turn),
            EventKind::TurnStarted { .. } => {
                self.queued.retain(|queued| Some(queued) != turn.as_ref());
                self.running = turn;
            }
            EventKind::ToolStarted { call_id, name, .. } => {
                self.calls.insert(call_id, (record.seq, name));
            }
            EventKind::ToolCompleted { call_id, .. } => {
                self.calls.remove(&call_id);
            }
            EventKind::FollowupQueued { count } => self.queue_length = count,
            EventKind::TaskListUpdated { tasks } => self.tasks = tasks,
            EventKind::TaskStarted { task, session, agent, label, .. } => {
                let (usage, cost_usd, error) = (Usage::default(), None, None);
                self.background.push(TaskEnd { task, session, agent, label, usage, cost_usd, error });
            }
            EventKind::TaskCompleted(end) | EventKind::TaskFailed(end) | EventKind::TaskCanceled(end) => {
                self.background.retain(|open| open.task != end.task);
            }
            kind if kind.turn_end().is_some() => {
                self.queued.retain(|queued| Some(queued) != turn.as_ref());
                self.running.take_if(|running| Some(&*running) == turn.as_ref());
            }
            _ => {}
        }
    }

    /// Drafts the state, and the records that end the copied turns that were running, waiting or queued: an outcome
    /// for each open call, and an end for each turn and each background task. These continue in the original session.
    ///
    /// # Errors
    /// If the state cannot be written as JSON.
    pub fn draft(self, draft: &mut Draft) -> Result<(), StoreError> {
        draft.set_copied(encode(&self.context)?, self.tasks);
        let mut calls: Vec<_> = self.calls.into_iter().collect();
        calls.sort_unstable_by_key(|(_, (seq, _))| *seq);
        for turn in self.running.into_iter().chain(self.queued) {
            for (call_id, (_, name)) in calls.drain(..) {
                let outcome =
                    ToolOutcome::denied(DenyReason::Canceled, "the session was forked before this call");
                draft.record(Some(&turn), EventKind::completed(call_id, name, outcome));
            }
            let end = TurnEnd::ended(TurnStatus::Canceled, StopReason::Canceled);
            draft.record(Some(&turn), EventKind::TurnCanceled(end));
        }
        self.background.into_iter().for_each(|end| draft.record(None, EventKind::TaskCanceled(end)));
        if self.queue_length > 0 {
            draft.record(None, EventKind::FollowupQueued { count: 0 });
        }
        Ok(())
    }
}
