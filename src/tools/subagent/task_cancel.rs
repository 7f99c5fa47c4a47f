//! The `task_cancel` tool.

use super::background_task::TaskResult;
use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{Effect, TurnId};
use schemars::JsonSchema;
use serde::Deserialize;

/// The `task_cancel` tool.
pub(super) struct TaskCancel;

/// The arguments of `task_cancel`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Args {
    /// The id of the task.
    #[schemars(with = "String")]
    task_id: TurnId,
}

impl Tool for TaskCancel {
    type Args = Args;
    type Output = TaskResult;
    const NAME: &'static str = "task_cancel";
    const DESCRIPTION: &'static str = "Cancels a background task. Its subagent stops, and you are shown what it has written \
         so far. A task that has ended stays as it is.";
    const EFFECT: Effect = Effect::LocalWrite;
    const IDEMPOTENT: bool = true;
    const CONTROL: bool = true;

    async fn run(&self, args: Args, cx: ToolContext) -> Result<TaskResult, ToolError> {
        let task = cx.background_task(&args.task_id)?;
        if task.ended_at.is_none() {
            cx.cancel_background_task(&args.task_id)?;
        }
        Ok(cx.background_task(&args.task_id)?.into())
    }
}
