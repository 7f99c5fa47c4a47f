//! The `subagent` tool, which spawns a subagent and waits for its result.
//!
//! The call is suspended while the child works in its own session. See `agent::host::children`.

use crate::agent::{DynTool, ToolContext};
use crate::types::{
    Category, ChildStatus, ChildTask, Effect, Invalid, SubagentKind, ToolOutcome, ToolSpec, WaitKind,
    json::from_value, subagent::GENERAL,
};
use futures::{
    FutureExt,
    future::{LocalBoxFuture, ready},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Maximum length of a task, in characters.
const MAX_TASK: usize = 50_000;

/// The tool's name.
const NAME: &str = "subagent";

/// The arguments of a call.
#[derive(Deserialize)]
struct Args {
    /// The kind of subagent.
    agent: String,
    /// What the child is asked to do.
    task: String,
    /// Whether the child's session starts as a copy of the parent's.
    #[serde(default)]
    forked: bool,
}

/// The `subagent` tool.
pub struct Subagent(Vec<SubagentKind>);

impl Subagent {
    /// Creates the tool with these kinds of subagents, and the general-purpose one.
    pub fn new(kinds: &[SubagentKind]) -> Self {
        let general = SubagentKind {
            id: GENERAL.to_owned(),
            description: "any task that can be described in one message".to_owned(),
            ..SubagentKind::default()
        };
        let own = kinds.iter().any(|kind| kind.id == GENERAL);
        Self((!own).then_some(general).into_iter().chain(kinds.iter().cloned()).collect())
    }
}

impl DynTool for Subagent {
    fn spec(&self) -> ToolSpec {
        let ids: Vec<&str> = self.0.iter().map(|kind| kind.id.as_str()).collect();
        let kinds = self.0.iter().map(|kind| format!("\n- {}: {}", kind.id, kind.description));
        ToolSpec {
            name: NAME.to_owned(),
            description: format!(
                "Spawns a subagent that works on a task on its own, and waits for its result. Several subagents in one \
                 step work concurrently. Available agents:{}",
                kinds.collect::<String>()
            ),
            parameters: json!({
                "type": "object",
                "properties": {
                    "agent": {"type": "string", "enum": ids},
                    "task": {"type": "string", "description":
                        "Everything the subagent needs to know: it sees nothing else, unless it is forked."},
                    "forked": {"type": "boolean", "description":
                        "Whether the subagent starts with this whole conversation, as a copy of you. `agent` is ignored then."},
                },
                "required": ["agent", "task"],
            }),
            // The child's own calls are subject to permission rules, one by one.
            effect: Effect::LocalWrite,
            idempotent: true,
            retry_on_timeout: false,
            varies: true,
            category: Category::Other,
            control: true,
            suspends: Some(WaitKind::Subagent),
        }
    }

    fn check(&self, args: &Value) -> Result<Vec<String>, Invalid> {
        let task: Args = from_value(args.clone())
            .map_err(|error| format!("the arguments do not match the schema: {error}"))?;
        if !self.0.iter().any(|kind| kind.id == task.agent) {
            let ids: Vec<&str> = self.0.iter().map(|kind| kind.id.as_str()).collect();
            return Err(Invalid(format!("unknown `agent` {:?}; available: {}", task.agent, ids.join(", "))));
        }
        if !(1..=MAX_TASK).contains(&task.task.trim().chars().count()) {
            return Err(Invalid(format!("`task` must have 1 to {MAX_TASK} characters")));
        }
        // No resource keys, so that several subagents can work concurrently.
        Ok(Vec::new())
    }

    fn suspension_payload<'a>(
        &'a self,
        args: Value,
        cx: ToolContext,
    ) -> LocalBoxFuture<'a, Result<Value, ToolOutcome>> {
        // The same id each time, so that spawning twice creates one child.
        let session = ChildTask::session_of(&cx.session, &cx.turn, &cx.call_id);
        let task = from_value::<Args>(args)
            .map(|Args { agent, task, forked }| json!(ChildTask { agent, task, forked, session }));
        ready(task.map_err(|misfit| ToolOutcome::failure(misfit.to_string()))).boxed_local()
    }

    fn call<'a>(&'a self, _args: Value, cx: ToolContext) -> LocalBoxFuture<'a, ToolOutcome> {
        let report = from_value::<ChildStatus>(cx.answer.unwrap_or_default());
        let outcome = report.map(|report| report.outcome());
        ready(outcome.unwrap_or_else(|_| ToolOutcome::failure("the subagent sent no result"))).boxed_local()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TurnStatus;
    use pretty_assertions::assert_eq;

    #[test]
    fn arguments_need_a_known_kind_and_a_task() {
        let reviewer = SubagentKind { id: "reviewer".into(), ..SubagentKind::default() };
        let tool = Subagent::new(&[reviewer]);
        let check = |agent: &str, task: &str| tool.check(&json!({"agent": agent, "task": task}));
        assert_eq!(check("reviewer", "Look."), Ok(vec![]));
        assert_eq!(check(GENERAL, "Look."), Ok(vec![]));
        let error = check("critic", "Look.").unwrap_err();
        assert_eq!(error.0, "unknown `agent` \"critic\"; available: general-purpose, reviewer");
        for task in ["", " \n", &"x".repeat(MAX_TASK + 1)] {
            assert!(check(GENERAL, task).unwrap_err().0.starts_with("`task` must have 1 to"));
        }
    }

    #[test]
    fn the_final_status_becomes_the_outcome() {
        let outcome = |status, text: &str, error: Option<&str>| {
            let report = ChildStatus {
                status,
                text: text.into(),
                error: error.map(str::to_owned),
                ..ChildStatus::running("s".into(), "c".into())
            };
            report.outcome()
        };
        let result = |text: &str| ToolOutcome::Result { result: text.into() };
        assert_eq!(outcome(TurnStatus::Completed, "Done.", None), result("Done."));
        assert_eq!(outcome(TurnStatus::Canceled, "Half", None), result("[Aborted by user]\n\nHalf"));
        assert_eq!(outcome(TurnStatus::Canceled, "", None), result("[Aborted by user]"));
        let failed = outcome(TurnStatus::Failed, "Half", Some("no model"));
        assert_eq!(failed, ToolOutcome::failure("the subagent failed: no model"));
    }
}
