//! Admission of tool calls: decides whether a call runs, is suspended or is denied.

use super::{
    ActDecision, CancelToken, DynTool, HarnessAgent, RuntimeContext, ToolContext,
    hook::{HookEvent, PreActing},
    run,
    tool_context::CallWait,
};
use crate::ports::within;
use crate::session::suspensions::Resolved;
use crate::turn::{
    machine::MIN_REMAINING,
    policy::{self, Verdict},
    replay::{ReplayCall, ReplayKey},
    scheduler::Claim,
    schema,
};
use crate::types::{
    CallStatus, Category, Decider, DenyReason, Effect, Invalid, Resolution, Suspension, Timestamp, ToolCall,
    ToolOutcome, ToolSpec, Wait, WaitKind,
};
use futures::FutureExt;
use serde_json::Value;
use std::time::Duration;
use std::{panic::AssertUnwindSafe, rc::Rc};

/// Timeout for building the payload of a suspension.
const PAYLOAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum lifetime of a subagent (30 days).
const MAX_CHILD: Duration = Duration::from_hours(30 * 24);

/// The reason given when a tool panicked.
pub(super) const PANICKED: &str = "internal error: the tool panicked";

/// A tool call, and whether it may run.
pub(super) struct PreparedCall {
    /// The call as the model made it.
    pub call: ToolCall,
    /// What the scheduler uses to build waves.
    pub claim: Claim,
    /// Whether it may run.
    pub admission: Admission,
    /// Whether the arguments were converted to the schema's types.
    pub was_coerced: bool,
}

/// Whether a prepared call may run.
pub(super) enum Admission {
    /// The tool runs with these arguments, and with the answer if the call was suspended.
    Run {
        tool: Rc<dyn DynTool>,
        spec: ToolSpec,
        call: ToolCall,
        answered: Option<Box<Answered>>,
        /// As whom it was approved, if it was. An answered call counts as approved.
        approved: Option<Decider>,
    },
    /// The call is suspended before it runs.
    Wait(Box<Suspension>),
    /// The tool does not run; this is the outcome.
    Settled(ToolOutcome),
}

/// The answer to a suspended call, and the payload that was shown with it.
#[derive(Clone)]
pub(super) struct Answered {
    /// The answer.
    pub answer: Value,
    /// The payload.
    pub shown: Value,
    /// What the call needs to continue, if it was suspended while it ran.
    pub progress: Option<Value>,
}

impl PreparedCall {
    fn settled(call: ToolCall, outcome: ToolOutcome) -> Self {
        Self::idle(call, Admission::Settled(outcome))
    }

    /// Creates a call that does not run, and so conflicts with no other.
    fn idle(call: ToolCall, admission: Admission) -> Self {
        let claim = Claim {
            effect: Effect::ReadOnly,
            keys: Vec::new(),
            replay: ReplayKey::of(&call.name, &call.args),
        };
        Self { call, claim, admission, was_coerced: false }
    }

    /// Denies the call.
    pub fn deny(&mut self, denied: DenyReason, reason: String) {
        *self = Self::settled(self.call.clone(), ToolOutcome::denied(denied, reason));
    }

    /// Returns whether the call would start a subagent.
    pub fn starts_subagent(&self) -> bool {
        self.suspension().is_some_and(|suspension| suspension.child().is_some())
    }

    /// Returns the suspension, if the call waits for one.
    pub fn suspension(&self) -> Option<&Suspension> {
        match &self.admission {
            Admission::Wait(suspension) => Some(suspension),
            Admission::Run { .. } | Admission::Settled(_) => None,
        }
    }

    /// Returns whether the start must be journaled: a crash in a tool that is not idempotent leaves an
    /// unknown outcome.
    pub fn needs_journal(&self) -> bool {
        matches!(&self.admission, Admission::Run { spec, .. } if !spec.idempotent)
    }

    /// Repeats the decision right before the call runs, with the outcomes of earlier waves: the call may now
    /// be forbidden, redundant or too late.
    pub fn admit(&mut self, agent: &HarnessAgent, cx: &RuntimeContext) {
        if let Admission::Run { spec, call, approved, .. } = &self.admission
            && let Some(reason) = forbidden(agent, cx, spec, call, *approved)
        {
            self.admission = Admission::Settled(ToolOutcome::denied(DenyReason::Permission, reason));
        }
        let (idempotent, reads) = match &self.admission {
            Admission::Run { spec, .. } => (spec.skips_repeats(), spec.effect.is_read()),
            // Counts another invalid call; the tool may be blocked by now.
            Admission::Settled(ToolOutcome::Denied { denied: DenyReason::Validation, .. }) => (false, true),
            Admission::Settled(_) | Admission::Wait(_) => return,
        };
        let (key, call_id, name) = (self.claim.replay, self.call.call_id.clone(), &self.call.name);
        let replayed = ReplayCall { key, call_id, name, idempotent, reads };
        let replay = cx.state.replay();
        // An answered call has done its work: the tool only turns the answer into a result.
        let is_answered = matches!(self.admission, Admission::Run { answered: Some(_), .. });
        let blocked = if is_answered { None } else { replay.blocked(name) };
        let refusal = blocked.or_else(|| replay.repeated(&replayed)).or_else(|| {
            let left = turn_deadline(cx).since(cx.clock.now());
            let late = left < MIN_REMAINING;
            late.then(|| (DenyReason::Deadline, "the turn is about to reach its deadline".to_owned()))
        });
        if let Some((denied, reason)) = refusal {
            self.admission = Admission::Settled(ToolOutcome::denied(denied, reason));
        }
    }
}

