//! Runs tool calls. Never fails: every error becomes an outcome.

use super::{
    ActDecision, CancelToken, DynTool, HarnessAgent, RuntimeContext, ToolContext,
    hook::{HookEvent, PostActing, PreActing},
};
use crate::ports::within;
use crate::session::{
    artifacts::{self, Stored},
    suspensions::Resolved,
};
use crate::turn::{
    machine::MIN_REMAINING,
    policy::{self, Verdict},
    replay::{ReplayCall, ReplayKey},
    scheduler::Claim,
    schema,
};
use crate::types::{
    CallStatus, DenyReason, Effect, EventKind, Invalid, Resolution, Source, Suspension, Timestamp, ToolCall,
    ToolOutcome, ToolSpec, Wait, WaitKind, time::millis,
};
use futures::{
    FutureExt,
    channel::oneshot,
    future::{Either, select},
    pin_mut,
};
use serde_json::Value;
use std::time::Duration;
use std::{any::Any, panic::AssertUnwindSafe, rc::Rc};

/// How long a tool may keep running after its call has ended, so that it can finish external work.
const LINGER: Duration = Duration::from_secs(30);
/// Timeout for building the payload of a suspension.
const PAYLOAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum lifetime of a subagent (30 days).
const MAX_CHILD: Duration = Duration::from_hours(30 * 24);

/// The reason given when a tool panicked.
const PANICKED: &str = "internal error: the tool panicked";

/// A tool call, and whether it may run.
pub(super) struct PreparedCall {
    /// The call as the model made it.
    pub call: ToolCall,
    /// What the scheduler uses to build waves.
    pub claim: Claim,
    admission: Admission,
    /// Whether the arguments were converted to the schema's types.
    was_coerced: bool,
}

enum Admission {
    /// The tool runs with these arguments, and with the answer if the call was suspended.
    Run { tool: Rc<dyn DynTool>, spec: ToolSpec, call: ToolCall, answered: Option<Answered> },
    /// The call is suspended before it runs.
    Wait(Box<Suspension>),
    /// The tool does not run; this is the outcome.
    Settled(ToolOutcome),
}

/// The answer to a suspended call, and the payload that was shown with it.
#[derive(Clone)]
struct Answered {
    answer: Value,
    shown: Value,
}

/// The result of a call.
pub(super) struct Completed {
    /// The outcome.
    pub outcome: ToolOutcome,
    /// How long the call took.
    pub elapsed: Duration,
    /// The sources that the tool cited.
    pub sources: Vec<Source>,
    /// The stored output, if it was large. Its pointer is committed together with the outcome.
    pub stored: Option<Stored>,
}

