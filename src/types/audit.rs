//! The audit trail of a tenant: who changed or decided what, when and from where.

use super::{Approver, AuditId, KeyId, RequestId, TenantId, Timestamp, UserId};
use serde::{Deserialize, Serialize, de::IntoDeserializer, de::value::Error};
use serde_json::{Map, Value};
use std::{fmt, net::IpAddr, str::FromStr};

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub enum AuditAction {
    /// The tenant was created.
    #[serde(rename = "tenant.created")]
    TenantCreated,
    /// Fields of the tenant, such as its rules and limits, were changed.
    #[serde(rename = "tenant.updated")]
    TenantUpdated,
    /// The tenant was deleted. Its data is erased from then on.
    #[serde(rename = "tenant.deleted")]
    TenantDeleted,
    /// A move of the tenant to another shard was requested, or its cancellation.
    #[serde(rename = "tenant.moved")]
    TenantMoved,
    /// A part of an export of the tenant was requested.
    #[serde(rename = "tenant.exported")]
    TenantExported,
    /// A part of an export of a user was requested.
    #[serde(rename = "user.exported")]
    UserExported,
    /// The erasure of a user was requested.
    #[serde(rename = "user.erased")]
    UserErased,
    /// A key was created.
    #[serde(rename = "key.created")]
    KeyCreated,
    /// A key was revoked.
    #[serde(rename = "key.revoked")]
    KeyRevoked,
    /// A version of an agent was stored, and is active.
    #[serde(rename = "agent.updated")]
    AgentUpdated,
    /// Another version of an agent was made the active one.
    #[serde(rename = "agent.activated")]
    AgentActivated,
    /// An agent was deleted.
    #[serde(rename = "agent.deleted")]
    AgentDeleted,
    /// The promotion of a draft of a skill was requested.
    #[serde(rename = "skill.promoted")]
    SkillPromoted,
    /// A secret was stored, or its value replaced.
    #[serde(rename = "secret.stored")]
    SecretStored,
    /// A secret was deleted.
    #[serde(rename = "secret.deleted")]
    SecretDeleted,
    /// A tool call was approved or declined.
    #[serde(rename = "approval.decided")]
    ApprovalDecided,
}

impl fmt::Display for AuditAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for AuditAction {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::deserialize(name.into_deserializer())
    }
}

/// Who did it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Actor {
    /// The holder of the operator's key.
    Operator,
    /// The holder of a credential of the tenant.
    Caller {
        /// The user of a token.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<UserId>,
        /// The id of an API key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<KeyId>,
    },
}

impl From<Approver> for Actor {
    fn from(by: Approver) -> Self {
        Self::Caller { user: by.user, key: by.key }
    }
}

/// One row of the audit trail. It contains ids, rules and limits, but no secrets and no content of users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AuditEntry {
    /// The tenant.
    pub tenant: TenantId,
    /// The row's id. Ids sort by time.
    pub id: AuditId,
    /// When it was done.
    pub at: Timestamp,
    /// Who did it.
    pub actor: Actor,
    /// What was done.
    pub action: AuditAction,
    /// The id of what the action concerns: a tenant, a user, a key, an agent, a skill, a secret or a tool call.
    pub object: String,
    /// The address of the client, if the platform reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The id of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// More about it; the keys depend on the action.
    pub details: Map<String, Value>,
}

/// Selects rows of a tenant's audit trail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// The earliest time.
    pub from: Option<Timestamp>,
    /// The time before which the rows were written.
    pub to: Option<Timestamp>,
    /// The only action.
    pub action: Option<AuditAction>,
    /// The id of the last row of the previous page.
    pub before: Option<AuditId>,
    /// The largest number of rows.
    pub limit: usize,
}

impl AuditQuery {
    /// Returns the range of ids: the first id, and the id that ends the range.
    pub fn ids(&self) -> (Option<AuditId>, Option<AuditId>) {
        let ends = self.before.iter().cloned().chain(self.to.map(AuditId::first_at));
        (self.from.map(AuditId::first_at), ends.min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_has_one_name() {
        assert_eq!(AuditAction::KeyRevoked.to_string(), "key.revoked");
        assert_eq!("key.revoked".parse(), Ok(AuditAction::KeyRevoked));
        let error = "key.made".parse::<AuditAction>().expect_err("an unknown action").to_string();
        assert!(error.contains("`key.made`") && error.contains("`key.created`"), "{error}");
    }
}
