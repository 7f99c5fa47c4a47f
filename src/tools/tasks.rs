//! Tools for the agent's task list. They control the session and have no other effect.
//!
//! Results contain the changes, because the prompt shows the list as of the start of the turn.

use crate::agent::{Tool, ToolContext, ToolError};
use crate::session::task_list::{self, NewTask, TaskList, TaskPatch};
use crate::types::{Effect, Task};
use schemars::JsonSchema;
use serde::Deserialize;

/// The tag around changed tasks.
const UPDATE: &str = "task-list-update";

/// The `task_write` tool.
pub struct TaskWrite;

/// The arguments of `task_write`.
#[derive(Deserialize, JsonSchema)]
pub struct WriteArgs {
    /// The complete list, in order; at most 100 tasks.
    tasks: Vec<NewTask>,
}

impl Tool for TaskWrite {
    type Args = WriteArgs;
    type Output = String;
    const NAME: &'static str = "task_write";
    const DESCRIPTION: &'static str = "Writes your task list, replacing the previous one. For work with several steps: write \
         the list first, keep one task in_progress, and complete each task when it is done. The result contains the ids.";
    const EFFECT: Effect = Effect::LocalWrite;
    const IDEMPOTENT: bool = true;
    const CONTROL: bool = true;

    async fn run(&self, args: WriteArgs, cx: ToolContext) -> Result<String, ToolError> {
        let (_, list) = cx.change_tasks(|list| list.write(args.tasks))?;
        Ok(render(&list, list.0.iter()))
    }
}

/// The `task_update` tool.
pub struct TaskUpdate;

impl Tool for TaskUpdate {
    type Args = TaskPatch;
    type Output = String;
    const NAME: &'static str = "task_update";
    const DESCRIPTION: &'static str = "Changes one task of your list. Setting it to in_progress sets any other task that is \
         in_progress to pending.";
    const EFFECT: Effect = Effect::LocalWrite;
    const IDEMPOTENT: bool = true;
    const CONTROL: bool = true;

    async fn run(&self, args: TaskPatch, cx: ToolContext) -> Result<String, ToolError> {
        let id = args.id.clone();
        Ok(changed(&id, cx.change_tasks(|list| list.update(args))?))
    }
}

/// The `task_complete` tool.
pub struct TaskComplete;

/// The arguments of `task_complete`.
#[derive(Deserialize, JsonSchema)]
pub struct CompleteArgs {
    /// The id of the task.
    id: String,
}

impl Tool for TaskComplete {
    type Args = CompleteArgs;
    type Output = String;
    const NAME: &'static str = "task_complete";
    const DESCRIPTION: &'static str = "Marks one task of your list as completed.";
    const EFFECT: Effect = Effect::LocalWrite;
    const IDEMPOTENT: bool = true;
    const CONTROL: bool = true;

    async fn run(&self, args: CompleteArgs, cx: ToolContext) -> Result<String, ToolError> {
        let id = args.id.clone();
        Ok(changed(&id, cx.change_tasks(|list| list.complete(args.id))?))
    }
}

/// The `task_check` tool.
pub struct TaskCheck;

/// The tool has no arguments.
#[derive(Deserialize, JsonSchema)]
pub struct CheckArgs {}

impl Tool for TaskCheck {
    type Args = CheckArgs;
    type Output = task_list::TaskCheck;
    const NAME: &'static str = "task_check";
    const DESCRIPTION: &'static str = "Returns the progress of your task list and the remaining tasks. Call it before you report that everything is done.";
    const EFFECT: Effect = Effect::ReadOnly;
    const VARIES: bool = true;
    const CONTROL: bool = true;

    async fn run(&self, _args: CheckArgs, cx: ToolContext) -> Result<task_list::TaskCheck, ToolError> {
        Ok(cx.tasks().check())
    }
}

/// Renders the tasks that changed, plus the requested one.
fn changed(id: &str, (before, after): (TaskList, TaskList)) -> String {
    let is_shown = |task: &&Task| task.id == id || !before.0.contains(task);
    render(&after, after.0.iter().filter(is_shown))
}

/// Renders `tasks`, and the progress of the whole list.
fn render<'a>(list: &TaskList, tasks: impl IntoIterator<Item = &'a Task>) -> String {
    let check = list.check();
    format!(
        "{}\n{} of {} completed, {} in progress, {} pending",
        TaskList::prompt_text(UPDATE, tasks),
        check.completed,
        check.total,
        check.in_progress,
        check.pending
    )
}