impl PreparedCall {
    fn settled(call: ToolCall, outcome: ToolOutcome) -> Self {
        // A call that does not run conflicts with no other.
        let claim = Claim {
            effect: Effect::ReadOnly,
            keys: Vec::new(),
            replay: ReplayKey::of(&call.name, &call.args),
        };
        Self { call, claim, admission: Admission::Settled(outcome), was_coerced: false }
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
        if let Admission::Run { spec, call, .. } = &self.admission
            && let Some(reason) = forbidden(agent, cx, spec, call)
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

    /// Creates the record of the call's outcome.
    pub fn record(&self, completed: Completed) -> EventKind {
        EventKind::ToolCompleted {
            call_id: self.call.call_id.clone(),
            name: self.call.name.clone(),
            outcome: completed.outcome,
            elapsed_ms: millis(completed.elapsed),
            was_coerced: self.was_coerced,
            ran_with: match &self.admission {
                Admission::Run { call, .. } if call.args != self.call.args => Some(call.args.clone()),
                _ => None,
            },
            sources: completed.sources,
        }
    }
}

fn turn_deadline(cx: &RuntimeContext) -> Timestamp {
    cx.session.state().activity.turn.as_ref().map_or(Timestamp(0), |turn| turn.deadline)
}

/// Returns why a call must not run, if the mode or the rules have changed since it was prepared.
fn forbidden(agent: &HarnessAgent, cx: &RuntimeContext, spec: &ToolSpec, call: &ToolCall) -> Option<String> {
    let state = cx.session.state();
    if agent.allowed_tools(&state).is_some_and(|allowed| !allowed.contains(&spec.name)) {
        return Some(format!("`{}` is no longer a tool of the session's mode", spec.name));
    }
    match agent.permissions(&state).decide(spec, &call.args) {
        Verdict::Deny(reason) => Some(reason),
        Verdict::Allow | Verdict::Ask => None,
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
/// over budget are denied; hooks may deny or answer; rules may deny or require approval. An interrupted call
/// is not repeated unless its tool is idempotent.
pub(super) async fn prepare(agent: &HarnessAgent, cx: &RuntimeContext, open: OpenCall) -> PreparedCall {
    let call = open.call.clone();
    let decided = AssertUnwindSafe(decide(agent, cx, open)).catch_unwind();
    decided.await.unwrap_or_else(|_| PreparedCall::settled(call, ToolOutcome::failure(PANICKED)))
}

async fn decide(agent: &HarnessAgent, cx: &RuntimeContext, open: OpenCall) -> PreparedCall {
    let OpenCall { call, status, within_budget, resolved } = open;
    let allowed = agent.allowed_tools(&cx.session.state());
    let known = agent.toolkit.get(&call.name);
    let known = known.filter(|(spec, _)| allowed.as_ref().is_none_or(|names| names.contains(&spec.name)));
    if status == CallStatus::Started && known.is_none_or(|(spec, _)| !spec.idempotent) {
        let settled =
            PreparedCall::settled(call, unknown("the session was evicted while the tool was running"));
        // The call may have written something, so that later calls must not share its wave.
        return PreparedCall { claim: Claim { effect: Effect::default(), ..settled.claim }, ..settled };
    }
    if let Some(refusal) = resolved.refusal {
        return PreparedCall::settled(call, refusal_outcome(refusal));
    }
    let mut event = PreActing { call: call.clone(), spec: known.map(|(spec, _)| spec) };
    if let Some(args) = &resolved.args {
        event.call.args = args.clone();
    }
    let mut decision = ActDecision::Continue;
    for hook in agent.hooks.at(HookEvent::PreActing) {
        match hook.pre_acting(&mut event, cx).await {
            ActDecision::Continue => {}
            deny @ ActDecision::Deny(_) => decision = deny,
            answer @ ActDecision::Answer(_) if decision == ActDecision::Continue => decision = answer,
            ActDecision::Answer(_) => {}
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
        ActDecision::Answer(outcome) => return PreparedCall::settled(call, outcome),
        ActDecision::Continue => {}
    }
    let Some((spec, tool)) = known else {
        // Only the tools that this turn may use are listed, because the model will try one of them next.
        let usable = |name: &&str| allowed.as_ref().is_none_or(|names| names.iter().any(|n| n == name));
        let names: Vec<&str> = agent.toolkit.names().filter(usable).collect();
        let reason = format!("there is no tool `{}`; there are: {}", call.name, names.join(", "));
        return deny(call, DenyReason::UnknownTool, reason);
    };
    let is_child = cx.session.state().meta.parent.is_some();
    if is_child && matches!(spec.suspends, Some(WaitKind::Plan | WaitKind::Subagent)) {
        // A forked session keeps all tools of its parent, so that both prompts share a cached prefix.
        return deny(
            call,
            DenyReason::Permission,
            "a subagent cannot use this tool: do the task yourself".into(),
        );
    }
    if !within_budget {
        let reason = "this turn has no tool calls left; answer with what you have";
        return deny(call, DenyReason::Budget, reason.into());
    }
    let (keys, was_coerced) = match validate_args(tool.as_ref(), spec, &mut event.call) {
        Ok(valid) => valid,
        Err(invalid) => return deny(call, DenyReason::Validation, invalid.into()),
    };
    let verdict = agent.permissions(&cx.session.state()).decide(spec, &event.call.args);
    let waits_for = match verdict {
        Verdict::Deny(reason) => return deny(call, DenyReason::Permission, reason),
        Verdict::Ask if !resolved.approved && resolved.answer.is_none() => Some(WaitKind::Approval),
        Verdict::Ask | Verdict::Allow => spec.suspends.filter(|_| resolved.answer.is_none()),
    };
    if waits_for.is_some()
        && let Some((denied, reason)) = cx.state.replay().blocked(&call.name)
    {
        // Nothing is asked, and no subagent started, for a call that would be denied afterwards.
        return deny(call, denied, reason);
    }
    let claim = Claim { effect: spec.effect, keys, replay: ReplayKey::of(&call.name, &event.call.args) };
    let admission = match waits_for {
        None => {
            let shown = resolved.shown;
            let answered = resolved.answer.map(|answer| Answered { answer, shown });
            Admission::Run { tool: Rc::clone(tool), spec: spec.clone(), call: event.call, answered }
        }
        Some(kind) => match suspend(agent, cx, kind, tool.as_ref(), spec, event.call).await {
            Ok(suspension) => Admission::Wait(Box::new(suspension)),
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
    let now = cx.clock.now();
    let wait = if kind == WaitKind::Approval {
        Wait::Approval
    } else {
        let context = ToolContext::new(cx, &call.call_id, now + PAYLOAD_TIMEOUT, CancelToken::default());
        let payload =
            within(cx.clock.as_ref(), PAYLOAD_TIMEOUT, tool.suspension_payload(call.args.clone(), context))
                .await;
        let payload =
            payload.unwrap_or_else(|unfinished| Err(ToolOutcome::failure(unfinished.to_string())))?;
        Wait::new(kind, payload).map_err(|error| ToolOutcome::failure(error.to_string()))?
    };
    // A subagent ends by its own budget; its suspended calls have their own expiry.
    let grace = if kind == WaitKind::Subagent { MAX_CHILD } else { Duration::ZERO };
    Ok(Suspension {
        turn: cx.turn().to_owned(),
        epoch: cx.permit.epoch,
        name: call.name,
        category: spec.category,
        args_hash: policy::args_hash(&call.args),
        args: call.args,
        wait,
        asked_at: now,
        expires_at: now + agent.settings.approval_ttl + grace,
        call_id: call.call_id,
        resolution: None,
    })
}

/// Returns the outcome of a call that was declined, or whose external tool failed.
fn refusal_outcome(refusal: Resolution) -> ToolOutcome {
    match refusal {
        Resolution::Declined { reason, expired: false } => ToolOutcome::denied(DenyReason::Declined, reason),
        Resolution::Declined { reason, expired: true } => ToolOutcome::denied(DenyReason::Expired, reason),
        Resolution::Failed { reason } => ToolOutcome::failure(reason),
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

/// Runs a prepared call and returns its outcome.
pub(super) async fn execute(
    agent: &HarnessAgent,
    cx: &Rc<RuntimeContext>,
    prepared: &PreparedCall,
) -> Completed {
    let started = cx.clock.now();
    let (outcome, sources) = match &prepared.admission {
        Admission::Settled(outcome) => (outcome.clone(), Vec::new()),
        Admission::Run { tool, spec, call, answered } => {
            run(cx, Rc::clone(tool), spec, call, answered.clone()).await
        }
        // `act` runs no call of a step while another call is suspended.
        Admission::Wait(_) => (ToolOutcome::failure("internal error: a suspended call was run"), Vec::new()),
    };
    let elapsed = cx.clock.now().since(started);
    let mut event = PostActing { call: &prepared.call, outcome, elapsed, stored: None };
    for hook in agent.hooks.at(HookEvent::PostActing) {
        if AssertUnwindSafe(hook.post_acting(&mut event, cx)).catch_unwind().await.is_err() {
            cx.state.sub_step_failed(hook.name(), "internal error: the hook panicked");
        }
    }
    let (outcome, stored) =
        artifacts::store_if_large(&cx.artifacts, agent.new_id(), event.outcome, agent.settings.artifact_ttl)
            .await;
    Completed { outcome, elapsed, sources, stored: event.stored.or(stored) }
}

/// What a tool returned, or its panic.
type Ended = Result<(ToolOutcome, Vec<Source>), Box<dyn Any + Send>>;

/// Runs a tool in a task of its own, and waits for it until the deadline. After the deadline, or after the
/// turn ended, the tool can no longer change the session.
async fn run(
    cx: &Rc<RuntimeContext>,
    tool: Rc<dyn DynTool>,
    spec: &ToolSpec,
    call: &ToolCall,
    answered: Option<Answered>,
) -> (ToolOutcome, Vec<Source>) {
    let now = cx.clock.now();
    let cap = cx.session.state().activity.turn.as_ref().map_or(0, |turn| turn.budget.tool_timeout_s);
    let deadline = turn_deadline(cx).min(now + Duration::from_secs(cap.into()));
    let over = CancelOnDrop(CancelToken::default());
    cx.state.begin(&call.call_id);
    let mut context = ToolContext::new(cx, &call.call_id, deadline, over.0.clone());
    if let Some(Answered { answer, shown }) = answered {
        context.answer = Some(answer);
        context.shown = shown;
    }
    let (sender, ended) = oneshot::channel::<Ended>();
    cx.spawner.spawn(supervise(Rc::clone(cx), tool, call.clone(), context, sender).boxed_local());

    let timer = cx.clock.sleep(deadline.since(now)).fuse();
    pin_mut!(timer);
    let failed = |why: &str| (ToolOutcome::failure(why), Vec::new());
    match select(ended, timer).await {
        Either::Left((Ok(Ok(ended)), _)) => ended,
        Either::Left((Ok(Err(_panic)), _)) => failed(PANICKED),
        Either::Left((Err(_), _)) => failed("the tool was dropped before it finished"),
        Either::Right(_) if !spec.idempotent => (unknown("the tool did not return in time"), Vec::new()),
        Either::Right(_) => {
            let reason = format!("the tool did not return within {} s", deadline.since(now).as_secs());
            (ToolOutcome::Timeout { reason, retryable: spec.retry_on_timeout }, Vec::new())
        }
    }
}

/// Runs a tool until it ends or [`LINGER`] after its call was canceled. A tool that ends too late only
/// leaves a record.
async fn supervise(
    cx: Rc<RuntimeContext>,
    tool: Rc<dyn DynTool>,
    call: ToolCall,
    context: ToolContext,
    sender: oneshot::Sender<Ended>,
) {
    let (started, over) = (cx.clock.now(), context.cancel.clone());
    if !context.gate.is_open() {
        // The turn ended before the tool was first polled.
        return;
    }
    // A panic in a tool must not end the turn.
    let work = AssertUnwindSafe(tool.call(call.args, context.clone())).catch_unwind();
    let patience = async {
        over.canceled().await;
        cx.clock.sleep(LINGER).await;
    };
    pin_mut!(patience);
    let Either::Left((ended, _)) = select(work, patience).await else { return };
    let ended = ended.map(|outcome| (outcome, context.take_sources()));
    if over.is_canceled() || sender.send(ended).is_err() {
        let elapsed_ms = millis(cx.clock.now().since(started));
        let late = EventKind::ToolLateResult { call_id: call.call_id, name: call.name, elapsed_ms };
        // Refused if this copy of the session is retired.
        let _ = cx.session.commit(cx.clock.now(), |draft| draft.record(Some(cx.turn()), late));
    }
}

/// Closes a call's write gate when the call is no longer awaited, even if it is dropped.
struct CancelOnDrop(CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Returns the outcome of a call that may or may not have taken effect.
pub(super) fn unknown(what: &str) -> ToolOutcome {
    ToolOutcome::Unknown {
        reason: format!("{what}; it may or may not have taken effect. Check before you try again."),
    }
}