/// Returns the deadline of the current turn.
pub(super) fn turn_deadline(cx: &RuntimeContext) -> Timestamp {
    cx.session.state().activity.turn.as_ref().map_or(Timestamp(0), |turn| turn.deadline)
}

/// Returns why a call must not run, if the mode or the rules have changed since it was prepared.
fn forbidden(
    agent: &HarnessAgent,
    cx: &RuntimeContext,
    spec: &ToolSpec,
    call: &ToolCall,
    approved: Option<Decider>,
) -> Option<String> {
    let state = cx.session.state();
    if agent.allowed_tools(&state).is_some_and(|allowed| !allowed.contains(&spec.name)) {
        return Some(format!("`{}` is no longer a tool of the session's mode", spec.name));
    }
    refusal(agent.verdict(&state, spec, &call.args), approved)
}

/// Returns why a call must not run: the rules deny it, or ask about it and the approval it has does not suffice.
fn refusal(verdict: Verdict, approved: Option<Decider>) -> Option<String> {
    match verdict {
        Verdict::Deny(reason) => Some(reason),
        Verdict::Ask(by) if approved < Some(by) => {
            let what = "the rules have changed and ask about this call";
            Some(format!("{what}: call the tool again to request approval"))
        }
        Verdict::Ask(_) | Verdict::Allow => None,
    }
}

/// A call of the current step, before any decision.
#[derive(Clone)]
pub(super) struct OpenCall {
    /// The call as the model made it.
    pub call: ToolCall,
    /// The progress of the call.
    pub status: CallStatus,
    /// Whether it is within the turn's budget.
    pub within_budget: bool,
    /// The earlier suspension of this call, if any.
    pub resolved: Resolved,
}

/// Decides whether a call runs, is suspended or is denied. Calls of unknown tools, with invalid arguments or
/// over budget are denied; hooks may deny the call or set its outcome; rules may deny it or require approval. An
/// interrupted call is not repeated unless its tool is idempotent.
pub(super) async fn prepare(agent: &HarnessAgent, cx: &RuntimeContext, open: OpenCall) -> PreparedCall {
    let call = open.call.clone();
    let decided = AssertUnwindSafe(decide(agent, cx, open)).catch_unwind();
    decided.await.unwrap_or_else(|_| PreparedCall::settled(call, ToolOutcome::failure(PANICKED)))
}

