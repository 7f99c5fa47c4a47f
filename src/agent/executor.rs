//! Brings tool calls to their outcomes. Never fails: whatever happens becomes an outcome.

use super::{
    ActDecision, CancelToken, DynTool, HarnessAgent, RuntimeContext, ToolContext,
    hook::{HookEvent, PostActing, PreActing},
};
use crate::fault::{self, Fault};
use crate::ports::within;
use crate::session::{
    artifacts::{self, Stored},
    suspensions::Resolved,
};
use crate::turn::{
    machine::MIN_REMAINING_MS,
    policy::{self, Verdict},
    replay::{ReplayKey, Replayed},
    scheduler::Claim,
    schema,
};
use crate::types::{
    CallStatus, DenyReason, Effect, EventKind, Resolution, Source, Suspension, Timestamp, ToolCall,
    ToolOutcome, ToolSpec, Wait, WaitKind,
};
use futures::{
    FutureExt,
    channel::oneshot,
    future::{Either, select},
    pin_mut,
};
use serde_json::Value;
use std::{any::Any, panic::AssertUnwindSafe, rc::Rc};

/// How long a tool whose call is over may go on, in milliseconds: what it has begun outside can end.
const LINGER_MS: u64 = 30_000;
/// How long a tool may take to put its question, in milliseconds.
const PAYLOAD_TIMEOUT_MS: u64 = 10_000;

/// How much longer a call may wait for a child than for a person, in milliseconds (30 days).
const MAX_CHILD_MS: u64 = 30 * 24 * 60 * 60 * 1_000;

/// What is said of a panic.
const PANICKED: &str = "the tool broke (a defect of ours)";

/// A call and what is to become of it.
pub(super) struct PreparedCall {
    /// The call as the model made it.
    pub call: ToolCall,
    /// What the scheduler goes by.
    pub claim: Claim,
    admission: Admission,
    /// Whether the arguments that it runs with were brought into the schema's types.
    was_coerced: bool,
}

enum Admission {
    /// The tool runs with these arguments, and with what was answered.
    Run { tool: Rc<dyn DynTool>, spec: ToolSpec, call: ToolCall, answered: Option<Answered> },
    /// A person is asked first, or a subagent sent out.
    Wait(Box<Suspension>),
    /// The tool does not run.
    Settled(ToolOutcome),
}

/// What somebody answered, and to what.
#[derive(Clone)]
struct Answered {
    answer: Value,
    shown: Value,
}

/// What became of a call.
pub(super) struct Completed {
    /// Its outcome.
    pub outcome: ToolOutcome,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
    /// Where the answer comes from.
    pub sources: Vec<Source>,
    /// The answer, if it was large: its pointer is to be stored with the outcome.
    pub stored: Option<Stored>,
}

impl PreparedCall {
    fn settled(call: ToolCall, outcome: ToolOutcome) -> Self {
        // It touches nothing.
        let claim = Claim {
            effect: Effect::ReadOnly,
            keys: Vec::new(),
            replay: ReplayKey::of(&call.name, &call.args),
        };
        Self { call, claim, admission: Admission::Settled(outcome), was_coerced: false }
    }

    /// What it waits for, if it does.
    pub fn suspension(&self) -> Option<&Suspension> {
        match &self.admission {
            Admission::Wait(suspension) => Some(suspension),
            Admission::Run { .. } | Admission::Settled(_) => None,
        }
    }

    /// Whether the tool is to run, and a crash in it leaves the outcome unknown.
    pub fn needs_journal(&self) -> bool {
        matches!(&self.admission, Admission::Run { spec, .. } if !spec.idempotent)
    }

