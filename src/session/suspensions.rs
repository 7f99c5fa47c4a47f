//! Suspended calls of a session. Each has its own row, which outlives the call, so that a repeated or late
//! decision gets the result of the first one.

use super::{DocumentKey, Session, decode, encode};
use crate::ports::{StoreError, session_store::Select};
use crate::types::{
    CallId, CallStatus, ChildStatus, ChildWait, Decider, EventKind, Pending, Resolution, SessionId,
    Suspension, Timestamp, TurnId, TurnPhase, TurnStatus, WaitKind,
};
use serde_json::Value;

/// The two rows that a call may have: first the approval, then the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// The call waits or waited for approval.
    Approval,
    /// The call waits or waited for an answer: of a person, the client, or a child.
    Answer,
}

impl Row {
    const ALL: [Row; 2] = [Row::Approval, Row::Answer];

    /// Returns the row for suspensions of this kind.
    pub fn of(kind: WaitKind) -> Self {
        match kind {
            WaitKind::Approval => Self::Approval,
            WaitKind::Question
            | WaitKind::Plan
            | WaitKind::External
            | WaitKind::Subagent
            | WaitKind::Auth => Self::Answer,
        }
    }

    pub(super) fn key(self, call_id: &CallId) -> DocumentKey {
        match self {
            Self::Approval => DocumentKey::Approval(call_id.clone()),
            Self::Answer => DocumentKey::Answer(call_id.clone()),
        }
    }
}

/// The combined result of a call's suspensions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolved {
    /// As whom the call was approved, if it was.
    pub approved: Option<Decider>,
    /// The answer.
    pub answer: Option<Value>,
    /// The payload that was shown to the person or client that answered.
    pub shown: Value,
    /// What the call needs to continue, if it was suspended while it ran.
    pub progress: Option<Value>,
    /// Why the call must not run.
    pub refusal: Option<Resolution>,
    /// The arguments that were approved or answered. The call runs with exactly these.
    pub args: Option<Value>,
}

/// Returns the row of a suspension: its key and its JSON.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn row(suspension: &Suspension) -> Result<(DocumentKey, String), StoreError> {
    Ok((Row::of(suspension.wait.kind()).key(&suspension.call_id), encode(suspension)?))
}

impl Session {
    /// Returns a suspension of a call, open or resolved.
    ///
    /// # Errors
    /// When the store fails or holds an unreadable row.
    pub fn suspension(&self, row: Row, call_id: &CallId) -> Result<Option<Suspension>, StoreError> {
        self.document(&row.key(call_id))?.as_deref().map(decode).transpose()
    }

    /// Returns the combined result of the suspensions of a call of the current turn.
    ///
    /// # Errors
    /// When the store fails.
    pub fn resolved(&self, call_id: &CallId) -> Result<Resolved, StoreError> {
        let mut resolved = Resolved::default();
        for row in Row::ALL {
            let Some(suspension) = self.suspension(row, call_id)? else { continue };
            if !self.is_current_turn(&suspension.turn) {
                continue;
            }
            match suspension.resolution {
                None => continue,
                Some(Resolution::Approved { args, .. }) => {
                    resolved.approved = Some(suspension.by);
                    resolved.args = Some(args.unwrap_or(suspension.args));
                }
                Some(Resolution::Answered { answer }) => {
                    resolved.answer = Some(answer);
                    resolved.shown = suspension.wait.payload();
                    resolved.progress = suspension.progress;
                    // If rules have changed, a call that was suspended while it ran may be approved after that.
                    resolved.args.get_or_insert(suspension.args);
                }
                Some(refusal) => resolved.refusal = Some(refusal),
            }
        }
        Ok(resolved)
    }

    /// Returns the open suspensions, in the order in which the model made the calls.
    ///
    /// # Errors
    /// When the store fails.
    pub fn suspensions(&self) -> Result<Vec<Suspension>, StoreError> {
        let mut open = Vec::new();
        for call_id in self.waiting_calls() {
            for row in Row::ALL {
                let suspension = self.suspension(row, &call_id)?;
                open.extend(suspension.filter(|suspension| self.is_open(suspension)));
            }
        }
        Ok(open)
    }

    /// Returns the suspensions that wait for a person, as clients see them.
    ///
    /// # Errors
    /// When the store fails.
    pub fn pending(&self) -> Result<Vec<Pending>, StoreError> {
        let suspensions = self.suspensions()?;
        Ok(suspensions.iter().filter(|own| !own.is_delegated()).map(Suspension::pending).collect())
    }

    /// Returns whether a suspension belongs to the current turn and is not resolved.
    pub fn is_open(&self, suspension: &Suspension) -> bool {
        suspension.resolution.is_none() && self.is_current_turn(&suspension.turn)
    }

    /// Returns the open suspension of a call that waits for the child in `session`.
    ///
    /// # Errors
    /// When the store fails.
    pub fn child_suspension(
        &self,
        call_id: &CallId,
        session: &SessionId,
    ) -> Result<Option<Suspension>, StoreError> {
        let found = self.suspension(Row::Answer, call_id)?.filter(|suspension| self.is_open(suspension));
        Ok(found.filter(|found| found.child().is_some_and(|child| child.task.session == *session)))
    }

