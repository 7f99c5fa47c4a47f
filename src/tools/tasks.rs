//! The agent's own list of tasks: it steers the session and touches nothing else.
//!
//! What changes is told in the answers: the prompt shows the list as it stood when the turn began.

use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{Effect, NewTask, Task, TaskList, TaskPatch, task_list};
use schemars::JsonSchema;
use serde::Deserialize;

/// What a change is told in.
const UPDATE: &str = "task-list-update";

/// `task_write`.
pub struct TaskWrite;

/// All tasks.
#[derive(Deserialize, JsonSchema)]
pub struct WriteArgs {
    /// The whole list, in order; 100 at most.
    tasks: Vec<NewTask>,
}

impl Tool for TaskWrite {
    type Args = WriteArgs;
    type Output = String;
    const NAME: &'static str = "task_write";
    const DESCRIPTION: &'static str = "Writes your list of tasks, in the place of the whole old one. For work of several steps: \
         write the list first, keep one task in_progress, and complete each when it is done. The answer has the ids.";
    const EFFECT: Effect = Effect::LocalWrite;
    const IDEMPOTENT: bool = true;
    const CONTROL: bool = true;

    async fn run(&self, args: WriteArgs, cx: ToolContext) -> Result<String, ToolError> {
        let (_, list) = cx.change_tasks(|list| list.write(args.tasks))?;
        Ok(told(&list, list.0.iter()))
    }
}

/// `task_update`.
pub struct TaskUpdate;

impl Tool for TaskUpdate {
    type Args = TaskPatch;
    type Output = String;
    const NAME: &'static str = "task_update";
    const DESCRIPTION: &'static str = "Changes one task of your list. Another one that is in_progress becomes pending when \
         this one is set to in_progress.";
    const EFFECT: Effect = Effect::LocalWrite;
    const IDEMPOTENT: bool = true;
    const CONTROL: bool = true;

    async fn run(&self, args: TaskPatch, cx: ToolContext) -> Result<String, ToolError> {
        let id = args.id.clone();
        Ok(changed(&id, cx.change_tasks(|list| list.update(args))?))
    }
}

/// `task_complete`.
pub struct TaskComplete;

/// Which.
#[derive(Deserialize, JsonSchema)]
pub struct CompleteArgs {
    /// The task.
    id: String,
}

impl Tool for TaskComplete {
    type Args = CompleteArgs;
    type Output = String;
    const NAME: &'static str = "task_complete";
    const DESCRIPTION: &'static str = "Sets one task of your list to completed.";
    const EFFECT: Effect = Effect::LocalWrite;
    const IDEMPOTENT: bool = true;
    const CONTROL: bool = true;

    async fn run(&self, args: CompleteArgs, cx: ToolContext) -> Result<String, ToolError> {
        let id = args.id.clone();
        Ok(changed(&id, cx.change_tasks(|list| list.complete(args.id))?))
    }
}

/// `task_check`.
pub struct TaskCheck;

/// Takes nothing.
#[derive(Deserialize, JsonSchema)]
pub struct CheckArgs {}

impl Tool for TaskCheck {
    type Args = CheckArgs;
    type Output = task_list::TaskCheck;
    const NAME: &'static str = "task_check";
    const DESCRIPTION: &'static str = "Tells how far your list of tasks has come and what is left of it. Call it before you say that all is done.";
    const EFFECT: Effect = Effect::ReadOnly;
    const VARIES: bool = true;
    const CONTROL: bool = true;

    async fn run(&self, _args: CheckArgs, cx: ToolContext) -> Result<task_list::TaskCheck, ToolError> {
        Ok(cx.tasks().check())
    }
}

/// What is another now than it was, and the task that was asked for in any case.
fn changed(id: &str, (before, after): (TaskList, TaskList)) -> String {
    let is_told = |task: &&Task| task.id == id || !before.0.contains(task);
    told(&after, after.0.iter().filter(is_told))
}

/// Tasks of a list, and how far all of it has come.
fn told<'a>(list: &TaskList, tasks: impl IntoIterator<Item = &'a Task>) -> String {
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
