//! The tools for subagents. `subagent` spawns a subagent and waits for its result; the others work with subagents in the
//! background.
//!
//! A call that waits is suspended while the child works in its own session. See `agent::host::children`, and
//! `agent::host::background` for what follows when it no longer waits.

mod agent_list;
mod agent_send;
mod agent_spawn;
mod background_task;
mod promoted;

mod task_cancel;
mod task_list;
mod task_output;
mod wait_async_results;

use crate::agent::{DynTool, ToolContext, ToolError};
use crate::types::{
    BackgroundTask, Category, ChildStatus, ChildTask, Effect, Invalid, SessionId, Spawned, SubagentKind,
    ToolOutcome, ToolSpec, WaitKind, json::from_value, subagent::GENERAL,
};
use futures::{
    FutureExt,
    future::{LocalBoxFuture, ready},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{rc::Rc, time::Duration};

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

/// How often a call that waits for background tasks reads their state.
const POLL: Duration = Duration::from_millis(500);

/// Waits until the background tasks meet a condition, for at most `patience`, and not until the deadline of the call: it
/// must return before that.
///
/// # Errors
/// If the call is canceled.
async fn wait_until(
    is_met: impl Fn(&[BackgroundTask]) -> bool,
    patience: Duration,
    cx: &ToolContext,
) -> Result<(), ToolError> {
    let until = (cx.clock.now() + patience).min(cx.deadline - POLL);
    while !is_met(&cx.background_tasks()) && cx.clock.now() < until {
        let left = until.since(cx.clock.now());
        cx.unless_canceled(cx.clock.sleep(left.min(POLL))).await?;
    }
    Ok(())
}

/// Returns the tools for subagents in the background.
pub fn in_background(kinds: &[SubagentKind]) -> Vec<Rc<dyn DynTool>> {
    vec![
        Rc::new(agent_spawn::AgentSpawn(Kinds::new(kinds))),
        Rc::new(agent_send::AgentSend),
        Rc::new(agent_list::AgentList),
        Rc::new(task_output::TaskOutput),
        Rc::new(task_cancel::TaskCancel),
        Rc::new(task_list::TaskList),
        Rc::new(wait_async_results::WaitAsyncResults),
    ]
}

/// The kinds of subagents.
struct Kinds(Vec<SubagentKind>);

impl Kinds {
    /// Creates the list of these kinds and the general-purpose one.
    fn new(kinds: &[SubagentKind]) -> Self {
        let general = SubagentKind {
            id: GENERAL.to_owned(),
            description: "any task that can be described in one message".to_owned(),
            ..SubagentKind::default()
        };
        let own = kinds.iter().any(|kind| kind.id == GENERAL);
        Self((!own).then_some(general).into_iter().chain(kinds.iter().cloned()).collect())
    }

    fn ids(&self) -> Vec<&str> {
        self.0.iter().map(|kind| kind.id.as_str()).collect()
    }

    /// Returns the list for the model.
    fn description(&self) -> String {
        self.0.iter().map(|kind| format!("\n- {}: {}", kind.id, kind.description)).collect()
    }

    /// Checks the arguments of a call. `field` is the one with the kind.
    fn check(&self, field: &str, agent: &str, task: &str) -> Result<(), Invalid> {
        if !self.ids().contains(&agent) {
            let ids = self.ids().join(", ");
            return Err(Invalid(format!("unknown `{field}` {agent:?}; available: {ids}")));
        }
        check_task("task", task)
    }
}

/// Checks what a child is asked to do. `field` is the argument with it.
fn check_task(field: &str, task: &str) -> Result<(), Invalid> {
    match task.trim().chars().count() {
        1..=MAX_TASK => Ok(()),
        _ => Err(Invalid(format!("`{field}` must have 1 to {MAX_TASK} characters"))),
    }
}

/// Returns the spec of a tool that spawns subagents.
fn spawning(name: &str, description: String, parameters: Value) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description,
        parameters: parameters.into(),
        // The child's own calls are subject to permission rules, one by one.
        effect: Effect::LocalWrite,
        idempotent: true,
        retry_on_timeout: false,
        varies: true,
        category: Category::Other,
        control: true,
        suspends: Some(WaitKind::Subagent),
        client_may_repeat: false,
    }
}

/// Reads the arguments of a call.
fn read<A: DeserializeOwned>(args: &Value) -> Result<A, Invalid> {
    from_value(args.clone())
        .map_err(|error| Invalid(format!("the arguments do not match the schema: {error}")))
}

/// Returns the payload of a call's suspension: the task that it gives to the child in this session.
fn delegated<'a, A: DeserializeOwned>(
    args: &Value,
    cx: &ToolContext,
    task: impl FnOnce(A, SessionId) -> ChildTask,
) -> LocalBoxFuture<'a, Result<Value, ToolOutcome>> {
    // The same id each time, so that spawning twice creates one child.
    let session = ChildTask::session_of(&cx.session, &cx.turn, &cx.call_id);
    let task = read(args).map(|args| json!(task(args, session)));
    ready(task.map_err(|misfit| ToolOutcome::failure(misfit.0))).boxed_local()
}

/// The `subagent` tool.
pub struct Subagent(Kinds);

impl Subagent {
    /// Creates the tool with these kinds of subagents, and the general-purpose one.
    pub fn new(kinds: &[SubagentKind]) -> Self {
        Self(Kinds::new(kinds))
    }
}

impl DynTool for Subagent {
    fn spec(&self) -> ToolSpec {
        let description = format!(
            "Spawns a subagent that works on a task on its own, and waits for its result. Several subagents in one step \
             work concurrently. Available agents:{}",
            self.0.description()
        );
        let parameters = json!({
            "type": "object",
            "properties": {
                "agent": {"type": "string", "enum": self.0.ids()},
                "task": {"type": "string", "description":
                    "Everything the subagent needs to know: it sees nothing else, unless it is forked."},
                "forked": {"type": "boolean", "description":
                    "Whether the subagent starts with this whole conversation, as a copy of you. `agent` is ignored then."},
            },
            "required": ["agent", "task"],
        });
        spawning(NAME, description, parameters)
    }

    fn check(&self, args: &Value) -> Result<Vec<String>, Invalid> {
        let task: Args = read(args)?;
        self.0.check("agent", &task.agent, &task.task)?;
        // No resource keys, so that several subagents can work concurrently.
        Ok(Vec::new())
    }

    fn subagent_kind(&self, args: &Value, _spawned: &[Spawned]) -> Option<String> {
        let Args { agent, forked, .. } = read(args).ok()?;
        (!forked).then_some(agent)
    }

    fn suspension_payload<'a>(
        &'a self,
        args: Value,
        cx: ToolContext,
    ) -> LocalBoxFuture<'a, Result<Value, ToolOutcome>> {
        let task = |Args { agent, task, forked }, session| ChildTask {
            agent,
            task,
            forked,
            session,
            label: None,
            timeout_seconds: None,
            further: None,
        };
        delegated(&args, &cx, task)
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
