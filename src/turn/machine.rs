//! The ReAct loop as a state machine over [`TurnState`]: serializable, without I/O.
//!
//! [`TurnMachine::next`] returns the next step; the driver executes it and reports the result. The state is
//! part of the session document, so another isolate can continue the turn from its last commit.

mod subagents;

use crate::types::{
    Budget, CallId, CallState, CallStatus, EventKind, Price, StopReason, Timestamp, ToolCall, TurnError,
    TurnId, TurnOptions, TurnPhase, TurnState, Usage,
};
use std::time::Duration;

/// Maximum number of restarts within one step before the turn fails.
pub const MAX_ATTEMPTS: u32 = 6;

/// When less time than this is left, no tool starts and the model is called for its final response.
pub const MIN_REMAINING: Duration = Duration::from_secs(1);

/// How many responses may violate the caller's schema before the turn fails.
pub const MAX_REPAIRS: u32 = 1;

/// How many responses in a row may be empty before the turn fails.
pub const MAX_EMPTY_RESPONSES: u32 = 2;

/// The next step of a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Call the model.
    CallModel,
    /// Run these calls, which have no outcome yet, in this order.
    CallTools(Vec<CallState>),
    /// Wait for open suspensions to be resolved.
    Wait,
    /// Ask the model for a self-critique of the step that ended.
    Reflect,
    /// Call the model a last time, without tools, for a closing response.
    Summarize {
        /// Why the turn ends.
        reason: StopReason,
    },
    /// End the turn.
    Done {
        /// End the turn.
        reason: StopReason,
        /// The reason.
        error: Option<TurnError>,
    },
}

/// What a model call consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PricedUsage {
    /// Tokens consumed.
    pub usage: Usage,
    /// Prices of the model, when known.
    pub price: Option<Price>,
}

/// The state machine: borrows the state and changes it in place.
pub struct TurnMachine<'a>(pub &'a mut TurnState);

