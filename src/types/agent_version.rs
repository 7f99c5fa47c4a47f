//! Versions of agents.

use super::{AgentId, Approver, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// The number of a version of an agent, starting at 1.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
pub struct AgentVersion(pub u32);

impl AgentVersion {
    /// The first version.
    pub const FIRST: Self = Self(1);

    /// Returns whether this is the first version.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub fn is_first(&self) -> bool {
        *self == Self::FIRST
    }

    /// Returns the next version.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Default for AgentVersion {
    fn default() -> Self {
        Self::FIRST
    }
}

impl fmt::Display for AgentVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A version of an agent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentRef {
    /// The agent.
    pub id: AgentId,
    /// The version.
    pub version: AgentVersion,
}

/// An agent of a tenant, and which of its versions new sessions get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentEntry {
    /// The id.
    pub id: AgentId,
    /// The version of new sessions.
    pub active: AgentVersion,
    /// The newest version.
    pub newest: AgentVersion,
    /// When the agent was deleted, if it was. Its sessions can still be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
}

/// An agent of a tenant, as people see it in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSummary {
    /// The agent.
    pub entry: AgentEntry,
    /// The name in the active version.
    pub name: Option<String>,
    /// The description in the active version.
    pub description: Option<String>,
    /// The size of all stored versions, in bytes.
    pub bytes: u64,
}

/// One stored version of an agent, which never changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredVersion {
    /// The number.
    pub version: AgentVersion,
    /// The definition, as it was sent.
    pub definition: Map<String, Value>,
    /// When it was stored.
    pub created_at: Timestamp,
    /// Who stored it.
    pub created_by: Approver,
}
