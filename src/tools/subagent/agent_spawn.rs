//! The `agent_spawn` tool, whose subagent goes on in the background when the call has waited long enough.

use super::{
    Kinds,
    promoted::{MAX_WAIT, outcome},
};
use crate::agent::{DynTool, ToolContext};
use crate::types::{ChildTask, Invalid, Spawned, ToolOutcome, ToolSpec};
use futures::{
    FutureExt,
    future::{LocalBoxFuture, ready},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Maximum length of a label, in characters.
const MAX_LABEL: usize = 64;

/// The tool's name.
const NAME: &str = "agent_spawn";

/// The arguments of a call.
#[derive(Deserialize)]
struct Args {
    /// The kind of subagent.
    agent_id: String,
    /// What the child is asked to do.
    task: String,
    /// A name for the child.
    #[serde(default)]
    label: Option<String>,
    /// How long the call waits for the result.
    #[serde(default = "super::promoted::default_wait")]
    timeout_seconds: u32,
    /// Whether the child's session starts as a copy of the parent's.
    #[serde(default)]
    forked: bool,
}

/// The `agent_spawn` tool.
pub(super) struct AgentSpawn(pub Kinds);

impl DynTool for AgentSpawn {
    fn spec(&self) -> ToolSpec {
        let description = format!(
            "Spawns a subagent that works on a task on its own. Waits up to `timeout_seconds` for its result; then the \
             subagent goes on in the background, and you get a `task_id`. With `timeout_seconds` 0 it works in the \
             background from the start. You are shown the result of a background task as soon as it has ended. Available \
             agents:{}",
            self.0.description()
        );
        let parameters = json!({
            "type": "object",
            "properties": {
                "agent_id": {"type": "string", "enum": self.0.ids()},
                "task": {"type": "string", "description":
                    "Everything the subagent needs to know: it sees nothing else, unless it is forked."},
                "label": {"type": "string", "description": "A short name for the subagent, by which agent_send finds it."},
                "timeout_seconds": {"type": "integer", "minimum": 0, "description":
                    "How long to wait for the result, at most 600. The default is 30."},
                "forked": {"type": "boolean", "description":
                    "Whether the subagent starts with this whole conversation, as a copy of you. `agent_id` has no effect \
                     then."},
            },
            "required": ["agent_id", "task"],
        });
        super::spawning(NAME, description, parameters)
    }

    fn check(&self, args: &Value) -> Result<Vec<String>, Invalid> {
        let args: Args = super::read(args)?;
        self.0.check("agent_id", &args.agent_id, &args.task)?;
        let label = args.label.as_deref().map(|label| label.chars().count());
        if label.is_some_and(|chars| !(1..=MAX_LABEL).contains(&chars)) {
            return Err(Invalid(format!("`label` must have 1 to {MAX_LABEL} characters")));
        }
        Ok(Vec::new())
    }

    fn subagent_kind(&self, args: &Value, _spawned: &[Spawned]) -> Option<String> {
        let Args { agent_id, forked, .. } = super::read(args).ok()?;
        (!forked).then_some(agent_id)
    }

    fn suspension_payload<'a>(
        &'a self,
        args: Value,
        cx: ToolContext,
    ) -> LocalBoxFuture<'a, Result<Value, ToolOutcome>> {
        let task = |Args { agent_id: agent, task, label, timeout_seconds, forked }, session| {
            let timeout_seconds = Some(timeout_seconds.min(MAX_WAIT));
            ChildTask { agent, task, forked, session, label, timeout_seconds, further: None }
        };
        super::delegated(&args, &cx, task)
    }

    fn call<'a>(&'a self, _args: Value, cx: ToolContext) -> LocalBoxFuture<'a, ToolOutcome> {
        ready(outcome(cx)).boxed_local()
    }
}
