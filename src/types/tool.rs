//! The declaration of a tool.

use super::{Category, ToolSchema, WaitKind};
use serde::{Deserialize, Serialize};

/// The kind of effect that a tool may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Reads files, memory, or session data.
    ReadOnly,
    /// Changes files, memory, or session data.
    LocalWrite,
    /// Reads from the network.
    NetworkRead,
    /// Changes something on the network.
    Network,
    /// May destroy data. Unknown effects count as this one.
    #[default]
    Destructive,
}

impl Effect {
    /// Returns whether calls of this effect may run concurrently.
    pub const fn is_read(self) -> bool {
        matches!(self, Self::ReadOnly | Self::NetworkRead)
    }
}

/// The declaration of a tool for the model, the scheduler, and the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Name, unique in a toolkit: 1–64 characters of `A–Z a–z 0–9 _ -`.
    pub name: String,
    /// Description for the model, in one or two sentences.
    pub description: String,
    /// JSON Schema of the arguments: an object schema with inlined subschemas.
    pub parameters: ToolSchema,
    /// The effect of the tool.
    pub effect: Effect,
    /// Whether running a call twice is equivalent to running it once. Recovery reruns only such calls.
    pub idempotent: bool,
    /// Whether a call that timed out may be retried in the same turn.
    #[serde(default)]
    pub retry_on_timeout: bool,
    /// Whether equal calls may return different results, as those of a clock do.
    #[serde(default)]
    pub varies: bool,
    /// The category for permission rules.
    #[serde(default)]
    pub category: Category,
    /// Whether the tool controls the session and has no other effect, such as a question or the task list. It
    /// runs unless a rule names it, also in read-only modes.
    #[serde(default)]
    pub control: bool,
    /// What each call waits for before it runs, if anything.
    #[serde(default)]
    pub suspends: Option<WaitKind>,
    /// Whether the client that runs the tool may run a call again that another client has begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub client_may_repeat: bool,
}

impl ToolSpec {
    /// Returns whether a call is skipped if an equal one has succeeded.
    pub fn skips_repeats(&self) -> bool {
        self.idempotent && !self.varies
    }
}
