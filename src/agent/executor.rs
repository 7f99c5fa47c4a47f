//! Runs tool calls. Never fails: every error becomes an outcome.

use super::{
    CancelToken, DynTool, HarnessAgent, RuntimeContext, Tool, ToolContext,
    admission::{Admission, Answered, PANICKED, PreparedCall, suspend_running, turn_deadline, unknown},
    find_tools::FindTools,
    hook::{HookEvent, PostActing},
    tool_context::{CallOutputs, CallWait},
};
use crate::session::artifacts::{self, Stored};
use crate::types::{
    CallUsage, EventKind, Source, Suspension, ToolCall, ToolOutcome, ToolSpec, TurnId, time::millis,
};
use futures::{
    FutureExt,
    channel::oneshot,
    future::{Either, select},
    pin_mut,
};
use std::time::Duration;
use std::{any::Any, panic::AssertUnwindSafe, rc::Rc};

/// How long a tool may keep running after its call has ended, so that it can finish external work.
const LINGER: Duration = Duration::from_secs(30);

/// The result of a call.
pub(super) struct Completed {
    /// The outcome.
    pub outcome: ToolOutcome,
    /// How long the call took.
    pub elapsed: Duration,
    /// The sources that the tool cited.
    pub sources: Vec<Source>,
    /// The background tasks whose results are part of the outcome.
    pub shown: Vec<TurnId>,
    /// The files of the call, and its output if it was large. Their pointers are committed together with the outcome.
    pub stored: Vec<Stored>,
    /// What the call has consumed of models.
    pub usage: Vec<CallUsage>,
}

impl Completed {
    /// Creates the record of the outcome of this call.
    pub fn record(self, prepared: &PreparedCall) -> EventKind {
        EventKind::ToolCompleted {
            call_id: prepared.call.call_id.clone(),
            name: prepared.call.name.clone(),
            outcome: self.outcome,
            elapsed_ms: millis(self.elapsed),
            was_coerced: prepared.was_coerced,
            ran_with: match &prepared.admission {
                Admission::Run { call, .. } if call.args != prepared.call.args => Some(call.args.clone()),
                _ => None,
            },
            sources: self.sources,
        }
    }
}

/// How a call that has run goes on.
pub(super) enum Executed {
    /// It has an outcome.
    Completed(Box<Completed>),
    /// It waits, and runs again after that.
    Suspended(Box<Suspension>),
}

impl Executed {
    /// Returns the outcome of a call that has one.
    pub fn outcome(&self) -> Option<&ToolOutcome> {
        match self {
            Self::Completed(completed) => Some(&completed.outcome),
            Self::Suspended(_) => None,
        }
    }
}

/// Runs a prepared call.
pub(super) async fn execute(
    agent: &HarnessAgent,
    cx: &Rc<RuntimeContext>,
    prepared: &PreparedCall,
) -> Executed {
    let started = cx.clock.now();
    let Returned { outcome, sources, shown, outputs, .. } = match &prepared.admission {
        Admission::Settled(outcome) => outcome.clone().into(),
        Admission::Run { tool, spec, call, answered, .. } => {
            let returned = run(agent, cx, Rc::clone(tool), spec, call, answered.clone()).await;
            if let Some(wait) = returned.wait {
                return Executed::Suspended(Box::new(suspend_running(agent, cx, wait, spec, call)));
            }
            returned
        }
        // `act` runs no call of a step while another call is suspended.
        Admission::Wait(_) => ToolOutcome::failure("internal error: a suspended call was run").into(),
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
    let CallOutputs { files, usage } = outputs;
    let stored = files.into_iter().chain(event.stored.or(stored)).collect();
    Executed::Completed(Box::new(Completed { outcome, elapsed, sources, shown, stored, usage }))
}

/// What a tool returned.
struct Returned {
    outcome: ToolOutcome,
    sources: Vec<Source>,
    /// The background tasks whose results are part of the outcome.
    shown: Vec<TurnId>,
    outputs: CallOutputs,
    /// What the call waits for, in place of the outcome.
    wait: Option<CallWait>,
}

impl From<ToolOutcome> for Returned {
    fn from(outcome: ToolOutcome) -> Self {
        let (outputs, wait) = (CallOutputs::default(), None);
        Self { outcome, sources: Vec::new(), shown: Vec::new(), outputs, wait }
    }
}

/// What a tool returned, or its panic.
type Ended = Result<Returned, Box<dyn Any + Send>>;

/// Runs a tool in a task of its own, and waits for it until the deadline. After the deadline, or after the
/// turn ended, the tool can no longer change the session.
async fn run(
    agent: &HarnessAgent,
    cx: &Rc<RuntimeContext>,
    tool: Rc<dyn DynTool>,
    spec: &ToolSpec,
    call: &ToolCall,
    answered: Option<Box<Answered>>,
) -> Returned {
    let now = cx.clock.now();
    let cap = cx.session.state().activity.turn.as_ref().map_or(0, |turn| turn.budget.tool_timeout_s);
    let cap = tool.max_duration().unwrap_or(Duration::from_secs(cap.into()));
    let deadline = turn_deadline(cx).min(now + cap);
    let over = CancelOnDrop(CancelToken::default());
    cx.state.begin(&call.call_id);
    let mut context = ToolContext::new(cx, &call.call_id, deadline, over.0.clone());
    if spec.name == FindTools::NAME {
        context.usable = agent.usable_tools(&cx.session.state(), &cx.state);
    }
    if let Some(answered) = answered {
        let Answered { answer, shown, progress } = *answered;
        context.answer = Some(answer);
        context.shown = shown;
        context.progress = progress;
    }
    let (sender, ended) = oneshot::channel::<Ended>();
    cx.spawner.spawn(supervise(Rc::clone(cx), tool, call.clone(), context, sender).boxed_local());

    let timer = cx.clock.sleep(deadline.since(now)).fuse();
    pin_mut!(timer);
    let failed = |why: &str| ToolOutcome::failure(why).into();
    match select(ended, timer).await {
        Either::Left((Ok(Ok(ended)), _)) => ended,
        Either::Left((Ok(Err(_panic)), _)) => failed(PANICKED),
        Either::Left((Err(_), _)) => failed("the tool was dropped before it finished"),
        Either::Right(_) if !spec.idempotent => unknown("the tool did not return in time").into(),
        Either::Right(_) => {
            let reason = format!("the tool did not return within {} s", deadline.since(now).as_secs());
            ToolOutcome::Timeout { reason, retryable: spec.retry_on_timeout }.into()
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
    let ended = ended.map(|outcome| {
        let (sources, shown) = (context.take_sources(), context.take_shown());
        Returned { outcome, sources, shown, outputs: context.take_outputs(), wait: context.take_wait() }
    });
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
