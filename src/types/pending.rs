//! Calls that wait for a person, and what became of the waiting.

use super::{Category, Timestamp, json};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PendingKind {
    /// Somebody's consent.
    Approval,
    /// An answer to a question.
    Question,
    /// A judgement on a plan.
    Plan,
    /// A result that the client has to bring: the tool is its own.
    External,
    /// What comes of an errand that a subagent does.
    Subagent,
}

/// A call that waits. Bound to the call, its turn, the turn's epoch when it was asked, and the exact
/// arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// The call.
    pub call_id: String,
    /// Its turn.
    pub turn: String,
    /// The turn's epoch when this was asked.
    pub epoch: u32,
    /// What it waits for.
    pub kind: PendingKind,
    /// The tool.
    pub name: String,
    /// The tool's category.
    pub category: Category,
    /// The arguments that it would run with.
    pub args: Value,
    /// SHA-256 of their canonical JSON, in hex.
    pub args_hash: String,
    /// What is shown to whoever answers: the question, the plan, the arguments.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub payload: Value,
    /// When this was asked.
    pub asked_at: Timestamp,
    /// When nobody needs to answer any more: it counts as declined.
    pub expires_at: Timestamp,
}

impl Pending {
    /// Whether it waits for a subagent that waits for nobody itself.
    pub fn is_delegated(&self) -> bool {
        self.kind == PendingKind::Subagent && self.payload.get("pending").is_none()
    }
}

/// What somebody who is asked for consent says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// This call may run.
    Approve,
    /// It may not.
    Decline,
    /// It may, and so may all later calls of the tool in this session.
    AlwaysAllowTool,
    /// It may, and so may all later calls of the tool's category in this session.
    AlwaysAllowCategory,
}

/// Who decided: as much as the credential and the request tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approver {
    /// The user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The public id of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// What became of a call's waiting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case")]
pub enum Resolution {
    /// It may run.
    Approved {
        /// What was said.
        decision: Decision,
        /// The arguments in place of those that it waits with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        args: Option<Value>,
    },
    /// It may not.
    Declined {
        /// Why, for the model.
        reason: String,
        /// Whether it was nobody's decision: its time was over.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        expired: bool,
    },
    /// It runs with this answer.
    Answered {
        /// The answer.
        answer: Value,
    },
    /// The client could not do it.
    Failed {
        /// Why, for the model.
        reason: String,
    },
}

json::tagged!(Resolution, "how");

/// The row of a call that waits or waited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parked {
    /// What it waits for.
    pub pending: Pending,
    /// What became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Resolution>,
    /// What a subagent was told of the rules, once it has its errand: a hash of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<String>,
}
