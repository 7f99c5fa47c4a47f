//! The `agent_list` tool.

use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{Category, Effect, SessionId, Spawned, TurnId, TurnStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The `agent_list` tool.
pub(super) struct AgentList;

/// The arguments of `agent_list`.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Args {}

/// A subagent.
#[derive(Serialize)]
pub(super) struct Agent {
    agent_key: SessionId,
    agent_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    /// The newest of its tasks in the background.
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<TurnId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<TurnStatus>,
}

impl Tool for AgentList {
    type Args = Args;
    type Output = Vec<Agent>;
    const NAME: &'static str = "agent_list";
    const DESCRIPTION: &'static str = "Lists the subagents that you can send messages with agent_send, with the status of their newest background tasks.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Other;
    const CONTROL: bool = true;
    const VARIES: bool = true;

    async fn run(&self, _args: Args, cx: ToolContext) -> Result<Vec<Agent>, ToolError> {
        let tasks = cx.background_tasks();
        let agent = |own: Spawned| {
            let newest = tasks.iter().rfind(|task| task.session == own.session);
            Agent {
                agent_key: own.session,
                agent_id: own.agent,
                label: own.label,
                task_id: newest.map(|task| task.id.clone()),
                status: newest.map(|task| task.status),
            }
        };
        Ok(cx.spawned().into_iter().map(agent).collect())
    }
}