async fn decide(agent: &HarnessAgent, cx: &RuntimeContext, open: OpenCall) -> PreparedCall {
    let OpenCall { call, status, within_budget, resolved } = open;
    let (allowed, of_client) = {
        let state = cx.session.state();
        (agent.allowed_tools(&state), state.client_tools().to_vec())
    };
    let known = agent.tool(&of_client, &call.name);
    let is_run = cx.session.state().meta.id.is_run();
    let known = known.filter(|(spec, _)| is_run || agent.run_tool(&spec.name).is_none());
    let known = known.filter(|(spec, _)| allowed.as_ref().is_none_or(|names| names.contains(&spec.name)));
    if status == CallStatus::Started && known.as_ref().is_none_or(|(spec, _)| !spec.idempotent) {
        let settled =
            PreparedCall::settled(call, unknown("the session was evicted while the tool was running"));
        // The call may have written something, so that later calls must not share its wave.
        return PreparedCall { claim: Claim { effect: Effect::default(), ..settled.claim }, ..settled };
    }
    if let Some(refusal) = resolved.refusal {
        return PreparedCall::settled(call, refusal_outcome(refusal));
    }
    agent.hooks.filter_tools(None, cx).await;
    let mut event = PreActing { call: call.clone(), spec: known.as_ref().map(|(spec, _)| *spec) };
    if let Some(args) = &resolved.args {
        event.call.args = args.clone();
    }
    let mut decision = ActDecision::Continue;
    for hook in agent.hooks.at(HookEvent::PreActing) {
        match hook.pre_acting(&mut event, cx).await {
            ActDecision::Continue => {}
            deny @ ActDecision::Deny(_) => decision = deny,
            outcome @ ActDecision::Outcome(_) if decision == ActDecision::Continue => decision = outcome,
            ActDecision::Outcome(_) => {}
        }
    }
    if let Some(args) = resolved.args {
        // A hook may still deny the call, but approved arguments run exactly as they were shown.
        event.call.args = args;
    }
    let deny =
        |call, denied, reason: String| PreparedCall::settled(call, ToolOutcome::denied(denied, reason));
    match decision {
        ActDecision::Deny(reason) => return deny(call, DenyReason::Permission, reason),
        ActDecision::Outcome(outcome) => return PreparedCall::settled(call, outcome),
        ActDecision::Continue => {}
    }
    let is_child = cx.session.state().meta.parent.is_some();
    let suspends = agent.spec(&of_client, &call.name).and_then(|spec| spec.suspends);
    if is_child && matches!(suspends, Some(WaitKind::Plan | WaitKind::Subagent)) {
        // A forked session even keeps all tools of its parent, so that both prompts share a cached prefix.
        return deny(
            call,
            DenyReason::Permission,
            "a subagent cannot use this tool: do the task yourself".into(),
        );
    }
    if let Some((spec, _)) = known.as_ref().filter(|(spec, _)| !cx.state.has_tool(spec)) {
        let reason = format!("`{}` is not among the tools that the session has now", spec.name);
        return deny(call, DenyReason::Permission, reason);
    }
    let Some((spec, tool)) = known else {
        if is_run {
            if within_budget && resolved.approved.is_none() && run::asks(cx, &call.call_id) {
                // A plan can need a tool that the agent does not have. Its steps wait for a person all the same.
                let waits = suspension(agent, cx, Wait::Approval, Category::default(), event.call);
                return PreparedCall::idle(call, Admission::Wait(Box::new(waits)));
            }
            let reason = format!("the agent does not have the tool `{}`, which the step needs", call.name);
            return deny(call, DenyReason::UnknownTool, reason);
        }
        // Only the tools that this turn may use are listed, because the model will try one of them next.
        let usable = agent.usable_tools(&cx.session.state(), &cx.state);
        let own = usable.iter().filter(|spec| of_client.iter().all(|other| other.name != spec.name));
        let own = own.map(|spec| spec.name.as_str());
        let of_client = of_client.iter().filter(|spec| cx.state.has_tool(spec));
        let names: Vec<&str> = own.chain(of_client.map(|spec| spec.name.as_str())).collect();
        let reason = format!("there is no tool `{}`; there are: {}", call.name, names.join(", "));
        return deny(call, DenyReason::UnknownTool, reason);
    };
    if !within_budget {
        let reason = "this turn has no tool calls left; answer with what you have";
        return deny(call, DenyReason::Budget, reason.into());
    }
    let (keys, was_coerced) = match validate_args(tool.as_ref(), spec, &mut event.call) {
        Ok(valid) => valid,
        Err(invalid) => return deny(call, DenyReason::Validation, invalid.into()),
    };
    let verdict = match agent.verdict(&cx.session.state(), spec, &event.call.args) {
        Verdict::Allow if run::asks(cx, &call.call_id) => Verdict::Ask(Decider::User),
        verdict => verdict,
    };
    let is_answered = resolved.answer.is_some();
    // A call that was suspended before it ran has done its work with the answer, so it needs no approval.
    let has_run = resolved.progress.is_some();
    let approved = if is_answered && !has_run { Some(Decider::Approver) } else { resolved.approved };
    let by = if let Verdict::Ask(by) = verdict { by } else { Decider::User };
    let waits_for = match verdict {
        Verdict::Ask(_) if approved.is_none() => Some(WaitKind::Approval),
        verdict => match refusal(verdict, approved) {
            Some(reason) => return deny(call, DenyReason::Permission, reason),
            None => {
                spec.suspends.filter(|_| !is_answered && !tool.runs_here(&event.call.args, &cx.workspace()))
            }
        },
    };
    if waits_for.is_some()
        && let Some((denied, reason)) = cx.state.replay().blocked(&call.name)
    {
        // Nothing is asked, and no subagent started, for a call that would be denied afterwards.
        return deny(call, denied, reason);
    }
    // A tool that may wait for minutes runs alone, so that the outcomes of other calls are stored before.
    let effect = if tool.max_duration().is_some() { Effect::default() } else { spec.effect };
    let claim = Claim { effect, keys, replay: ReplayKey::of(&call.name, &event.call.args) };
    let admission = match waits_for {
        None => {
            let (shown, progress) = (resolved.shown, resolved.progress);
            let mut spec = spec.clone();
            if is_answered && !has_run && tool.only_returns_answers() {
                // The client has run the call, and what it returned may differ between equal calls.
                (spec.idempotent, spec.varies) = (true, true);
            }
            let answered = resolved.answer.map(|answer| Box::new(Answered { answer, shown, progress }));
            Admission::Run { tool, spec, call: event.call, answered, approved }
        }
        Some(kind) => match suspend(agent, cx, kind, tool.as_ref(), spec, event.call).await {
            Ok(suspension) => Admission::Wait(Box::new(Suspension { by, ..suspension })),
            Err(outcome) => return PreparedCall::settled(call, outcome),
        },
    };
    PreparedCall { claim, admission, call, was_coerced }
}

