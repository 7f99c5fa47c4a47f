//! What a tool declares about itself.

use super::{Category, PendingKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a tool may do to the world. Anything undeclared is [`Effect::Destructive`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Reads what is ours.
    ReadOnly,
    /// Writes what is ours.
    LocalWrite,
    /// Reads from the network.
    NetworkRead,
    /// Changes something over the network.
    Network,
    /// May destroy something; also every unknown effect.
    #[default]
    Destructive,
}

impl Effect {
    /// Whether calls of this effect may run beside each other.
    pub fn is_read(self) -> bool {
        matches!(self, Self::ReadOnly | Self::NetworkRead)
    }
}

/// A tool as the model, the scheduler and the journal know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Unique in a toolkit: 1–64 of `A–Z a–z 0–9 _ -`.
    pub name: String,
    /// One or two sentences for the model.
    pub description: String,
    /// JSON Schema of the arguments (an object schema, subschemas inlined).
    pub parameters: Value,
    /// What it may do.
    pub effect: Effect,
    /// Whether running it twice equals running it once. After a crash only such calls run again.
    pub idempotent: bool,
    /// Whether a call that did not answer in time may be tried again in the same turn.
    #[serde(default)]
    pub retry_on_timeout: bool,
    /// Whether the same call may answer differently a moment later, such as a clock.
    #[serde(default)]
    pub varies: bool,
    /// The group that permission rules and people know it by.
    #[serde(default)]
    pub category: Category,
    /// Whether it steers the session and touches nothing else, such as a question or a list of tasks: it runs
    /// unless a rule names it, also where only reading is allowed.
    #[serde(default)]
    pub control: bool,
    /// What each of its calls waits for before it runs.
    #[serde(default)]
    pub suspends: Option<PendingKind>,
}

impl ToolSpec {
    /// Whether a call is spared when an equal one has succeeded.
    pub fn is_spared(&self) -> bool {
        self.idempotent && !self.varies
    }
}
