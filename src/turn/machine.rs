//! The ReAct loop as a state machine over [`TurnState`]: serializable, without I/O.
//!
//! [`TurnMachine::next`] says what to do; the driver does it and feeds back what came of it. The
//! state row holds the machine, so a turn goes on from its last commit on any machine.

use crate::fault::{self, Fault};
use crate::types::{
    Budget, CallState, CallStatus, EventKind, Price, StopReason, Timestamp, ToolCall, TurnError, TurnOptions,
    TurnPhase, TurnState, Usage,
};

/// Restarts without a finished step in between before a turn is given up.
pub const MAX_ATTEMPTS: u32 = 6;

/// With less than this left of a turn, in milliseconds, no tool begins, and the model is asked for
/// its last word.
pub const MIN_REMAINING_MS: u64 = 1_000;

/// Answers that may miss the caller's schema before the turn fails.
pub const MAX_REPAIRS: u32 = 1;

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Call the model.
    CallModel,
    /// Run these calls, which have no outcome yet, in this order.
    CallTools(Vec<CallState>),
    /// Wait for a person, or for subagents.
    Wait,
    /// Think about the step that has ended.
    Reflect,
    /// Call the model a last time, without tools.
    Summarize {
        /// Why the turn ends.
        reason: StopReason,
    },
    /// End the turn.
    Done {
        /// Why.
        reason: StopReason,
        /// What failed, where something did.
        error: Option<TurnError>,
    },
}

/// What a model call used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Tokens.
    pub usage: Usage,
    /// What a million of them cost.
    pub price: Option<Price>,
}

/// The machine: borrowed from the state, changed in place.
pub struct TurnMachine<'a>(pub &'a mut TurnState);