    /// Decides again right before the call, when earlier ones have their outcomes: what need not, must not or
    /// cannot run any more is settled.
    pub fn admit(&mut self, agent: &HarnessAgent, cx: &RuntimeContext) {
        if let Admission::Run { spec, call, .. } = &self.admission
            && let Some(reason) = forbidden(agent, cx, spec, call)
        {
            self.admission = Admission::Settled(ToolOutcome::denied(DenyReason::Permission, reason));
        }
        let (idempotent, reads) = match &self.admission {
            Admission::Run { spec, .. } => (spec.skips_repeats(), spec.effect.is_read()),
            // One more that does not fit: by now the tool may be closed.
            Admission::Settled(ToolOutcome::Denied { denied: DenyReason::Validation, .. }) => (false, true),
            Admission::Settled(_) | Admission::Wait(_) => return,
        };
        let (key, call_id, name) = (self.claim.replay, &self.call.call_id, &self.call.name);
        let replayed = Replayed { key, call_id, name, idempotent, reads };
        let refusal = cx.state.replay().refusal(&replayed).or_else(|| {
            let left = turn_deadline(cx).since(cx.clock.now());
            let late = left < MIN_REMAINING_MS;
            late.then(|| (DenyReason::Deadline, "the turn's time is all but over".to_owned()))
        });
        if let Some((denied, reason)) = refusal {
            self.admission = Admission::Settled(ToolOutcome::denied(denied, reason));
        }
    }

    /// The record of the call's outcome.
    pub fn record(&self, completed: Completed) -> EventKind {
        EventKind::ToolCompleted {
            call_id: self.call.call_id.clone(),
            name: self.call.name.clone(),
            outcome: completed.outcome,
            elapsed_ms: completed.elapsed_ms,
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
    cx.session.state().turn.as_ref().map_or(Timestamp(0), |turn| turn.deadline)
}

/// Why a call must not run any more: the mode may have changed since it was prepared, or the rules.
fn forbidden(agent: &HarnessAgent, cx: &RuntimeContext, spec: &ToolSpec, call: &ToolCall) -> Option<String> {
    let state = cx.session.state();
    if agent.allowed_tools(&state).is_some_and(|allowed| !allowed.contains(&spec.name)) {
        return Some(format!("`{}` is not among the tools of the session's mode any more", spec.name));
    }
    match agent.permissions(&state).decide(spec, &call.args) {
        Verdict::Deny(reason) if !fault::active(Fault::RunForbidden) => Some(reason),
        Verdict::Deny(_) | Verdict::Allow | Verdict::Ask => None,
    }
}

/// A call of the step at hand, before anything is decided.
#[derive(Clone)]
pub(super) struct OpenCall {
    /// The call as the model made it.
    pub call: ToolCall,
    /// How far it had come.
    pub status: CallStatus,
    /// Whether it is within the turn's budget.
    pub within_budget: bool,
    /// What its suspensions have come to.
    pub resolved: Resolved,
}

/// Decides what is to become of a call: unknown tools, bad arguments and spent budgets are denied,
/// hooks and rules may deny, hooks may answer, a person may have to be asked, and a non-idempotent call that
/// was cut off is not run again.
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
    let rerun = fault::active(Fault::RerunStarted);
    if status == CallStatus::Started && !rerun && known.is_none_or(|(spec, _)| !spec.idempotent) {
        let settled =
            PreparedCall::settled(call, unknown("the machine went away while the tool was running"));
        // It may have written: calls behind it are admitted when that is noted.
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
        // Hooks may forbid it still. But what somebody has consented to runs as it was shown.
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
        // Those that this turn may not use would be asked for next.
        let usable = |name: &&str| allowed.as_ref().is_none_or(|names| names.iter().any(|n| n == name));
        let names: Vec<&str> = agent.toolkit.names().filter(usable).collect();
        let reason = format!("there is no tool `{}`; there are: {}", call.name, names.join(", "));
        return deny(call, DenyReason::UnknownTool, reason);
    };
    let is_child = cx.session.state().meta.parent.is_some() && !fault::active(Fault::NestSubagents);
    if is_child && matches!(spec.suspends, Some(WaitKind::Plan | WaitKind::Subagent)) {
        // A copy of the session has the same tools as the original, so that the prompt begins alike.
        return deny(call, DenyReason::Permission, "this is not for a subagent: do the task yourself".into());
    }
    if !within_budget {
        let reason = "this turn's tool calls are spent; answer with what you have";
        return deny(call, DenyReason::Budget, reason.into());
    }
    let (keys, was_coerced) = match validate_args(tool.as_ref(), spec, &mut event.call) {
        Ok(valid) => valid,
        Err(reason) => return deny(call, DenyReason::Validation, reason),
    };
    let verdict = agent.permissions(&cx.session.state()).decide(spec, &event.call.args);
    let waits_for = match verdict {
        Verdict::Ask if fault::active(Fault::RunUnasked) => None,
        Verdict::Deny(_) if fault::active(Fault::RunForbidden) => None,
        Verdict::Deny(reason) => return deny(call, DenyReason::Permission, reason),
        Verdict::Ask if !resolved.approved && resolved.answer.is_none() => Some(WaitKind::Approval),
        Verdict::Ask | Verdict::Allow => spec.suspends.filter(|_| resolved.answer.is_none()),
    };
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

/// What is to be asked before a call may run.
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
        let context =
            ToolContext::new(cx, &call.call_id, now.plus(PAYLOAD_TIMEOUT_MS), CancelToken::default());
        let payload = within(
            cx.clock.as_ref(),
            PAYLOAD_TIMEOUT_MS,
            tool.suspension_payload(call.args.clone(), context),
        )
        .await;
        let payload =
            payload.unwrap_or_else(|unfinished| Err(ToolOutcome::failure(unfinished.to_string())))?;
        Wait::new(kind, payload).map_err(|error| ToolOutcome::failure(error.to_string()))?
    };
    // A child ends by its own limits; what it asks of people has its own time.
    let grace = if kind == WaitKind::Subagent { MAX_CHILD_MS } else { 0 };
    Ok(Suspension {
        turn: cx.turn().to_owned(),
        epoch: cx.permit.epoch,
        name: call.name,
        category: spec.category,
        args_hash: policy::args_hash(&call.args),
        args: call.args,
        wait,
        asked_at: now,
        expires_at: now.plus(agent.settings.approval_ttl_s.saturating_mul(1_000)).plus(grace),
        call_id: call.call_id,
        resolution: None,
    })
}

