//! Suspended tool calls: what a call waits for, and its resolution.

use super::{
    CallId, Category, ChildSettings, Decider, FieldError, KeyId, RequestId, Timestamp, TurnId, UserId, json,
    subagent::ChildTask,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{net::IpAddr, time::Duration};

/// The answer of a client whose user did not answer a question.
pub const NO_ANSWER: &str = "The user did not answer.";

/// What a call waits for, as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    /// Permission to run.
    Approval,
    /// An answer to a question.
    Question,
    /// A review of a plan.
    Plan,
    /// The result of a tool that the client runs.
    External,
    /// The result of a subagent's task.
    Subagent,
    /// The user's consent at another server, at the URL of the payload.
    Auth,
}

impl WaitKind {
    /// Returns the name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Question => "question",
            Self::Plan => "plan",
            Self::External => "external",
            Self::Auth => "auth",
            Self::Subagent => "subagent",
        }
    }
}

/// The work of a client on the call of an external tool. Until it ends, no other client may answer the call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Claim {
    /// The name that the client has given itself.
    pub runner: String,
    /// When the claim ends, unless the runner renews it.
    pub until: Timestamp,
}

/// What a call waits for, with the data of each kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Wait {
    /// Permission to run with the arguments of the suspension.
    Approval,
    /// An answer to the question in this payload.
    Question(Value),
    /// A review of the plan in this payload.
    Plan(Value),
    /// The result of a tool that the client runs, with this payload.
    External(Value),
    /// The result of a child's task.
    Child(ChildWait),
    /// The user's consent at another server, with this payload.
    Auth(Value),
}

/// A call that waits for a child.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildWait {
    /// The child's task and session.
    pub task: ChildTask,
    /// The suspended calls of the child that wait for a person.
    pub pending: Vec<Pending>,
    /// The hash of the rules that the child has acknowledged; `None` until it has its task.
    pub notified: Option<String>,
    /// The child's settings, if it may go on in the background. Otherwise they follow from the turn, which waits.
    pub settings: Option<Box<ChildSettings>>,
}

impl Wait {
    /// Creates a wait of this kind from the payload that is shown to the person or client that answers.
    ///
    /// # Errors
    /// When the payload of a subagent's call is not a task.
    pub fn new(kind: WaitKind, payload: Value) -> Result<Self, FieldError> {
        Ok(match kind {
            WaitKind::Approval => Self::Approval,
            WaitKind::Question => Self::Question(payload),
            WaitKind::Plan => Self::Plan(payload),
            WaitKind::External => Self::External(payload),
            WaitKind::Auth => Self::Auth(payload),
            WaitKind::Subagent => {
                let mut payload = payload;
                let theirs = payload.as_object_mut().and_then(|payload| payload.remove("pending"));
                Self::Child(ChildWait {
                    task: json::from_value(payload)?,
                    pending: theirs.map_or(Ok(Vec::new()), json::from_value)?,
                    notified: None,
                    settings: None,
                })
            }
        })
    }

    /// Returns the kind that clients see.
    pub fn kind(&self) -> WaitKind {
        match self {
            Self::Approval => WaitKind::Approval,
            Self::Question(_) => WaitKind::Question,
            Self::Plan(_) => WaitKind::Plan,
            Self::External(_) => WaitKind::External,
            Self::Child(_) => WaitKind::Subagent,
            Self::Auth(_) => WaitKind::Auth,
        }
    }

    /// Returns the payload that is shown to the person or client that answers.
    pub fn payload(&self) -> Value {
        match self {
            Self::Approval => Value::Null,
            Self::Question(payload) | Self::Plan(payload) | Self::External(payload) | Self::Auth(payload) => {
                payload.clone()
            }
            Self::Child(child) => {
                let mut payload = json!(child.task);
                if !child.pending.is_empty() {
                    payload["pending"] = json!(child.pending);
                }
                payload
            }
        }
    }
}

/// A suspended tool call, open or resolved. It is bound to the call, its turn, the turn's epoch when it was
/// suspended, and the exact arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Suspension {
    /// The call.
    pub call_id: CallId,
    /// Its turn.
    pub turn: TurnId,
    /// The turn's epoch when the call was suspended.
    pub epoch: u32,
    /// The tool.
    pub name: String,
    /// The tool's category.
    pub category: Category,
    /// The arguments that the call would run with.
    pub args: Value,
    /// SHA-256 of their canonical JSON, in hex.
    pub args_hash: String,
    /// What the call waits for.
    pub wait: Wait,
    /// What a call that was suspended while it ran needs to continue; `None` if it has not run.
    pub progress: Option<Value>,
    /// Who may approve it; of an approved call, as whom it was approved.
    pub by: Decider,
    /// When it was suspended.
    pub asked_at: Timestamp,
    /// When the call counts as declined.
    pub expires_at: Timestamp,
    /// The resolution; `None` while the call waits.
    pub resolution: Option<Resolution>,
    /// The address of the client that decided or answered, if the platform reported it.
    pub address: Option<IpAddr>,
    /// The client that works on the call, if one has claimed it.
    pub claim: Option<Claim>,
}

impl Suspension {
    /// Returns whether the call waits for a child that itself waits for no person.
    pub fn is_delegated(&self) -> bool {
        matches!(&self.wait, Wait::Child(child) if child.pending.is_empty())
    }

    /// Returns the child that the call waits for.
    pub fn child(&self) -> Option<&ChildWait> {
        match &self.wait {
            Wait::Child(child) => Some(child),
            _ => None,
        }
    }

    /// Returns when the child goes on in the background. One that waits for a person does not.
    pub fn promote_at(&self) -> Option<Timestamp> {
        let child = self.child().filter(|child| child.pending.is_empty() && child.settings.is_some())?;
        Some(self.asked_at + Duration::from_secs(child.task.timeout_seconds?.into()))
    }

