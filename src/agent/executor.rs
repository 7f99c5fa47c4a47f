//! Runs one tool call. Never fails: whatever happens becomes an outcome.

use super::{
    ActDecision, CancelToken, DynTool, HarnessAgent, RuntimeContext, ToolContext,
    hook::{HookEvent, PostActing, PreActing},
};
use crate::types::{CallStatus, DenyReason, ToolCall, ToolOutcome};
use futures::{
    FutureExt,
    future::{Either, select},
    pin_mut,
};
use std::{panic::AssertUnwindSafe, rc::Rc};

/// A call and what is to become of it.
pub(super) struct Prepared {
    /// The call as the model made it.
    pub call: ToolCall,
    /// Runs, or has its outcome already.
    pub plan: Plan,
}

/// See [`Prepared`].
pub(super) enum Plan {
    /// The tool runs with these arguments.
    Run {
        /// The tool.
        tool: Rc<dyn DynTool>,
        /// The arguments, hooks applied.
        call: ToolCall,
        /// Whether a crash in it leaves the outcome unknown.
        journal: bool,
    },
    /// The tool does not run.
    Settled(ToolOutcome),
}

/// Decides what is to become of a call: unknown tools, bad arguments and spent budgets are denied,
/// hooks may deny or answer, and a non-idempotent call that was cut off is not run again.
pub(super) async fn prepare(
    agent: &HarnessAgent,
    cx: &RuntimeContext,
    call: ToolCall,
    status: CallStatus,
    within_budget: bool,
) -> Prepared {
    let allowed = cx.session.state().turn.as_ref().and_then(|turn| turn.tools.clone());
    let known = agent.toolkit.get(&call.name);
    let known = known.filter(|(spec, _)| allowed.as_ref().is_none_or(|names| names.contains(&spec.name)));
    let settled = |call: ToolCall, outcome| Prepared { call, plan: Plan::Settled(outcome) };

    if status == CallStatus::Begun && known.is_none_or(|(spec, _)| !spec.idempotent) {
        return settled(call, unknown("the machine went away while the tool was running"));
    }
    let mut event = PreActing { call: call.clone(), spec: known.map(|(spec, _)| spec) };
    let mut decision = ActDecision::Continue;
    for hook in agent.hooks.at(HookEvent::PreActing) {
        match hook.pre_acting(&mut event, cx).await {
            ActDecision::Continue => {}
            deny @ ActDecision::Deny(_) => decision = deny,
            answer @ ActDecision::Answer(_) if decision == ActDecision::Continue => decision = answer,
            ActDecision::Answer(_) => {}
        }
    }
    match decision {
        ActDecision::Deny(reason) => {
            return settled(call, ToolOutcome::denied(DenyReason::Permission, reason));
        }
        ActDecision::Answer(outcome) => return settled(call, outcome),
        ActDecision::Continue => {}
    }
    let Some((spec, tool)) = known else {
        let names: Vec<&str> = agent.toolkit.names().collect();
        let reason = format!("there is no tool `{}`; there are: {}", call.name, names.join(", "));
        return settled(call, ToolOutcome::denied(DenyReason::UnknownTool, reason));
    };
    if !within_budget {
        let reason = "this turn's tool calls are spent; answer with what you have";
        return settled(call, ToolOutcome::denied(DenyReason::Budget, reason));
    }
    let fits = match &event.call.invalid {
        Some(error) => Err(format!("the arguments are not JSON: {error}")),
        None => tool.check(&event.call.args),
    };
    if let Err(reason) = fits {
        return settled(call, ToolOutcome::denied(DenyReason::Validation, reason));
    }
    let plan = Plan::Run { tool: Rc::clone(tool), call: event.call, journal: !spec.idempotent };
    Prepared { call, plan }
}

/// Brings a prepared call to its outcome, and says how long that took in milliseconds.
pub(super) async fn execute(
    agent: &HarnessAgent,
    cx: &Rc<RuntimeContext>,
    prepared: &Prepared,
) -> (ToolOutcome, u64) {
    let started = cx.clock.now();
    let outcome = match &prepared.plan {
        Plan::Settled(outcome) => outcome.clone(),
        Plan::Run { tool, call, journal } => run(cx, tool.as_ref(), call, *journal).await,
    };
    let elapsed_ms = cx.clock.now().since(started);
    let mut event = PostActing { call: &prepared.call, outcome, elapsed_ms };
    for hook in agent.hooks.at(HookEvent::PostActing) {
        hook.post_acting(&mut event, cx).await;
    }
    (event.outcome, elapsed_ms)
}

async fn run(cx: &Rc<RuntimeContext>, tool: &dyn DynTool, call: &ToolCall, journal: bool) -> ToolOutcome {
    let now = cx.clock.now();
    let deadline = match &cx.session.state().turn {
        Some(turn) => turn.deadline.min(now.plus(u64::from(turn.budget.tool_timeout_s) * 1_000)),
        None => now,
    };
    let cancel = CancelToken::default();
    let context =
        ToolContext { run: Rc::clone(cx), call_id: call.call_id.clone(), deadline, cancel: cancel.clone() };
    let outcome = {
        // A panic of one tool must not take the turn with it.
        let work = AssertUnwindSafe(tool.call(call.args.clone(), context)).catch_unwind().fuse();
        let timer = cx.clock.sleep(deadline.since(now)).fuse();
        pin_mut!(work, timer);
        match select(work, timer).await {
            Either::Left((Ok(outcome), _)) => outcome,
            Either::Left((Err(_), _)) => ToolOutcome::failure("the tool broke (a defect of ours)"),
            Either::Right(((), _)) if journal => unknown("the tool did not answer in time"),
            Either::Right(((), _)) => {
                let seconds = deadline.since(now) / 1_000;
                ToolOutcome::Timeout { reason: format!("no answer within {seconds} s") }
            }
        }
    };
    cancel.cancel();
    outcome
}

/// The outcome of a call that may or may not have had its effect.
pub(super) fn unknown(what: &str) -> ToolOutcome {
    ToolOutcome::Unknown {
        reason: format!("{what}; it may or may not have taken effect. Check before you try again."),
    }
}
