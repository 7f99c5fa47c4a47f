//! The `wait_async_results` tool.

use super::background_task::TaskResult;
use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{BackgroundTask, Category, Effect, TurnId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, time::Duration};

/// How long a call waits by default, in seconds.
const DEFAULT_WAIT: u64 = 60;
/// How long a call waits at most, in seconds.
const MAX_WAIT: u64 = 120;
/// How much longer a call may take, in seconds.
const MARGIN: u64 = 5;
/// Maximum number of calls in a row in which no task ends.
const MAX_EMPTY: u32 = 2;

/// The `wait_async_results` tool.
pub(super) struct WaitAsyncResults;

/// The arguments of `wait_async_results`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Args {
    /// How long to wait, in seconds, at most 120.
    #[serde(default = "default_wait")]
    timeout_seconds: u64,
    /// The tasks to wait for; all that have not ended if absent.
    #[serde(default)]
    #[schemars(with = "Option<Vec<String>>")]
    task_ids: Option<Vec<TurnId>>,
    /// Whether to wait until all of them have ended, instead of the first.
    #[serde(default)]
    wait_all: bool,
}

fn default_wait() -> u64 {
    DEFAULT_WAIT
}

impl Args {
    fn wait(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds.min(MAX_WAIT))
    }
}

/// The result of `wait_async_results`.
#[derive(Serialize)]
pub(super) struct Results {
    /// The tasks that have ended.
    results: Vec<TaskResult>,
    /// Number of tasks that have not.
    still_running: usize,
    /// How long the call could wait.
    timeout_seconds: u64,
}

impl Tool for WaitAsyncResults {
    type Args = Args;
    type Output = Results;
    const NAME: &'static str = "wait_async_results";
    const DESCRIPTION: &'static str = "Waits until a background task has ended, or all of them, and returns the results. If \
         there is other work to do, do that instead: you are shown results as soon as there are any.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Other;
    const CONTROL: bool = true;
    const VARIES: bool = true;
    const MAX_DURATION: Option<Duration> = Some(Duration::from_secs(MAX_WAIT + MARGIN));

    async fn run(&self, args: Args, cx: ToolContext) -> Result<Results, ToolError> {
        let known = cx.background_tasks();
        let ids: Vec<TurnId> = match &args.task_ids {
            Some(ids) if !ids.is_empty() => {
                ids.iter().try_for_each(|id| cx.background_task(id).map(drop))?;
                ids.iter().collect::<BTreeSet<_>>().into_iter().cloned().collect()
            }
            // Some models write an empty list for all. Tasks that start later do not prolong the wait.
            _ => {
                let is_open = |task: &&BackgroundTask| !task.has_ended() || task.is_unshown();
                known.iter().filter(is_open).map(|task| task.id.clone()).collect()
            }
        };
        if ids.is_empty() {
            return Err(ToolError::new("there are no background tasks to wait for"));
        }
        let ended_of = |tasks: &[BackgroundTask]| -> Vec<TurnId> {
            let has_ended = |id: &&TurnId| tasks.iter().any(|task| task.id == **id && task.has_ended());
            ids.iter().filter(has_ended).cloned().collect()
        };
        if cx.empty_waits().get() >= MAX_EMPTY && ended_of(&known).is_empty() {
            return Err(ToolError::new(
                "no task ended during your last two waits: do other work, or end your turn; you will be shown the results",
            ));
        }
        let is_enough = |tasks: &[BackgroundTask]| {
            let ended = ended_of(tasks).len();
            if args.wait_all { ended == ids.len() } else { ended > 0 }
        };
        super::wait_until(is_enough, args.wait(), &cx).await?;
        let ended = ended_of(&cx.background_tasks());
        let waits = if ended.is_empty() { cx.empty_waits().get() + 1 } else { 0 };
        cx.empty_waits().set(waits);
        let mut results = Vec::new();
        for id in &ended {
            results.push(cx.background_task(id)?.into());
            cx.show_task(id.clone());
        }
        let timeout_seconds = args.wait().as_secs();
        Ok(Results { still_running: ids.len() - results.len(), results, timeout_seconds })
    }
}
