//! The `agent_send` tool, which gives a further task to a subagent that the agent has spawned.

use super::promoted::{MAX_WAIT, outcome};
use crate::agent::{DynTool, ToolContext};
use crate::types::{ChildTask, FurtherTask, Invalid, Spawned, ToolOutcome, ToolSpec};
use futures::{
    FutureExt,
    future::{LocalBoxFuture, ready},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// The tool's name.
const NAME: &str = "agent_send";

/// The arguments of a call.
#[derive(Deserialize)]
struct Args {
    /// The session of the subagent.
    #[serde(default)]
    agent_key: Option<String>,
    /// The name that the subagent was given.
    #[serde(default)]
    label: Option<String>,
    /// What the subagent is asked to do.
    message: String,
    /// How long the call waits for the result.
    #[serde(default = "super::promoted::default_wait")]
    timeout_seconds: u32,
}

impl Args {
    /// Finds the subagent.
    fn find<'a>(&self, spawned: &'a [Spawned]) -> Result<&'a Spawned, Invalid> {
        let is_meant = |own: &&Spawned| {
            self.agent_key.as_ref().is_none_or(|key| *own.session == **key)
                && self.label.as_ref().is_none_or(|label| own.label.as_ref() == Some(label))
        };
        let name = self.agent_key.as_deref().or(self.label.as_deref()).unwrap_or_default();
        let mut found = spawned.iter().filter(is_meant);
        match (found.next(), found.next()) {
            (Some(own), None) => Ok(own),
            (Some(_), Some(_)) => {
                Err(Invalid(format!("several of your subagents are called {name:?}; use `agent_key`")))
            }
            (None, _) => {
                Err(Invalid(format!("you have no subagent {name:?}; agent_list returns those that you have")))
            }
        }
    }
}

/// The `agent_send` tool.
pub(super) struct AgentSend;

impl DynTool for AgentSend {
    fn spec(&self) -> ToolSpec {
        let description = "Sends a further message to a subagent that you have spawned with agent_spawn. The subagent still \
                           has its conversation. If it is working, it reads the message when its task has ended. Waits up to \
                           `timeout_seconds` for the reply, like agent_spawn.";
        let parameters = json!({
            "type": "object",
            "properties": {
                "agent_key": {"type": "string", "description": "The subagent's `agent_key`."},
                "label": {"type": "string", "description": "Its label, in place of `agent_key`."},
                "message": {"type": "string"},
                "timeout_seconds": {"type": "integer", "minimum": 0, "description":
                    "How long to wait for the reply, at most 600. The default is 30. With 0, the subagent works in the \
                     background from the start."},
            },
            "required": ["message"],
        });
        super::spawning(NAME, description.to_owned(), parameters)
    }

    fn check(&self, args: &Value) -> Result<Vec<String>, Invalid> {
        let args: Args = super::read(args)?;
        if args.agent_key.is_some() == args.label.is_some() {
            return Err(Invalid("one of `agent_key` and `label` is required".into()));
        }
        super::check_task("message", &args.message)?;
        Ok(Vec::new())
    }

    fn subagent_kind(&self, args: &Value, spawned: &[Spawned]) -> Option<String> {
        let args = super::read::<Args>(args).ok()?;
        // A message to an unknown or ambiguous subagent is not sent.
        args.find(spawned).ok().filter(|own| !own.forked).map(|own| own.agent.clone())
    }

    fn suspension_payload<'a>(
        &'a self,
        args: Value,
        cx: ToolContext,
    ) -> LocalBoxFuture<'a, Result<Value, ToolOutcome>> {
        let task = super::read::<Args>(&args).and_then(|args| {
            let spawned = cx.spawned();
            let Spawned { session, agent, label, forked, tasks } = args.find(&spawned)?.clone();
            let turn = ChildTask::turn_of(&cx.session, &cx.turn, &cx.call_id);
            Ok(ChildTask {
                agent,
                task: args.message,
                forked,
                session,
                label,
                timeout_seconds: Some(args.timeout_seconds.min(MAX_WAIT)),
                further: Some(FurtherTask { turn, number: tasks }),
            })
        });
        ready(task.map(|task| json!(task)).map_err(|unknown| ToolOutcome::failure(unknown.0))).boxed_local()
    }

    fn call<'a>(&'a self, _args: Value, cx: ToolContext) -> LocalBoxFuture<'a, ToolOutcome> {
        ready(outcome(cx)).boxed_local()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn spawned(session: &str, label: Option<&str>) -> Spawned {
        Spawned {
            session: session.into(),
            agent: "general-purpose".into(),
            label: label.map(str::to_owned),
            forked: false,
            tasks: 1,
        }
    }

    #[test]
    fn a_subagent_is_found_by_its_key_or_by_a_label_that_only_it_has() {
        let all = [
            spawned("ses_1", Some("reader")),
            spawned("ses_2", Some("writer")),
            spawned("ses_3", Some("writer")),
            spawned("ses_4", None),
        ];
        let find = |name: &str, value: &str| {
            let args: Args = super::super::read(&json!({name: value, "message": "Go on."})).unwrap();
            args.find(&all).map(|own| own.session.to_string()).map_err(|error| error.0)
        };
        assert_eq!(find("agent_key", "ses_3"), Ok("ses_3".into()));
        assert_eq!(find("label", "reader"), Ok("ses_1".into()));
        let several = "several of your subagents are called \"writer\"; use `agent_key`";
        assert_eq!(find("label", "writer"), Err(several.into()));
        let none = "you have no subagent \"ses_5\"; agent_list returns those that you have";
        assert_eq!(find("agent_key", "ses_5"), Err(none.into()));
    }

    #[test]
    fn a_message_needs_one_receiver_and_some_text() {
        let check = |args: Value| AgentSend.check(&args).map_err(|error| error.0);
        let receiver = "one of `agent_key` and `label` is required";
        assert_eq!(check(json!({"message": "Go on."})), Err(receiver.into()));
        assert_eq!(check(json!({"agent_key": "k", "label": "l", "message": "Go on."})), Err(receiver.into()));
        assert!(check(json!({"label": "l", "message": " "})).unwrap_err().starts_with("`message` must have"));
        assert_eq!(check(json!({"label": "l", "message": "Go on."})), Ok(vec![]));
    }
}