/// Builds the suspension of a call.
async fn suspend(
    agent: &HarnessAgent,
    cx: &RuntimeContext,
    kind: WaitKind,
    tool: &dyn DynTool,
    spec: &ToolSpec,
    call: ToolCall,
) -> Result<Suspension, ToolOutcome> {
    let wait = if kind == WaitKind::Approval {
        Wait::Approval
    } else {
        let now = cx.clock.now();
        let context = ToolContext::new(cx, &call.call_id, now + PAYLOAD_TIMEOUT, CancelToken::default());
        let payload =
            within(cx.clock.as_ref(), PAYLOAD_TIMEOUT, tool.suspension_payload(call.args.clone(), context))
                .await;
        let payload =
            payload.unwrap_or_else(|unfinished| Err(ToolOutcome::failure(unfinished.to_string())))?;
        Wait::new(kind, payload).map_err(|error| ToolOutcome::failure(error.to_string()))?
    };
    Ok(suspension(agent, cx, wait, spec.category, call))
}

/// Builds the suspension of a call that has run. Its hash is that of the payload, so that an answer can name the payload
/// that it is about: the call may wait several times.
pub(super) fn suspend_running(
    agent: &HarnessAgent,
    cx: &RuntimeContext,
    CallWait { wait, progress }: CallWait,
    spec: &ToolSpec,
    call: &ToolCall,
) -> Suspension {
    let args_hash = policy::args_hash(&wait.payload());
    let suspension = suspension(agent, cx, wait, spec.category, call.clone());
    Suspension { args_hash, progress: Some(progress), ..suspension }
}

fn suspension(
    agent: &HarnessAgent,
    cx: &RuntimeContext,
    wait: Wait,
    category: Category,
    call: ToolCall,
) -> Suspension {
    let now = cx.clock.now();
    // A subagent ends by its own budget; its suspended calls have their own expiry.
    let grace = if wait.kind() == WaitKind::Subagent { MAX_CHILD } else { Duration::ZERO };
    Suspension {
        turn: cx.turn().to_owned(),
        epoch: cx.permit.epoch,
        name: call.name,
        category,
        args_hash: policy::args_hash(&call.args),
        args: call.args,
        wait,
        progress: None,
        by: Decider::User,
        asked_at: now,
        expires_at: now + agent.settings.approval_ttl + grace,
        call_id: call.call_id,
        resolution: None,
        address: None,
        claim: None,
    }
}

/// Returns the outcome of a call that was declined, or whose external tool failed.
fn refusal_outcome(refusal: Resolution) -> ToolOutcome {
    match refusal {
        Resolution::Declined { reason, expired: false } => ToolOutcome::denied(DenyReason::Declined, reason),
        Resolution::Declined { reason, expired: true } => ToolOutcome::denied(DenyReason::Expired, reason),
        Resolution::Failed { reason } => ToolOutcome::failure(reason),
        Resolution::Unknown { reason } => unknown(&reason),
        // Only refusals are passed to this function.
        Resolution::Approved { .. } | Resolution::Answered { .. } => {
            ToolOutcome::failure("internal error: the call was not refused")
        }
    }
}

/// Checks the arguments and converts them to the schema's types where that is lossless. Returns the call's
/// resource keys and whether the arguments were converted.
pub(super) fn validate_args(
    tool: &dyn DynTool,
    spec: &ToolSpec,
    call: &mut ToolCall,
) -> Result<(Vec<String>, bool), Invalid> {
    if let Some(error) = &call.invalid {
        return Err(Invalid(format!("the arguments are not JSON: {error}")));
    }
    tool.check(&call.args).map(|keys| (keys, false)).or_else(|reason| {
        let mut coerced = call.args.clone();
        let keys =
            if schema::coerce(&spec.parameters, &mut coerced) { tool.check(&coerced).ok() } else { None };
        let keys = keys.ok_or(reason)?;
        call.args = coerced;
        Ok((keys, true))
    })
}

/// Returns the outcome of a call that may or may not have taken effect.
pub(super) fn unknown(what: &str) -> ToolOutcome {
    ToolOutcome::Unknown {
        reason: format!("{what}; it may or may not have taken effect. Check before you try again."),
    }
}
