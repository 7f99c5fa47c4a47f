//! The `agent_list` tool.

use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{Category, Effect, SessionId, TurnId, TurnStatus};
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
    /// The newest of its tasks.
    task_id: TurnId,
    status: TurnStatus,
}

impl Tool for AgentList {
    type Args = Args;
    type Output = Vec<Agent>;
    const NAME: &'static str = "agent_list";
    const DESCRIPTION: &'static str =
        "Lists your subagents in the background, with the status of their tasks.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Other;
    const CONTROL: bool = true;
    const VARIES: bool = true;

    async fn run(&self, _args: Args, cx: ToolContext) -> Result<Vec<Agent>, ToolError> {
        let mut agents: Vec<Agent> = Vec::new();
        for task in cx.background_tasks() {
            agents.retain(|agent| agent.agent_key != task.session);
            agents.push(Agent {
                agent_key: task.session,
                agent_id: task.agent,
                label: task.label,
                task_id: task.id,
                status: task.status,
            });
        }
        Ok(agents)
    }
}