impl TurnMachine<'_> {
    /// Creates the state of a turn that starts at `now`.
    pub fn start(id: TurnId, now: Timestamp, budget: Budget, options: TurnOptions) -> TurnState {
        TurnState {
            id,
            epoch: 1,
            attempts: 0,
            started_at: now,
            deadline: now + Duration::from_secs(budget.timeout_s.into()),
            budget,
            steps: 0,
            tool_calls: 0,
            reflections: 0,
            repairs: 0,
            empty_responses: 0,
            verifications: 0,
            subagents: 0,
            steps_of_subagents: 0,
            tool_calls_of_subagents: 0,
            tool_calls_of_step: 0,
            usage: Usage::default(),
            cost_usd: None,
            options,
            waiting_since: None,
            delegated: false,
            has_running_child: false,
            phase: TurnPhase::Model,
        }
    }

    /// Returns the next step at `now`.
    pub fn next(turn: &TurnState, now: Timestamp) -> Step {
        let done = |reason| Step::Done { reason, error: None };
        match &turn.phase {
            TurnPhase::Done { reason, error } => Step::Done { reason: *reason, error: error.clone() },
            _ if turn.waiting_since.is_some() => Step::Wait,
            _ if turn.attempts > MAX_ATTEMPTS => Step::Done {
                reason: StopReason::Error,
                error: Some(TurnError::new(
                    "recovery_exhausted",
                    format!("the turn was interrupted more than {MAX_ATTEMPTS} times in the same step"),
                    true,
                )),
            },
            _ if now >= turn.deadline => done(StopReason::Deadline),
            TurnPhase::Tools { calls } => {
                let open: Vec<CallState> =
                    calls.iter().filter(|c| c.status != CallStatus::Done).cloned().collect();
                Step::CallTools(open)
            }
            _ if let Some(limit) = Self::exhausted(turn, turn.usage.total_tokens) => done(limit),
            TurnPhase::Reflect => Step::Reflect,
            TurnPhase::Summary { reason } => Step::Summarize { reason: *reason },
            TurnPhase::Model if turn.used_steps() >= turn.budget.max_steps => {
                Step::Summarize { reason: StopReason::MaxSteps }
            }
            TurnPhase::Model if turn.steps > 0 && turn.deadline.since(now) < MIN_REMAINING => {
                Step::Summarize { reason: StopReason::Deadline }
            }
            TurnPhase::Model => Step::CallModel,
        }
    }

    /// Returns the limit, of tokens or of cost, that a turn has reached after `tokens` tokens.
    pub fn exhausted(turn: &TurnState, tokens: u64) -> Option<StopReason> {
        let Budget { max_tokens, max_cost_usd, .. } = turn.budget;
        if max_tokens.is_some_and(|max| tokens >= max) {
            return Some(StopReason::Tokens);
        }
        max_cost_usd.is_some_and(|max| turn.cost_usd.unwrap_or(0.0) >= max).then_some(StopReason::Cost)
    }

    /// Records a model response. Without calls the turn is done; with calls, none of them has started.
    pub fn model_responded(&mut self, used: PricedUsage, calls: &[ToolCall]) {
        self.finish_step(used);
        let turn = &mut *self.0;
        turn.empty_responses = 0;
        turn.tool_calls = turn.tool_calls.saturating_add(u32::try_from(calls.len()).unwrap_or(u32::MAX));
        turn.phase = if calls.is_empty() {
            TurnPhase::Done { reason: StopReason::End, error: None }
        } else {
            let pending = |call: &ToolCall| CallState {
                call_id: call.call_id.clone(),
                status: CallStatus::NotStarted,
                asked: false,
                verifies: false,
            };
            TurnPhase::Tools { calls: calls.iter().map(pending).collect() }
        };
    }

    /// Records a response that the provider paused. The conversation is sent again and the next response
    /// continues it.
    pub fn model_paused(&mut self, used: PricedUsage) {
        self.finish_step(used);
    }

    /// Marks the calls of the step as made by the server, to verify what the turn has changed.
    pub fn verification_called(&mut self) {
        self.0.verifications += 1;
        if let TurnPhase::Tools { calls } = &mut self.0.phase {
            calls.iter_mut().for_each(|call| call.verifies = true);
        }
    }

    /// Returns whether the server has made the calls of the step, to verify what the turn has changed.
    pub fn is_verifying(turn: &TurnState) -> bool {
        matches!(&turn.phase, TurnPhase::Tools { calls } if calls.iter().any(|call| call.verifies))
    }

    /// Ends the turn with what the model said before the verification.
    pub fn verified(&mut self) {
        self.0.phase = TurnPhase::Done { reason: StopReason::End, error: None };
    }

    /// Returns whether the model gets another attempt after a response that violates the caller's schema.
    pub fn may_repair(turn: &TurnState) -> bool {
        turn.repairs < MAX_REPAIRS && turn.used_steps() + 1 < turn.budget.max_steps
    }

    /// Records a response that violates the caller's schema, for which the model gets another attempt.
    pub fn schema_violated(&mut self, used: PricedUsage) {
        self.finish_step(used);
        self.0.repairs += 1;
    }

    /// Returns whether the model gets another attempt after a response without text and calls.
    pub fn may_retry_empty(turn: &TurnState) -> bool {
        turn.empty_responses < MAX_EMPTY_RESPONSES && turn.used_steps() + 1 < turn.budget.max_steps
    }

    /// Records a response without text and calls, for which the model gets another attempt.
    pub fn responded_empty(&mut self, used: PricedUsage) {
        self.finish_step(used);
        self.0.empty_responses += 1;
    }

    /// Returns the event for the usage of a model call that is not yet added to the turn, or `None` when the
    /// provider reported no usage.
    pub fn usage_event(turn: &TurnState, used: &PricedUsage, model: Option<String>) -> Option<EventKind> {
        let mut total = turn.usage;
        total += used.usage;
        let cost_usd = used.price.map(|price| price.cost(&used.usage));
        (used.usage.total_tokens > 0).then_some(EventKind::UsageUpdated {
            step: used.usage,
            total,
            model,
            cost_usd,
        })
    }

    /// Adds the usage and cost of a model call to the turn.
    pub fn add_usage(&mut self, used: PricedUsage) {
        self.0.usage += used.usage;
        if let Some(price) = used.price {
            *self.0.cost_usd.get_or_insert(0.0) += price.cost(&used.usage);
        }
    }

    fn finish_step(&mut self, used: PricedUsage) {
        self.add_usage(used);
        self.0.steps += 1;
        self.0.attempts = 0;
    }

    /// Returns whether the `n`th call of its step (from 0) is within the turn's budget.
    pub fn within_budget(turn: &TurnState, n: usize) -> bool {
        let TurnPhase::Tools { calls } = &turn.phase else { return false };
        let before = u64::from(turn.used_tool_calls()).saturating_sub(calls.len() as u64);
        before + (n as u64) < u64::from(turn.budget.max_tool_calls)
    }

    /// Marks calls as started. If the isolate is evicted from here on, their outcome is unknown.
    pub fn calls_started(&mut self, started: &[CallId]) {
        self.set(started, CallStatus::Started);
    }

    /// Suspends these calls. The turn waits from here on and its deadline is paused.
    pub fn wait_for(&mut self, suspended: &[CallId], now: Timestamp) {
        self.set(suspended, CallStatus::Waiting);
        self.0.waiting_since = Some(now);
    }

    /// Marks a suspended call as resolved. When it was the last one, the turn continues in a new epoch with
    /// the time that was left when it began to wait. Returns whether the turn continues.
    pub fn call_resolved(&mut self, call_id: &CallId, now: Timestamp) -> bool {
        self.set(std::slice::from_ref(call_id), CallStatus::NotStarted);
        let TurnPhase::Tools { calls } = &self.0.phase else { return false };
        let waits = calls.iter().any(|call| call.status == CallStatus::Waiting);
        if waits {
            return false;
        }
        let Some(since) = self.0.waiting_since.take() else { return false };
        self.0.delegated = false;
        self.0.has_running_child = false;
        self.0.deadline = self.0.deadline + now.since(since);
        self.0.epoch += 1;
        self.0.attempts = 0;
        true
    }

    /// Marks calls as done. When all calls of the step are done, the next phase is the model, or a
    /// self-critique if requested. When even the first call of the step was over the budget, the model gets a
    /// closing call without tools: the previous step already reported the exhausted budget.
    pub fn calls_done(&mut self, done: &[CallId], reflect: bool) {
        self.set(done, CallStatus::Done);
        let TurnPhase::Tools { calls } = &self.0.phase else { return };
        if calls.iter().all(|call| call.status == CallStatus::Done) {
            let over_budget = !Self::within_budget(self.0, 0);
            let of_step = std::mem::take(&mut self.0.tool_calls_of_step);
            self.0.tool_calls_of_subagents = self.0.tool_calls_of_subagents.saturating_add(of_step);
            self.0.attempts = 0;
            self.0.phase = match (over_budget, reflect) {
                (true, _) => TurnPhase::Summary { reason: StopReason::MaxToolCalls },
                // A self-critique is useless when no further step is left.
                (false, true) if self.0.used_steps() < self.0.budget.max_steps => TurnPhase::Reflect,
                (false, _) => TurnPhase::Model,
            };
        }
    }

    /// Takes one self-critique from the budget. Returns `false` when none is left.
    pub fn claim_reflection(&mut self) -> bool {
        let left = self.0.reflections < self.0.budget.max_reflections;
        self.0.reflections += u32::from(left);
        left
    }

    /// Ends a self-critique: the model continues, or gives its closing response.
    pub fn reflected(&mut self, should_continue: bool) {
        self.0.attempts = 0;
        self.0.phase =
            if should_continue { TurnPhase::Model } else { TurnPhase::Summary { reason: StopReason::End } };
    }

    /// Starts the turn again after an eviction. After [`MAX_ATTEMPTS`] the turn ends in its current phase, so
    /// that its open calls still get an outcome.
    pub fn resume(&mut self) {
        self.0.epoch += 1;
        self.0.attempts += 1;
    }

    fn set(&mut self, ids: &[CallId], status: CallStatus) {
        if let TurnPhase::Tools { calls } = &mut self.0.phase {
            for call in calls.iter_mut().filter(|call| ids.contains(&call.call_id)) {
                call.status = status;
                call.asked |= status == CallStatus::Waiting;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn turn(budget: Budget) -> TurnState {
        TurnMachine::start("t".into(), NOW, budget, TurnOptions::default())
    }

    fn calls(ids: &[&str]) -> Vec<ToolCall> {
        let call =
            |id: &&str| ToolCall { call_id: (*id).into(), name: "x".into(), args: json!({}), invalid: None };
        ids.iter().map(call).collect()
    }

    fn used(tokens: u64) -> PricedUsage {
        PricedUsage { usage: Usage { total_tokens: tokens, ..Usage::default() }, price: None }
    }

    fn done(reason: StopReason) -> Step {
        Step::Done { reason, error: None }
    }

    #[test]
    fn a_turn_alternates_between_model_and_tools_until_there_are_no_calls() {
        let mut turn = turn(Budget::default());
        assert_eq!(TurnMachine::next(&turn, NOW), Step::CallModel);
        TurnMachine(&mut turn).model_responded(used(1), &calls(&["a", "b"]));
        let open = |turn: &TurnState| match TurnMachine::next(turn, NOW) {
            Step::CallTools(open) => open.into_iter().map(|call| (call.call_id, call.status)).collect(),
            _ => Vec::new(),
        };
        let (a, b) = (CallId::from("a"), CallId::from("b"));
        assert_eq!(open(&turn), [(a, CallStatus::NotStarted), (b.clone(), CallStatus::NotStarted)]);
        TurnMachine(&mut turn).calls_started(&["b".into()]);
        TurnMachine(&mut turn).calls_done(&["a".into()], false);
        assert_eq!(open(&turn), [(b, CallStatus::Started)]);
        TurnMachine(&mut turn).calls_done(&["b".into()], false);
        assert_eq!(TurnMachine::next(&turn, NOW), Step::CallModel);
        TurnMachine(&mut turn).model_responded(used(1), &[]);
        assert_eq!(TurnMachine::next(&turn, NOW), done(StopReason::End));
        assert_eq!((turn.steps, turn.tool_calls, turn.usage.total_tokens), (2, 2, 2));
    }

    #[test]
    fn every_exhausted_budget_ends_the_turn_with_its_reason() {
        let mut steps = turn(Budget { max_steps: 1, ..Budget::default() });
        TurnMachine(&mut steps).model_responded(used(1), &calls(&["a"]));
        TurnMachine(&mut steps).calls_done(&["a".into()], false);
        assert_eq!(TurnMachine::next(&steps, NOW), Step::Summarize { reason: StopReason::MaxSteps });

        let mut tokens = turn(Budget { max_tokens: Some(10), ..Budget::default() });
        TurnMachine(&mut tokens).model_paused(used(9));
        assert_eq!(TurnMachine::next(&tokens, NOW), Step::CallModel);
        TurnMachine(&mut tokens).model_paused(used(1));
        assert_eq!(TurnMachine::next(&tokens, NOW), done(StopReason::Tokens));

        let time = turn(Budget { timeout_s: 2, ..Budget::default() });
        assert_eq!(TurnMachine::next(&time, NOW + Duration::from_millis(1_999)), Step::CallModel);
        assert_eq!(TurnMachine::next(&time, NOW + Duration::from_secs(2)), done(StopReason::Deadline));
    }

    #[test]
    fn calls_over_the_budget_are_denied_before_the_turn_ends() {
        let mut turn = turn(Budget { max_tool_calls: 3, ..Budget::default() });
        TurnMachine(&mut turn).model_responded(used(1), &calls(&["a", "b"]));
        assert_eq!([0, 1].map(|n| TurnMachine::within_budget(&turn, n)), [true, true]);
        TurnMachine(&mut turn).calls_done(&["a", "b"].map(CallId::from), false);
        TurnMachine(&mut turn).model_responded(used(1), &calls(&["c", "d"]));
        assert_eq!([0, 1].map(|n| TurnMachine::within_budget(&turn, n)), [true, false]);
        TurnMachine(&mut turn).calls_done(&["c", "d"].map(CallId::from), false);
        assert_eq!(TurnMachine::next(&turn, NOW), Step::CallModel, "the denial informs the model");
        TurnMachine(&mut turn).model_responded(used(1), &calls(&["e"]));
        assert!(!TurnMachine::within_budget(&turn, 0));
        TurnMachine(&mut turn).calls_done(&["e"].map(CallId::from).map(CallId::from), false);
        assert_eq!(TurnMachine::next(&turn, NOW), Step::Summarize { reason: StopReason::MaxToolCalls });
    }

    #[test]
    fn cost_is_computed_from_the_price() {
        let mut turn = turn(Budget { max_cost_usd: Some(0.02), ..Budget::default() });
        let price =
            Some(Price { input: 1_000.0, output: 2_000.0, cache_read: Some(100.0), cache_write: None });
        let usage = Usage { input_tokens: 10, cache_read_tokens: 10, output_tokens: 5, ..Usage::default() };
        TurnMachine(&mut turn).model_paused(PricedUsage { usage, price });
        assert_eq!(turn.cost_usd, Some(0.011));
        assert_eq!(TurnMachine::next(&turn, NOW), Step::CallModel);
        TurnMachine(&mut turn).add_usage(PricedUsage { usage, price });
        assert_eq!(TurnMachine::next(&turn, NOW), done(StopReason::Cost));
    }

    #[test]
    fn the_deadline_is_paused_while_a_turn_waits() {
        let mut turn = turn(Budget { timeout_s: 10, ..Budget::default() });
        TurnMachine(&mut turn).model_responded(used(1), &calls(&["a", "b", "c"]));
        TurnMachine(&mut turn).wait_for(&["a", "c"].map(CallId::from), NOW + Duration::from_secs(4));
        let later = NOW + Duration::from_secs(1_000_000);
        assert_eq!(TurnMachine::next(&turn, later), Step::Wait);
        assert!(!TurnMachine(&mut turn).call_resolved(&"b".into(), later), "the call is not suspended");
        assert!(!TurnMachine(&mut turn).call_resolved(&"a".into(), later));
        assert!(TurnMachine(&mut turn).call_resolved(&"c".into(), later));
        assert!(!TurnMachine(&mut turn).call_resolved(&"c".into(), later), "only once");
        assert_eq!((turn.epoch, turn.deadline), (2, later + Duration::from_secs(6)));
        assert!(matches!(TurnMachine::next(&turn, later), Step::CallTools(open) if open.len() == 3));
    }

    #[test]
    fn a_call_without_reported_usage_has_no_usage_event() {
        let mut turn = turn(Budget::default());
        TurnMachine(&mut turn).model_paused(used(100));
        let event = TurnMachine::usage_event(&turn, &used(220), Some("p/m".into())).expect("a record");
        let (step, total) = (used(220).usage, used(320).usage);
        let model = Some("p/m".into());
        assert_eq!(event, EventKind::UsageUpdated { step, total, model, cost_usd: None });
        assert_eq!(TurnMachine::usage_event(&turn, &used(0), None), None);
    }

    #[test]
    fn self_critiques_are_limited_and_may_end_the_turn() {
        let mut turn = turn(Budget { max_reflections: 1, ..Budget::default() });
        TurnMachine(&mut turn).model_responded(used(1), &calls(&["a"]));
        TurnMachine(&mut turn).calls_done(&["a"].map(CallId::from), true);
        assert_eq!(TurnMachine::next(&turn, NOW), Step::Reflect);
        assert!(TurnMachine(&mut turn).claim_reflection());
        assert!(!TurnMachine(&mut turn).claim_reflection());
        assert_eq!(turn.reflections, 1);
        TurnMachine(&mut turn).reflected(true);
        assert_eq!(TurnMachine::next(&turn, NOW), Step::CallModel);
        TurnMachine(&mut turn).reflected(false);
        assert_eq!(TurnMachine::next(&turn, NOW), Step::Summarize { reason: StopReason::End });
    }

    #[test]
    fn a_schema_violation_gets_one_more_attempt() {
        let mut turn = turn(Budget::default());
        assert!(TurnMachine::may_repair(&turn));
        TurnMachine(&mut turn).schema_violated(used(1));
        assert_eq!(TurnMachine::next(&turn, NOW), Step::CallModel);
        assert!(!TurnMachine::may_repair(&turn));
    }

    #[test]
    fn restarts_within_one_step_are_limited() {
        let mut turn = turn(Budget::default());
        for _ in 0..MAX_ATTEMPTS {
            TurnMachine(&mut turn).resume();
            assert_eq!(TurnMachine::next(&turn, NOW), Step::CallModel);
        }
        // A finished step resets the count.
        TurnMachine(&mut turn).model_paused(used(1));
        TurnMachine(&mut turn).resume();
        TurnMachine(&mut turn).model_responded(used(1), &calls(&["a"]));
        for _ in 0..=MAX_ATTEMPTS {
            TurnMachine(&mut turn).resume();
        }
        let Step::Done { reason: StopReason::Error, error: Some(error) } = TurnMachine::next(&turn, NOW)
        else {
            panic!("the turn did not fail");
        };
        assert_eq!(error.code, "recovery_exhausted");
        assert!(matches!(turn.phase, TurnPhase::Tools { .. }), "open calls can still get their outcome");
        assert_eq!(turn.epoch, 1 + MAX_ATTEMPTS + 1 + MAX_ATTEMPTS + 1);
    }

    #[test]
    fn the_state_round_trips_through_json() {
        let mut turn = turn(Budget::default());
        TurnMachine(&mut turn).model_responded(used(1), &calls(&["a"]));
        TurnMachine(&mut turn).calls_started(&["a"].map(CallId::from));
        let stored = serde_json::to_string(&turn).expect("JSON");
        assert_eq!(serde_json::from_str::<TurnState>(&stored).expect("a turn"), turn);
    }
}
