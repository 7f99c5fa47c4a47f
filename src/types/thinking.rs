//! How much a model reasons.

use serde::{Deserialize, Serialize};

/// How much the model should reason before it responds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// No reasoning, or the provider's default.
    #[default]
    Off,
    /// Little reasoning.
    Low,
    /// Medium reasoning.
    Medium,
    /// Much reasoning.
    High,
}
