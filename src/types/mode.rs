//! A mode of an agent.

use super::Rules;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The id of the plan mode.
pub const PLAN: &str = "plan";

/// A named set of instructions, tools, model, and rules that a session can switch to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ModeDefinition")]
pub struct Mode {
    /// Unique id among the agent's modes.
    pub id: String,
    /// The display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The description for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Text appended to the agent's instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The model, as `provider/model`, of a session that enters this mode for the first time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_model: Option<String>,
    /// The exact list of tools, replacing the agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Tools added to the agent's. A tool named here is hidden in every mode that does not name it as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additional_tools: Option<Vec<String>>,
    /// Restricts the resulting tools to these; no restriction if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_tools: Option<Vec<String>>,
    /// The modes that a session may switch to; all if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transitions_to: Option<Vec<String>>,
    /// Whether only read-only tools and tools that control the session may run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// The permission rules of the mode.
    #[serde(skip_serializing_if = "Rules::is_empty")]
    pub permissions: Rules,
    /// Data of the deployment, returned unchanged.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Whether new sessions start in this mode.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub default: bool,
}

impl Mode {
    /// Returns whether the mode is for planning only.
    pub fn is_planning(&self) -> bool {
        self.read_only || self.id == PLAN
    }
}
