//! The `agent_spawn` tool, whose subagent goes on in the background when the call has waited long enough.

use super::Kinds;
use crate::agent::{DynTool, ToolContext};
use crate::types::{ChildStatus, ChildTask, Invalid, Promoted, ToolOutcome, ToolSpec, json::from_value};
use futures::{
    FutureExt,
    future::{LocalBoxFuture, ready},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// How long a call waits by default, in seconds.
const DEFAULT_WAIT: u32 = 30;
/// How long a call waits at most, in seconds.
const MAX_WAIT: u32 = 600;
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
    #[serde(default = "default_wait")]
    timeout_seconds: u32,
}

fn default_wait() -> u32 {
    DEFAULT_WAIT
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
                    "Everything the subagent needs to know: it sees nothing else."},
                "label": {"type": "string", "description": "A short name, by which you recognize the subagent."},
                "timeout_seconds": {"type": "integer", "minimum": 0, "description":
                    "How long to wait for the result, at most 600. The default is 30."},
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

    fn suspension_payload<'a>(
        &'a self,
        args: Value,
        cx: ToolContext,
    ) -> LocalBoxFuture<'a, Result<Value, ToolOutcome>> {
        let task = |Args { agent_id: agent, task, label, timeout_seconds }, session| {
            let timeout_seconds = Some(timeout_seconds.min(MAX_WAIT));
            ChildTask { agent, task, forked: false, session, label, timeout_seconds }
        };
        super::delegated(&args, &cx, task)
    }

    fn call<'a>(&'a self, args: Value, cx: ToolContext) -> LocalBoxFuture<'a, ToolOutcome> {
        let session = ChildTask::session_of(&cx.session, &cx.turn, &cx.call_id);
        let answer = cx.answer.unwrap_or_default();
        let outcome = match (from_value::<Promoted>(answer.clone()), from_value::<ChildStatus>(answer)) {
            (Ok(promoted), _) => promoted.outcome(
                args["agent_id"].as_str().unwrap_or_default(),
                &session,
                args["timeout_seconds"] != 0,
            ),
            (Err(_), Ok(status)) => match status.outcome() {
                ToolOutcome::Result { result: reply } => ToolOutcome::Result {
                    result: json!({
                        "agent_key": session, "agent_id": args["agent_id"], "session_id": session, "reply": reply,
                    }),
                },
                outcome => outcome,
            },
            (Err(_), Err(_)) => ToolOutcome::failure("the subagent sent no result"),
        };
        ready(outcome).boxed_local()
    }
}
