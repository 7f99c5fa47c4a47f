//! The `task_list` tool.

use super::background_task::TaskResult;
use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{Category, Effect, TurnStatus};
use schemars::JsonSchema;
use serde::Deserialize;

/// The `task_list` tool.
pub(super) struct TaskList;

/// The arguments of `task_list`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Args {
    /// Only tasks with this status.
    #[serde(default)]
    status_filter: Option<TurnStatus>,
}

impl Tool for TaskList {
    type Args = Args;
    type Output = Vec<TaskResult>;
    const NAME: &'static str = "task_list";
    const DESCRIPTION: &'static str =
        "Lists your background tasks, oldest first. `task_output` returns the result of one.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Other;
    const CONTROL: bool = true;
    const VARIES: bool = true;

    async fn run(&self, args: Args, cx: ToolContext) -> Result<Vec<TaskResult>, ToolError> {
        let tasks = cx.list_background_tasks()?.into_iter();
        let listed = tasks.filter(|task| args.status_filter.is_none_or(|status| task.status == status));
        Ok(listed.map(TaskResult::from).collect())
    }
}
