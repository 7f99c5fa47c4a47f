//! Runs in the loop: their model, their tools, and which of their calls need an approval.

use super::{HarnessAgent, RuntimeContext};
use crate::ports::{Model, StoreError, session_store::Select};
use crate::runs::{KINDS, Run, RunModel};
use crate::session::Session;
use crate::types::{CallId, SessionState};
use std::rc::Rc;

/// Reads the run that a session does.
///
/// # Errors
/// If the store fails.
pub fn read_run(session: &Session) -> Result<Run, StoreError> {
    let id = session.state().meta.id.clone();
    Run::of(id, session.records(Select { kinds: KINDS, ..Select::default() }))
}

/// Returns the run as of the newest record. The calls of a wave share what was read.
fn current(cx: &RuntimeContext) -> Result<Rc<Run>, StoreError> {
    let seq = cx.session.last_seq();
    if let Some(run) = cx.state.run(seq) {
        return Ok(run);
    }
    let run = Rc::new(read_run(&cx.session)?);
    cx.state.set_run(seq, &run);
    Ok(run)
}

/// Returns the model of the session's next step: the agent's, or that of the run, which asks the agent's.
pub(super) fn model(
    agent: &HarnessAgent,
    cx: &RuntimeContext,
    state: &SessionState,
    inner: Rc<dyn Model>,
) -> Result<Rc<dyn Model>, StoreError> {
    if !state.meta.id.is_run() {
        return Ok(inner);
    }
    let usable = agent.usable_tools(state, &cx.state);
    let tools: Vec<String> = usable.iter().map(|spec| spec.name.clone()).collect();
    let verify = agent.settings.verify.as_ref().map(|verify| verify.tool.clone());
    let verify = verify.filter(|tool| tools.contains(tool));
    Ok(Rc::new(RunModel { run: current(cx)?, inner, tools, verify }))
}

/// Returns whether the run needs an approval of a call, whatever the rules allow. A run that cannot be read needs one.
pub(super) fn asks(cx: &RuntimeContext, call: &CallId) -> bool {
    cx.session.state().meta.id.is_run() && current(cx).map_or(true, |run| run.asks(call))
}