    /// Returns the ids of the suspended calls.
    pub fn waiting_calls(&self) -> Vec<CallId> {
        match self.state().activity.turn.as_ref().map(|turn| &turn.phase) {
            Some(TurnPhase::Tools { calls }) => {
                let waiting = calls.iter().filter(|call| call.status == CallStatus::Waiting);
                waiting.map(|call| call.call_id.clone()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the calls of the current step without an outcome that a client has claimed, and so may have run.
    ///
    /// # Errors
    /// When the store fails.
    pub fn claimed_calls(&self) -> Result<Vec<CallId>, StoreError> {
        let mut claimed = Vec::new();
        let state = self.state();
        let Some(TurnPhase::Tools { calls }) = state.activity.turn.as_ref().map(|turn| &turn.phase) else {
            return Ok(claimed);
        };
        for call in calls.iter().filter(|call| call.asked && call.status != CallStatus::Done) {
            let own = self.suspension(Row::Answer, &call.call_id)?;
            if own.is_some_and(|own| own.claim.is_some() && self.is_current_turn(&own.turn)) {
                claimed.push(call.call_id.clone());
            }
        }
        Ok(claimed)
    }

    /// Returns whether a call with this id was ever suspended, in any turn.
    ///
    /// # Errors
    /// When the store fails.
    pub fn was_suspended(&self, call_id: &CallId) -> Result<bool, StoreError> {
        for row in Row::ALL {
            if self.document(&row.key(call_id))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns how often a turn has waited.
    ///
    /// # Errors
    /// When the store fails.
    pub fn waits(&self, turn: &TurnId) -> Result<u32, StoreError> {
        let select = Select { turn: Some(turn), kinds: &["turn.waiting"], ..Select::default() };
        self.records(select).try_fold(0, |waits, record| record.map(|_| waits + 1))
    }

    /// Returns how often a turn had waited when a call was decided or answered; `None` if it was not.
    ///
    /// # Errors
    /// When the store fails.
    pub fn waits_before(&self, turn: &TurnId, call: &CallId) -> Result<Option<u32>, StoreError> {
        let kinds = &["turn.waiting", "approval.decided", "answer.given"];
        let mut waits = 0;
        for record in self.records(Select { turn: Some(turn), kinds, ..Select::default() }) {
            match record?.kind {
                EventKind::TurnWaiting { .. } => waits += 1,
                EventKind::ApprovalDecided { call_id, .. } | EventKind::AnswerGiven { call_id, .. }
                    if call_id == *call =>
                {
                    return Ok(Some(waits));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Returns when a turn last began to wait; `None` if it never did.
    ///
    /// # Errors
    /// When the store fails.
    pub fn waiting_since(&self, turn: &TurnId) -> Result<Option<Timestamp>, StoreError> {
        let kinds = &["turn.waiting"];
        let select = Select { turn: Some(turn), kinds, newest_first: true, ..Select::default() };
        Ok(self.records(select).next().transpose()?.map(|record| record.at))
    }

    /// Returns the decisions and answers since a turn last began to wait.
    ///
    /// # Errors
    /// When the store fails.
    pub fn resolved_since_wait(&self, turn: &TurnId) -> Result<Vec<EventKind>, StoreError> {
        let kinds = &["turn.waiting", "approval.decided", "answer.given"];
        let select = Select { turn: Some(turn), kinds, newest_first: true, ..Select::default() };
        let kinds = self.records(select).map(|record| record.map(|record| record.kind));
        kinds.take_while(|kind| !matches!(kind, Ok(EventKind::TurnWaiting { .. }))).collect()
    }

    /// Returns whether a turn waits for a person or a client, and not only for running subagents.
    pub fn is_waiting(&self, turn: &TurnId) -> bool {
        let state = self.state();
        state.activity.turn.as_ref().is_some_and(|own| own.id == *turn && own.waits_for_people())
    }

    /// Returns the current turn, running or waiting.
    pub fn current_turn(&self) -> Option<TurnId> {
        self.state().activity.turn.as_ref().map(|turn| turn.id.clone())
    }

    /// Returns whether this is the current turn, running or waiting.
    pub fn is_current_turn(&self, turn: &TurnId) -> bool {
        self.state().activity.turn.as_ref().is_some_and(|own| own.id == *turn)
    }
}

/// Returns the record of the end of a child's task.
pub fn child_completed(
    call_id: &CallId,
    child: &ChildWait,
    status: TurnStatus,
    reported: Option<&ChildStatus>,
) -> EventKind {
    let (usage, cost_usd) =
        reported.map_or_else(Default::default, |reported| (reported.usage, reported.cost_usd));
    let (call_id, session, agent) = (call_id.clone(), child.task.session.clone(), child.task.agent.clone());
    EventKind::SubagentCompleted { call_id, session, agent, status, usage, cost_usd }
}