/// The outcome of a call that a person refused, or could not do.
fn refusal_outcome(refusal: Resolution) -> ToolOutcome {
    match refusal {
        Resolution::Declined { reason, expired: false } => ToolOutcome::denied(DenyReason::Declined, reason),
        Resolution::Declined { reason, expired: true } => ToolOutcome::denied(DenyReason::Expired, reason),
        Resolution::Failed { reason } => ToolOutcome::failure(reason),
        // What is no refusal never gets here.
        Resolution::Approved { .. } | Resolution::Answered { .. } => ToolOutcome::failure(PANICKED),
    }
}

/// Checks the arguments, brings them into the schema's types where that loses nothing, and says what
/// the call touches and whether its arguments were changed.
pub(super) fn validate_args(
    tool: &dyn DynTool,
    spec: &ToolSpec,
    call: &mut ToolCall,
) -> Result<(Vec<String>, bool), String> {
    if let Some(error) = &call.invalid {
        return Err(format!("the arguments are not JSON: {error}"));
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

/// Brings a prepared call to its outcome.
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
        // Nothing of a step runs as long as one of its calls waits.
        Admission::Wait(_) => (ToolOutcome::failure(PANICKED), Vec::new()),
    };
    let elapsed_ms = cx.clock.now().since(started);
    let mut event = PostActing { call: &prepared.call, outcome, elapsed_ms, stored: None };
    for hook in agent.hooks.at(HookEvent::PostActing) {
        if AssertUnwindSafe(hook.post_acting(&mut event, cx)).catch_unwind().await.is_err() {
            cx.state.sub_step_failed(hook.name(), PANICKED);
        }
    }
    let ttl_ms = agent.settings.artifact_ttl_s.saturating_mul(1_000);
    let (outcome, stored) =
        artifacts::keep_apart(&cx.artifacts, agent.new_artifact_id(), event.outcome, ttl_ms).await;
    Completed { outcome, elapsed_ms, sources, stored: event.stored.or(stored) }
}

