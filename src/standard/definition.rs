//! Definitions of agents: what a version of an agent sets, as JSON. An absent field has the value of the deployment's
//! settings.
//!
//! A definition cannot exceed the deployment: its rules can only restrict what those of the tenant and the deployment
//! decide, its limits can only lower those of a turn, and it can name only models that sessions of the tenant may use.

mod checks;
mod overlay;
#[cfg(test)]
mod tests;

pub use checks::{Hosts, MAX_BYTES, check};
pub use overlay::AgentConfig;

use crate::agent::{Judge, ToolFilter, Verify, external_tool::Declared};
use crate::mcp::McpServer;
use crate::tools::http_tool;
use crate::types::{
    BackgroundTasks, BudgetPatch, FieldError, FilePath, Mode, Problem, Rules, SubagentKind, Thinking,
    WorkspaceKind,
    json::{escaped, from_value},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A definition of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "AgentDefinition")]
pub struct Definition {
    /// The name, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the agent does, for people and for clients that list agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The instructions at the start of each prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The model of sessions that name none, as `provider/model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The models that are asked, in this order, when the model fails before its first token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_models: Option<Vec<String>>,
    /// How much the model reasons, unless a message sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// Which of the deployment's tools the agent has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolFilter>,
    /// The tools that clients run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_tools: Option<Vec<Declared>>,
    /// The tools that send HTTP requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_tools: Option<Vec<http_tool::Declared>>,
    /// The operations of an OpenAPI document that become further HTTP tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub openapi: Option<http_tool::OpenApi>,
    /// The servers of MCP whose tools the agent has, by name. A tool is named `server__tool`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mcp_servers: BTreeMap<String, McpServer>,
    /// The kinds of subagents that the agent may start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subagents: Option<Vec<SubagentKind>>,
    /// Whether subagents may work in the background.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background_tasks: Option<BackgroundTasks>,
    /// The modes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modes: Option<Vec<Mode>>,
    /// Which skills the agent has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skills: Option<SkillsDefinition>,
    /// Permission rules, in addition to those of the tenant and the deployment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Rules>,
    /// The limits of turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<AgentBudget>,
    /// How long conversations are kept within the model's context window, and the files in the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextDefinition>,
    /// How the agent uses the memory of its users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryDefinition>,
    /// When the model critiques its own steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reflection: Option<ReflectionDefinition>,
    /// How a turn verifies what it has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verify>,
    /// Where the files of the agent's work are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceDefinition>,
    /// The models that grade replies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judges: Option<Vec<Judge>>,
    /// The JSON Schema of a session's state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_schema: Option<Value>,
    /// The state of a new session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_state: Option<Map<String, Value>>,
    /// The JSON Schema of replies, unless a message has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The agent's own files, by path: text below the shared files of its workspace.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub files: BTreeMap<FilePath, String>,
    /// Data of the operator, returned unchanged.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

/// The limits of an agent's turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentBudget {
    /// The limits of a new session.
    pub defaults: BudgetPatch,
    /// The highest limits that a turn can have. `tool_timeout_s`, `max_tokens` and `max_reflections` cannot be set here.
    pub ceilings: Ceilings,
}

/// The highest limits that a turn can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct Ceilings {
    /// Maximum number of model calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    /// Maximum number of tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u32>,
    /// Maximum time, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u32>,
    /// Maximum cost, in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<f64>,
}

/// How long conversations are kept within the model's context window, and the files in the prompt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct ContextDefinition {
    /// What replaces older messages: a summary (`compaction`), notes (`observation`) or nothing (`none`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<super::settings::Strategy>,
    /// With the strategy `none`: maximum number of messages in the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<usize>,
    /// Workspace files in the prompt, in addition to the standard ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub files: Option<Vec<FilePath>>,
    /// Maximum number of tokens of all files in the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_tokens: Option<usize>,
    /// Number of messages at which the conversation is compacted; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact_at_messages: Option<usize>,
    /// Number of tokens at which the conversation is compacted; 0 derives it from the model's context window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact_at_tokens: Option<u64>,
    /// Maximum number of messages that compaction keeps unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_messages: Option<usize>,
    /// The model that writes summaries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction_model: Option<String>,
    /// With the strategy `observation`: number of tokens at which notes replace messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observe_at: Option<u64>,
    /// With the strategy `observation`: number of tokens of notes at which a shorter version replaces them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reflect_at: Option<u64>,
    /// The model that takes notes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observer_model: Option<String>,
    /// The model that rewrites notes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reflector_model: Option<String>,
}

/// How the agent uses the memory of its users.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct MemoryDefinition {
    /// Whether the agent has the tools that search and save memories.
    pub tools: bool,
    /// Whether facts are extracted from conversations.
    pub learn: bool,
}

impl Default for MemoryDefinition {
    fn default() -> Self {
        Self { tools: true, learn: true }
    }
}

/// Which skills the agent has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct SkillsDefinition {
    /// Whether the agent has skills, if the deployment has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable: Option<bool>,
    /// Whether the agent may propose skills, as drafts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drafts: Option<bool>,
    /// Names of skills, with `*` and other glob patterns. If there are any, the agent has no other skills.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Names of skills that the agent does not have, with `*` and other glob patterns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deny: Option<Vec<String>>,
}

/// Where the files of the agent's work are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub struct WorkspaceDefinition {
    /// `server` (default), or `runner`: the file tools then work on the folder of a runner.
    pub kind: WorkspaceKind,
}

/// When the model critiques its own steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct ReflectionDefinition {
    /// All steps of every `n`th turn are reviewed; with 0, only those with a failed tool call.
    pub every: u32,
}

impl Definition {
    /// Reads a definition.
    ///
    /// # Errors
    /// One error for each field that is unknown or has another form.
    pub fn parse(json: Map<String, Value>) -> Result<Self, Vec<FieldError>> {
        // Each field on its own, so that all faults are found.
        let fault = |(name, value): (&String, &Value)| {
            let field = Map::from_iter([(name.clone(), value.clone())]);
            let FieldError { pointer, detail } = from_value::<Self>(Value::Object(field)).err()?;
            let unknown = || format!("/{}", escaped(name));
            let pointer = if pointer.is_empty() { unknown() } else { pointer };
            Some(FieldError { pointer, detail })
        };
        let faults: Vec<FieldError> = json.iter().filter_map(fault).collect();
        if !faults.is_empty() {
            return Err(faults);
        }
        from_value(Value::Object(json)).map_err(|error| vec![error])
    }

    /// Returns the definition as JSON, without fields that are absent or `null`.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn to_json(&self) -> Result<Map<String, Value>, Problem> {
        match serde_json::to_value(self) {
            Ok(Value::Object(json)) => Ok(json),
            Ok(_) => Err(Problem::internal("a definition is not an object")),
            Err(error) => Err(Problem::internal(error.to_string())),
        }
    }
}