    /// Returns the suspension as clients see it.
    pub fn pending(&self) -> Pending {
        Pending {
            call_id: self.call_id.clone(),
            turn: self.turn.clone(),
            epoch: self.epoch,
            kind: self.wait.kind(),
            name: self.name.clone(),
            category: self.category,
            args: self.args.clone(),
            args_hash: self.args_hash.clone(),
            payload: self.wait.payload(),
            by: self.by,
            asked_at: self.asked_at,
            expires_at: self.expires_at,
            claim: self.claim.clone(),
        }
    }

    /// Returns when the call stops to wait as it does: it expires, or the claim of its runner ends.
    pub fn changes_at(&self) -> Timestamp {
        self.claim.as_ref().map_or(self.expires_at, |claim| claim.until.min(self.expires_at))
    }

    /// Returns the suspension as resolved.
    pub fn resolved(self, resolution: Resolution) -> Self {
        Self { resolution: Some(resolution), ..self }
    }
}

// In the inbox, its kind is an `InboxKind`.
/// A suspended call as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "PendingCall")]
pub struct Pending<Kind = WaitKind> {
    /// The call.
    pub call_id: CallId,
    /// Its turn.
    pub turn: TurnId,
    /// The turn's epoch when the call was suspended.
    pub epoch: u32,
    /// What it waits for.
    pub kind: Kind,
    /// The tool.
    pub name: String,
    /// The tool's category.
    pub category: Category,
    /// The arguments that the call would run with.
    pub args: Value,
    /// SHA-256 of their canonical JSON, in hex.
    pub args_hash: String,
    /// The payload for the person or client that answers: the question, the plan, the URL to open, or the arguments.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub payload: Value,
    /// Who may approve it; absent for the user.
    #[serde(default, skip_serializing_if = "Decider::is_user")]
    pub by: Decider,
    /// When it was suspended.
    pub asked_at: Timestamp,
    /// When the call counts as declined.
    pub expires_at: Timestamp,
    /// The client that works on the call, if one has claimed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
}

impl Pending {
    /// Returns the call with a kind of another type.
    pub fn with_kind<Kind>(self, kind: Kind) -> Pending<Kind> {
        Pending {
            call_id: self.call_id,
            turn: self.turn,
            epoch: self.epoch,
            kind,
            name: self.name,
            category: self.category,
            args: self.args,
            args_hash: self.args_hash,
            payload: self.payload,
            by: self.by,
            asked_at: self.asked_at,
            expires_at: self.expires_at,
            claim: self.claim,
        }
    }
}

/// The stored form of a suspension: the part that clients see, and internal fields.
#[derive(Serialize, Deserialize)]
struct Stored {
    pending: Pending,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resolved: Option<Resolution>,
    #[serde(rename = "told", default, skip_serializing_if = "Option::is_none")]
    notified: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    child: Option<Box<ChildSettings>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    progress: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
}

impl TryFrom<Stored> for Suspension {
    type Error = FieldError;

    fn try_from(stored: Stored) -> Result<Self, FieldError> {
        let Stored { pending, resolved, notified, child: settings, progress, address } = stored;
        let mut wait =
            Wait::new(pending.kind, pending.payload).map_err(|error| error.below("/pending/payload"))?;
        if let Wait::Child(child) = &mut wait {
            (child.notified, child.settings) = (notified, settings);
        }
        Ok(Self {
            call_id: pending.call_id,
            turn: pending.turn,
            epoch: pending.epoch,
            name: pending.name,
            category: pending.category,
            args: pending.args,
            args_hash: pending.args_hash,
            wait,
            progress,
            by: pending.by,
            asked_at: pending.asked_at,
            expires_at: pending.expires_at,
            resolution: resolved,
            address,
            claim: pending.claim,
        })
    }
}

impl From<Suspension> for Stored {
    fn from(suspension: Suspension) -> Self {
        let pending = suspension.pending();
        let child = suspension.child();
        let notified = child.and_then(|child| child.notified.clone());
        let settings = child.and_then(|child| child.settings.clone());
        let Suspension { resolution: resolved, progress, address, .. } = suspension;
        Self { pending, resolved, notified, child: settings, progress, address }
    }
}

/// A person's decision on a call that waits for approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// This call may run.
    Approve,
    /// This call may not run.
    Decline,
    /// This call may run, and so may all later calls of the tool in this session.
    AlwaysAllowTool,
    /// This call may run, and so may all later calls of the tool's category in this session.
    AlwaysAllowCategory,
}

/// The person or key that decided, as named by the credential and the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Approver {
    /// The user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserId>,
    /// The public id of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
}

/// Who decided on or answered a suspended call, and from where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedBy {
    /// The person or key.
    pub approver: Approver,
    /// The address of the client, if the platform reported it.
    pub address: Option<IpAddr>,
    /// The request.
    pub request_id: Option<RequestId>,
    /// The runner as which a client answers.
    pub runner: Option<String>,
}

/// How a suspension ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Resolution {
    /// The call may run.
    Approved {
        /// The decision.
        decision: Decision,
        /// The arguments that replace those of the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        args: Option<Value>,
    },
    /// The call may not run.
    Declined {
        /// The reason, for the model.
        reason: String,
        /// Whether the suspension expired without a decision.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        expired: bool,
    },
    /// The call runs with this answer.
    Answered {
        /// The answer.
        answer: Value,
    },
    /// The client or child failed.
    Failed {
        /// The reason, for the model.
        reason: String,
    },
    /// The client that had claimed the call may or may not have run it.
    Unknown {
        /// The reason, for the model.
        reason: String,
    },
}
