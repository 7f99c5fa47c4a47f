//! The ReAct loop as a state machine over [`TurnState`]: serializable, without I/O.
//!
//! [`TurnMachine::next`] says what to do; the driver does it and feeds back what came of it. The
//! state row holds the machine, so a turn goes on from its last commit on any machine.

use crate::types::{
    Budget, CallState, CallStatus, StopReason, Timestamp, ToolCall, TurnError, TurnPhase, TurnState, Usage,
};

/// Restarts without a finished step in between before a turn is given up.
pub const MAX_ATTEMPTS: u32 = 6;

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Call the model.
    CallModel,
    /// Run these calls, which have no outcome yet, in this order.
    CallTools(Vec<CallState>),
    /// End the turn.
    Done {
        /// Why.
        reason: StopReason,
        /// What failed, where something did.
        error: Option<TurnError>,
    },
}

/// The machine: borrowed from the state, changed in place.
pub struct TurnMachine<'a>(pub &'a mut TurnState);

impl TurnMachine<'_> {
    /// A turn that starts now.
    pub fn start(id: String, now: Timestamp, budget: Budget, tools: Option<Vec<String>>) -> TurnState {
        TurnState {
            id,
            epoch: 1,
            attempts: 0,
            started_at: now,
            deadline: now.plus(u64::from(budget.timeout_s) * 1_000),
            budget,
            steps: 0,
            tool_calls: 0,
            usage: Usage::default(),
            tools,
            phase: TurnPhase::Model,
        }
    }

    /// What to do now.
    pub fn next(turn: &TurnState, now: Timestamp) -> Step {
        let done = |reason| Step::Done { reason, error: None };
        match &turn.phase {
            TurnPhase::Done { reason, error } => Step::Done { reason: *reason, error: error.clone() },
            _ if now >= turn.deadline => done(StopReason::Deadline),
            TurnPhase::Tools { calls } => {
                let open: Vec<CallState> =
                    calls.iter().filter(|c| c.status != CallStatus::Done).cloned().collect();
                Step::CallTools(open)
            }
            TurnPhase::Model if turn.budget.max_tokens.is_some_and(|max| turn.usage.total_tokens >= max) => {
                done(StopReason::Cost)
            }
            TurnPhase::Model if turn.steps >= turn.budget.max_steps => done(StopReason::MaxSteps),
            TurnPhase::Model => Step::CallModel,
        }
    }

    /// The model answered. Without calls the turn is done; with calls they are pending.
    pub fn model_answered(&mut self, usage: Usage, calls: &[ToolCall]) {
        let turn = &mut *self.0;
        turn.steps += 1;
        turn.attempts = 0;
        turn.usage += usage;
        turn.tool_calls = turn.tool_calls.saturating_add(u32::try_from(calls.len()).unwrap_or(u32::MAX));
        turn.phase = if calls.is_empty() {
            TurnPhase::Done { reason: StopReason::End, error: None }
        } else {
            let pending =
                |call: &ToolCall| CallState { call_id: call.call_id.clone(), status: CallStatus::Pending };
            TurnPhase::Tools { calls: calls.iter().map(pending).collect() }
        };
    }

    /// The provider wants its unfinished answer sent back: the same step goes on.
    pub fn model_paused(&mut self, usage: Usage) {
        self.0.steps += 1;
        self.0.usage += usage;
    }

    /// Whether the call, the `n`th of its step (from 0), is within the turn's budget.
    pub fn within_budget(turn: &TurnState, n: usize) -> bool {
        let TurnPhase::Tools { calls } = &turn.phase else { return false };
        let before = u64::from(turn.tool_calls).saturating_sub(calls.len() as u64);
        before + (n as u64) < u64::from(turn.budget.max_tool_calls)
    }

    /// Calls begin: from here on a crash leaves their outcome unknown.
    pub fn calls_begun(&mut self, begun: &[&str]) {
        self.set(begun, CallStatus::Begun);
    }

    /// Calls have their outcome. When all have, the model is next; unless all were over the budget,
    /// because the model was told so before and asked for more all the same.
    pub fn calls_done(&mut self, done: &[&str]) {
        self.set(done, CallStatus::Done);
        let TurnPhase::Tools { calls } = &self.0.phase else { return };
        if calls.iter().all(|call| call.status == CallStatus::Done) {
            let spent = !Self::within_budget(self.0, 0);
            self.0.attempts = 0;
            self.0.phase = if spent {
                TurnPhase::Done { reason: StopReason::MaxToolCalls, error: None }
            } else {
                TurnPhase::Model
            };
        }
    }

    /// The turn fails.
    pub fn fail(&mut self, error: TurnError) {
        self.0.phase = TurnPhase::Done { reason: StopReason::Error, error: Some(error) };
    }

    /// The turn starts again after its machine went away. Gives up after [`MAX_ATTEMPTS`].
    pub fn resume(&mut self) {
        self.0.epoch += 1;
        self.0.attempts += 1;
        if self.0.attempts > MAX_ATTEMPTS && !matches!(self.0.phase, TurnPhase::Done { .. }) {
            self.fail(TurnError {
                code: "recovery_exhausted".into(),
                message: format!("the turn was interrupted {MAX_ATTEMPTS} times in the same step"),
                retryable: true,
            });
        }
    }

    fn set(&mut self, ids: &[&str], status: CallStatus) {
        if let TurnPhase::Tools { calls } = &mut self.0.phase {
            for call in calls.iter_mut().filter(|call| ids.contains(&call.call_id.as_str())) {
                call.status = status;
            }
        }
    }
}