/// What a tool that ended says, or what it panicked with.
type Ended = Result<(ToolOutcome, Vec<Source>), Box<dyn Any + Send>>;

/// Runs a tool as work of its own. It is waited for until its deadline; after that, or when the turn
/// has ended, it changes nothing any more.
async fn run(
    cx: &Rc<RuntimeContext>,
    tool: Rc<dyn DynTool>,
    spec: &ToolSpec,
    call: &ToolCall,
    answered: Option<Answered>,
) -> (ToolOutcome, Vec<Source>) {
    let now = cx.clock.now();
    let cap =
        cx.session.state().turn.as_ref().map_or(0, |turn| u64::from(turn.budget.tool_timeout_s) * 1_000);
    let deadline = turn_deadline(cx).min(now.plus(cap));
    let over = CancelOnDrop(CancelToken::default());
    cx.state.begin(&call.call_id);
    let mut context = ToolContext::new(cx, &call.call_id, deadline, over.0.clone());
    if let Some(Answered { answer, shown }) = answered {
        context.answer = Some(answer);
        context.shown = shown;
    }
    let (sender, ended) = oneshot::channel::<Ended>();
    cx.spawner.spawn(supervise(Rc::clone(cx), tool, call.clone(), context, sender).boxed_local());

    let wait = if fault::active(Fault::NoToolTimeout) { u64::MAX } else { deadline.since(now) };
    let timer = cx.clock.sleep(wait).fuse();
    pin_mut!(timer);
    let failed = |why: &str| (ToolOutcome::failure(why), Vec::new());
    match select(ended, timer).await {
        Either::Left((Ok(Ok(ended)), _)) => ended,
        Either::Left((Ok(Err(_panic)), _)) => failed(PANICKED),
        Either::Left((Err(_), _)) => failed("the tool was given up"),
        Either::Right(_) if !spec.idempotent => (unknown("the tool did not answer in time"), Vec::new()),
        Either::Right(_) => {
            let reason = format!("no answer within {} s", deadline.since(now) / 1_000);
            (ToolOutcome::Timeout { reason, retryable: spec.retry_on_timeout }, Vec::new())
        }
    }
}

/// Runs a tool to its end, or to the end of everybody's patience. An end that nobody waits for any
/// more leaves a record and nothing else.
async fn supervise(
    cx: Rc<RuntimeContext>,
    tool: Rc<dyn DynTool>,
    call: ToolCall,
    context: ToolContext,
    sender: oneshot::Sender<Ended>,
) {
    let (started, over) = (cx.clock.now(), context.cancel.clone());
    if !context.gate.is_open() && !fault::active(Fault::StartLate) {
        // The turn was ended before the tool had its first moment: it never begins.
        return;
    }
    // A panic of one tool must not take the turn with it.
    let work = AssertUnwindSafe(tool.call(call.args, context.clone())).catch_unwind();
    let patience = async {
        over.canceled().await;
        cx.clock.sleep(LINGER_MS).await;
    };
    pin_mut!(patience);
    let Either::Left((ended, _)) = select(work, patience).await else { return };
    let ended = ended.map(|outcome| (outcome, context.take_sources()));
    if over.is_canceled() || sender.send(ended).is_err() {
        let elapsed_ms = cx.clock.now().since(started);
        let late = EventKind::ToolLateResult { call_id: call.call_id, name: call.name, elapsed_ms };
        // A copy of the session that was given up refuses it, and then nobody is left to tell.
        let _ = cx.session.commit(cx.clock.now(), |draft| draft.record(Some(cx.turn()), late));
    }
}

/// Ends a call's right to write when its waiting ends, however that comes about.
struct CancelOnDrop(CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The outcome of a call that may or may not have had its effect.
pub(super) fn unknown(what: &str) -> ToolOutcome {
    if fault::active(Fault::DenyUnknown) {
        return ToolOutcome::denied(DenyReason::Canceled, what);
    }
    ToolOutcome::Unknown {
        reason: format!("{what}; it may or may not have taken effect. Check before you try again."),
    }
}