impl TurnMachine<'_> {
    /// A turn that starts now.
    pub fn start(id: String, now: Timestamp, budget: Budget, options: TurnOptions) -> TurnState {
        TurnState {
            id,
            epoch: 1,
            attempts: 0,
            started_at: now,
            deadline: now.plus(u64::from(budget.timeout_s) * 1_000),
            budget,
            steps: 0,
            tool_calls: 0,
            reflections: 0,
            repairs: 0,
            usage: Usage::default(),
            cost_usd: None,
            options,
            waiting_since: None,
            delegated: false,
            phase: TurnPhase::Model,
        }
    }

    /// What to do now.
    pub fn next(turn: &TurnState, now: Timestamp) -> Step {
        let done = |reason| Step::Done { reason, error: None };
        match &turn.phase {
            TurnPhase::Done { reason, error } => Step::Done { reason: *reason, error: error.clone() },
            _ if turn.waiting_since.is_some() => Step::Wait,
            _ if turn.attempts > MAX_ATTEMPTS => Step::Done {
                reason: StopReason::Error,
                error: Some(TurnError {
                    code: "recovery_exhausted".into(),
                    message: format!(
                        "the turn was interrupted more than {MAX_ATTEMPTS} times in the same step"
                    ),
                    retryable: true,
                }),
            },
            _ if now >= turn.deadline => done(StopReason::Deadline),
            TurnPhase::Tools { calls } => {
                let open: Vec<CallState> =
                    calls.iter().filter(|c| c.status != CallStatus::Done).cloned().collect();
                Step::CallTools(open)
            }
            _ if Self::is_spent(turn) => done(StopReason::Cost),
            TurnPhase::Reflect => Step::Reflect,
            TurnPhase::Summary { reason } => Step::Summarize { reason: *reason },
            TurnPhase::Model if turn.steps >= turn.budget.max_steps => {
                Step::Summarize { reason: StopReason::MaxSteps }
            }
            TurnPhase::Model if turn.steps > 0 && turn.deadline.since(now) < MIN_REMAINING_MS => {
                Step::Summarize { reason: StopReason::Deadline }
            }
            TurnPhase::Model => Step::CallModel,
        }
    }

    /// Whether tokens or money are used up.
    pub fn is_spent(turn: &TurnState) -> bool {
        let tokens = turn.budget.max_tokens.is_some_and(|max| turn.usage.total_tokens >= max);
        tokens || turn.budget.max_cost_usd.is_some_and(|max| turn.cost_usd.unwrap_or(0.0) >= max)
    }

    /// The model answered. Without calls the turn is done; with calls they are pending.
    pub fn model_answered(&mut self, spent: Spent, calls: &[ToolCall]) {
        self.step_ended(spent);
        let turn = &mut *self.0;
        turn.tool_calls = turn.tool_calls.saturating_add(u32::try_from(calls.len()).unwrap_or(u32::MAX));
        turn.phase = if calls.is_empty() {
            TurnPhase::Done { reason: StopReason::End, error: None }
        } else {
            let pending = |call: &ToolCall| CallState {
                call_id: call.call_id.clone(),
                status: CallStatus::NotStarted,
                asked: false,
            };
            TurnPhase::Tools { calls: calls.iter().map(pending).collect() }
        };
    }

    /// The provider wants its unfinished answer sent back: the same step goes on.
    pub fn model_paused(&mut self, spent: Spent) {
        self.step_ended(spent);
    }

    /// Whether an answer that does not fit the caller's schema may be given again.
    pub fn may_repair(turn: &TurnState) -> bool {
        turn.repairs < MAX_REPAIRS && turn.steps + 1 < turn.budget.max_steps
    }

    /// The answer does not fit the caller's schema: it is to be given again.
    pub fn answer_unfit(&mut self, spent: Spent) {
        self.step_ended(spent);
        self.0.repairs += 1;
    }

    /// What is told of what a model call used, which is not counted yet; nothing where the provider said nothing.
    pub fn counted(turn: &TurnState, spent: &Spent) -> Option<EventKind> {
        let mut total = turn.usage;
        total += spent.usage;
        (spent.usage.total_tokens > 0).then_some(EventKind::UsageUpdated { step: spent.usage, total })
    }

    /// Counts what a model call used, whatever it was for.
    pub fn spend(&mut self, spent: Spent) {
        self.0.usage += spent.usage;
        if let Some(price) = spent.price {
            *self.0.cost_usd.get_or_insert(0.0) += price.cost(&spent.usage);
        }
    }

    /// Counts what a subagent used, and says what is to be told of it.
    pub fn charge(&mut self, usage: Usage, cost_usd: Option<f64>) -> EventKind {
        let step = Usage { window: None, ..usage };
        self.0.usage += step;
        if let Some(cost) = cost_usd {
            *self.0.cost_usd.get_or_insert(0.0) += cost;
        }
        EventKind::UsageUpdated { step, total: self.0.usage }
    }

    fn step_ended(&mut self, spent: Spent) {
        self.spend(spent);
        self.0.steps += u32::from(!fault::active(Fault::UncountedSteps));
        self.0.attempts = 0;
    }

    /// Whether the call, the `n`th of its step (from 0), is within the turn's budget.
    pub fn within_budget(turn: &TurnState, n: usize) -> bool {
        let TurnPhase::Tools { calls } = &turn.phase else { return false };
        let before = u64::from(turn.tool_calls).saturating_sub(calls.len() as u64);
        fault::active(Fault::IgnoreCallBudget) || before + (n as u64) < u64::from(turn.budget.max_tool_calls)
    }

    /// Calls begin: from here on a crash leaves their outcome unknown.
    pub fn calls_begun(&mut self, begun: &[impl AsRef<str>]) {
        self.set(begun, CallStatus::Started);
    }

    /// Somebody is asked about these calls, or subagents are sent out: from here on the turn waits, and its time
    /// stands still.
    pub fn wait_for(&mut self, asked: &[impl AsRef<str>], delegated: bool, now: Timestamp) {
        self.set(asked, CallStatus::Waiting);
        self.0.waiting_since = Some(now);
        self.0.delegated = delegated;
    }

    /// A call need not wait any more. When none does the turn goes on, as one that starts again, and has as
    /// much time left as when it began to wait. Returns whether it does.
    pub fn call_resolved(&mut self, call_id: &str, now: Timestamp) -> bool {
        self.set(&[call_id], CallStatus::NotStarted);
        let TurnPhase::Tools { calls } = &self.0.phase else { return false };
        let waits = calls.iter().any(|call| call.status == CallStatus::Waiting);
        if waits && !fault::active(Fault::ResumeEarly) {
            return false;
        }
        let Some(since) = self.0.waiting_since.take() else { return false };
        self.0.delegated = false;
        let stood_still = if fault::active(Fault::TimeRunsWhileWaiting) { 0 } else { now.since(since) };
        self.0.deadline = self.0.deadline.plus(stood_still);
        self.0.epoch += 1;
        self.0.attempts = 0;
        true
    }

    /// Calls have their outcome. When all have, the model is next, or a reflection if the step is
    /// worth one. When all were over the budget the model sums up: it was told before, and asked
    /// for more all the same.
    pub fn calls_done(&mut self, done: &[impl AsRef<str>], reflect: bool) {
        self.set(done, CallStatus::Done);
        let TurnPhase::Tools { calls } = &self.0.phase else { return };
        if calls.iter().all(|call| call.status == CallStatus::Done) {
            let spent = !Self::within_budget(self.0, 0);
            self.0.attempts = 0;
            self.0.phase = match (spent, reflect) {
                (true, _) => TurnPhase::Summary { reason: StopReason::MaxToolCalls },
                // Without a step left there is nothing to think ahead for.
                (false, true) if self.0.steps < self.0.budget.max_steps => TurnPhase::Reflect,
                (false, _) => TurnPhase::Model,
            };
        }
    }

    /// Claims a reflection; false when there is none left.
    pub fn claim_reflection(&mut self) -> bool {
        let left = self.0.reflections < self.0.budget.max_reflections;
        self.0.reflections += u32::from(left);
        left
    }

    /// The reflection is over: the model goes on, or sums up.
    pub fn reflected(&mut self, should_continue: bool) {
        self.0.attempts = 0;
        self.0.phase =
            if should_continue { TurnPhase::Model } else { TurnPhase::Summary { reason: StopReason::End } };
    }

    /// The turn starts again after its machine went away. After [`MAX_ATTEMPTS`] it is given up, in
    /// the phase in which it stands: open calls are still to get their outcome.
    pub fn resume(&mut self) {
        self.0.epoch += u32::from(!fault::active(Fault::ForgetEpoch));
        self.0.attempts += 1;
    }

    fn set(&mut self, ids: &[impl AsRef<str>], status: CallStatus) {
        if let TurnPhase::Tools { calls } = &mut self.0.phase {
            for call in calls.iter_mut().filter(|call| ids.iter().any(|id| id.as_ref() == call.call_id)) {
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
        let call = |id: &&str| ToolCall {
            call_id: (*id).to_owned(),
            name: "x".into(),
            args: json!({}),
            invalid: None,
        };
        ids.iter().map(call).collect()
    }

    fn used(tokens: u64) -> Spent {
        Spent { usage: Usage { total_tokens: tokens, ..Usage::default() }, price: None }
    }

    fn done(reason: StopReason) -> Step {
        Step::Done { reason, error: None }
    }

    #[test]
    fn a_turn_goes_from_model_to_tools_and_back_until_there_are_no_calls() {
        let mut turn = turn(Budget::default());
        assert_eq!(TurnMachine::next(&turn, NOW), Step::CallModel);
        TurnMachine(&mut turn).model_answered(used(1), &calls(&["a", "b"]));
        let open = |turn: &TurnState| match TurnMachine::next(turn, NOW) {
            Step::CallTools(open) => open.into_iter().map(|call| (call.call_id, call.status)).collect(),
            _ => Vec::new(),
        };
        let (a, b) = ("a".to_owned(), "b".to_owned());
        assert_eq!(open(&turn), [(a, CallStatus::NotStarted), (b.clone(), CallStatus::NotStarted)]);
        TurnMachine(&mut turn).calls_begun(&["b"]);
        TurnMachine(&mut turn).calls_done(&["a"], false);
        assert_eq!(open(&turn), [(b, CallStatus::Started)]);
        TurnMachine(&mut turn).calls_done(&["b"], false);
        assert_eq!(TurnMachine::next(&turn, NOW), Step::CallModel);
        TurnMachine(&mut turn).model_answered(used(1), &[]);
        assert_eq!(TurnMachine::next(&turn, NOW), done(StopReason::End));
        assert_eq!((turn.steps, turn.tool_calls, turn.usage.total_tokens), (2, 2, 2));
    }

    #[test]
    fn every_bound_ends_the_turn_with_its_reason() {
        let mut steps = turn(Budget { max_steps: 1, ..Budget::default() });
        TurnMachine(&mut steps).model_answered(used(1), &calls(&["a"]));
        TurnMachine(&mut steps).calls_done(&["a"], false);
        assert_eq!(TurnMachine::next(&steps, NOW), Step::Summarize { reason: StopReason::MaxSteps });

        let mut tokens = turn(Budget { max_tokens: Some(10), ..Budget::default() });
        TurnMachine(&mut tokens).model_paused(used(9));
        assert_eq!(TurnMachine::next(&tokens, NOW), Step::CallModel);
        TurnMachine(&mut tokens).model_paused(used(1));
        assert_eq!(TurnMachine::next(&tokens, NOW), done(StopReason::Cost));

        let time = turn(Budget { timeout_s: 2, ..Budget::default() });
        assert_eq!(TurnMachine::next(&time, NOW.plus(1_999)), Step::CallModel);
        assert_eq!(TurnMachine::next(&time, NOW.plus(2_000)), done(StopReason::Deadline));
    }

    #[test]
    fn calls_over_the_budget_are_denied_before_the_turn_ends() {
        let mut turn = turn(Budget { max_tool_calls: 3, ..Budget::default() });
        TurnMachine(&mut turn).model_answered(used(1), &calls(&["a", "b"]));
        assert_eq!([0, 1].map(|n| TurnMachine::within_budget(&turn, n)), [true, true]);
        TurnMachine(&mut turn).calls_done(&["a", "b"], false);
        TurnMachine(&mut turn).model_answered(used(1), &calls(&["c", "d"]));
        assert_eq!([0, 1].map(|n| TurnMachine::within_budget(&turn, n)), [true, false]);
        TurnMachine(&mut turn).calls_done(&["c", "d"], false);
        assert_eq!(TurnMachine::next(&turn, NOW), Step::CallModel, "the model is told");
        TurnMachine(&mut turn).model_answered(used(1), &calls(&["e"]));
        assert!(!TurnMachine::within_budget(&turn, 0));
        TurnMachine(&mut turn).calls_done(&["e"], false);
        assert_eq!(TurnMachine::next(&turn, NOW), Step::Summarize { reason: StopReason::MaxToolCalls });
    }

    #[test]
    fn money_is_counted_by_the_price() {
        let mut turn = turn(Budget { max_cost_usd: Some(0.02), ..Budget::default() });
        let price =
            Some(Price { input: 1_000.0, output: 2_000.0, cache_read: Some(100.0), cache_write: None });
        let usage = Usage { input_tokens: 10, cache_read_tokens: 10, output_tokens: 5, ..Usage::default() };
        TurnMachine(&mut turn).model_paused(Spent { usage, price });
        assert_eq!(turn.cost_usd, Some(0.011));
        assert_eq!(TurnMachine::next(&turn, NOW), Step::CallModel);
        TurnMachine(&mut turn).spend(Spent { usage, price });
        assert_eq!(TurnMachine::next(&turn, NOW), done(StopReason::Cost));
    }

    #[test]
    fn a_waiting_turn_has_as_much_time_left_as_when_it_began_to_wait() {
        let mut turn = turn(Budget { timeout_s: 10, ..Budget::default() });
        TurnMachine(&mut turn).model_answered(used(1), &calls(&["a", "b", "c"]));
        TurnMachine(&mut turn).wait_for(&["a", "c"], false, NOW.plus(4_000));
        let later = NOW.plus(1_000_000_000);
        assert_eq!(TurnMachine::next(&turn, later), Step::Wait);
        assert!(!TurnMachine(&mut turn).call_resolved("b", later), "it does not wait");
        assert!(!TurnMachine(&mut turn).call_resolved("a", later));
        assert!(TurnMachine(&mut turn).call_resolved("c", later));
        assert!(!TurnMachine(&mut turn).call_resolved("c", later), "only once");
        assert_eq!((turn.epoch, turn.deadline), (2, later.plus(6_000)));
        assert!(matches!(TurnMachine::next(&turn, later), Step::CallTools(open) if open.len() == 3));
    }

    #[test]
    fn what_a_provider_says_nothing_of_is_not_told() {
        let mut turn = turn(Budget::default());
        TurnMachine(&mut turn).model_paused(used(100));
        let told = TurnMachine::counted(&turn, &used(220)).expect("a record");
        let (step, total) = (used(220).usage, used(320).usage);
        assert_eq!(told, EventKind::UsageUpdated { step, total });
        assert_eq!(TurnMachine::counted(&turn, &used(0)), None);
    }

    #[test]
    fn reflections_are_claimed_and_may_end_the_turn() {
        let mut turn = turn(Budget { max_reflections: 1, ..Budget::default() });
        TurnMachine(&mut turn).model_answered(used(1), &calls(&["a"]));
        TurnMachine(&mut turn).calls_done(&["a"], true);
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
    fn an_unfit_answer_gets_one_more_chance() {
        let mut turn = turn(Budget::default());
        assert!(TurnMachine::may_repair(&turn));
        TurnMachine(&mut turn).answer_unfit(used(1));
        assert_eq!(TurnMachine::next(&turn, NOW), Step::CallModel);
        assert!(!TurnMachine::may_repair(&turn));
    }

    #[test]
    fn restarts_in_one_step_are_counted_and_given_up() {
        let mut turn = turn(Budget::default());
        for _ in 0..MAX_ATTEMPTS {
            TurnMachine(&mut turn).resume();
            assert_eq!(TurnMachine::next(&turn, NOW), Step::CallModel);
        }
        // A step that ends starts the count again.
        TurnMachine(&mut turn).model_paused(used(1));
        TurnMachine(&mut turn).resume();
        TurnMachine(&mut turn).model_answered(used(1), &calls(&["a"]));
        for _ in 0..=MAX_ATTEMPTS {
            TurnMachine(&mut turn).resume();
        }
        let Step::Done { reason: StopReason::Error, error: Some(error) } = TurnMachine::next(&turn, NOW)
        else {
            panic!("not given up");
        };
        assert_eq!(error.code, "recovery_exhausted");
        assert!(matches!(turn.phase, TurnPhase::Tools { .. }), "open calls can still get their outcome");
        assert_eq!(turn.epoch, 1 + MAX_ATTEMPTS + 1 + MAX_ATTEMPTS + 1);
    }

    #[test]
    fn the_machine_survives_being_stored() {
        let mut turn = turn(Budget::default());
        TurnMachine(&mut turn).model_answered(used(1), &calls(&["a"]));
        TurnMachine(&mut turn).calls_begun(&["a"]);
        let stored = serde_json::to_string(&turn).expect("JSON");
        assert_eq!(serde_json::from_str::<TurnState>(&stored).expect("a turn"), turn);
    }
}
