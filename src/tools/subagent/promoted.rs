//! What the tools have in common whose subagents go on in the background when the call has waited long enough.

use crate::agent::ToolContext;
use crate::types::{ChildStatus, ChildTask, Promoted, ToolOutcome, json::from_value};
use serde_json::json;

/// How long a call waits by default, in seconds.
const DEFAULT_WAIT: u32 = 30;
/// How long a call waits at most, in seconds.
pub(super) const MAX_WAIT: u32 = 600;

/// Returns how long a call waits by default.
pub(super) fn default_wait() -> u32 {
    DEFAULT_WAIT
}

/// Returns the outcome of an answered call.
pub(super) fn outcome(cx: ToolContext) -> ToolOutcome {
    let no_result = || ToolOutcome::failure("the subagent sent no result");
    let answer = cx.answer.unwrap_or_default();
    let Ok(task) = from_value::<ChildTask>(cx.shown) else { return no_result() };
    if let Ok(promoted) = from_value::<Promoted>(answer.clone()) {
        return promoted.outcome(&task);
    }
    let Ok(status) = from_value::<ChildStatus>(answer) else { return no_result() };
    match status.outcome() {
        ToolOutcome::Result { result: reply } => ToolOutcome::Result {
            result: json!({
                "agent_key": task.session, "agent_id": task.agent, "session_id": task.session, "reply": reply,
            }),
        },
        outcome => outcome,
    }
}
