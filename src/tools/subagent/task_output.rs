//! The `task_output` tool.

use super::background_task::TaskResult;
use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{BackgroundTask, Category, Effect, TurnId};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// How long a call waits by default, in milliseconds.
const DEFAULT_WAIT: u64 = 30_000;
/// How long a call waits at most, in milliseconds.
const MAX_WAIT: u64 = 600_000;
/// How much longer a call may take, in milliseconds.
const MARGIN: u64 = 5_000;

/// The `task_output` tool.
pub(super) struct TaskOutput;

/// The arguments of `task_output`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Args {
    /// The id of the task.
    #[schemars(with = "String")]
    task_id: TurnId,
    /// Whether to wait until the task has ended.
    #[serde(default = "yes")]
    block: bool,
    /// How long to wait, in milliseconds, at most 600000.
    #[serde(default = "default_wait")]
    timeout: u64,
}

fn yes() -> bool {
    true
}

fn default_wait() -> u64 {
    DEFAULT_WAIT
}

impl Args {
    fn wait(&self) -> Duration {
        Duration::from_millis(if self.block { self.timeout.min(MAX_WAIT) } else { 0 })
    }
}

impl Tool for TaskOutput {
    type Args = Args;
    type Output = TaskResult;
    const NAME: &'static str = "task_output";
    const DESCRIPTION: &'static str = "Returns the status of a background task and, once it has ended, its whole result. \
         Waits for the end unless `block` is false.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Other;
    const CONTROL: bool = true;
    const VARIES: bool = true;
    const MAX_DURATION: Option<Duration> = Some(Duration::from_millis(MAX_WAIT + MARGIN));

    fn resource_keys(&self, _args: &Args) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, args: Args, cx: ToolContext) -> Result<TaskResult, ToolError> {
        let is_over = |tasks: &[BackgroundTask]| {
            let own = tasks.iter().find(|task| task.id == args.task_id);
            own.is_none_or(BackgroundTask::has_ended)
        };
        super::wait_until(is_over, args.wait(), &cx).await?;
        let task = cx.background_task(&args.task_id)?;
        if task.ended_at.is_some() {
            cx.show_task(task.id.clone());
        }
        Ok(task.into())
    }
}
