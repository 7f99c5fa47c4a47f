//! The authenticated caller of a request.

use super::{AgentId, KeyId, SessionId, TenantId, TenantPolicy, Timestamp, UserId};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A permission of a key.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Talk to agents: create, change, and run things.
    Chat,
    /// Read sessions, events, and results.
    Read,
    /// Approve calls about which a rule of the operator asks.
    Approve,
    /// Manage the tenant's agents and shared files.
    Admin,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 4] = [Self::Chat, Self::Read, Self::Approve, Self::Admin];

    /// Returns the name that keys and tokens use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Read => "read",
            Self::Approve => "approve",
            Self::Admin => "admin",
        }
    }
}

/// A set of scopes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Scopes(pub Vec<Scope>);

impl Scopes {
    /// Creates a set of these scopes, in the order of [`Scope::ALL`] and without duplicates.
    pub fn new(mut scopes: Vec<Scope>) -> Self {
        scopes.sort_unstable();
        scopes.dedup();
        Self(scopes)
    }

    /// Returns all scopes.
    pub fn all() -> Self {
        Self(Scope::ALL.into())
    }

    /// Returns the scopes of a credential for which none are named: `chat` and `read`.
    pub fn standard() -> Self {
        Self(vec![Scope::Chat, Scope::Read])
    }

    /// Returns the scopes that are also in `most`.
    pub fn within(mut self, most: &Self) -> Self {
        self.0.retain(|scope| most.allow(*scope));
        self
    }

    /// Returns whether `scope` is in the set.
    pub fn allow(&self, scope: Scope) -> bool {
        self.0.contains(&scope)
    }
}

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Principal {
    /// The tenant: the first part of every key, row, and object name of the request.
    pub tenant: TenantId,
    /// The user, if the credential names one (a token or a ticket); a request cannot override it. With an API
    /// key, the request names the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserId>,
    /// The scopes of the credential.
    pub scopes: Scopes,
    /// The only session that a ticket gives access to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The public id of the API key, if the credential is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    /// The address of the client, if the platform reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The tenant's current policy. Empty in a principal stored for later use.
    #[serde(rename = "rules", default)]
    pub policy: TenantPolicy,
    /// When the token expires, for a token or a ticket of its holder. The directory stores when a key expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Until when the credential was found valid. It has to be checked again afterwards.
    #[serde(default)]
    pub valid_until: Timestamp,
}

impl Principal {
    /// Creates a principal without a user, key, address, session, or policy.
    pub fn new(tenant: impl Into<TenantId>, scopes: Scopes) -> Self {
        Self {
            tenant: tenant.into(),
            user: None,
            scopes,
            session: None,
            key: None,
            address: None,
            policy: TenantPolicy::default(),
            expires_at: None,
            valid_until: Timestamp(0),
        }
    }
}

/// Where the files of a workspace are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum WorkspaceKind {
    /// On the server.
    #[default]
    Server,
    /// In the folder of a runner, except for the files that the server itself uses.
    Runner,
}

/// Names the workspace that a session works on: that of its user, or one of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceOwner {
    /// The owner of the session.
    pub owner: Owner,
    /// The session, if the workspace is its own.
    pub session: Option<SessionId>,
}

impl From<Owner> for WorkspaceOwner {
    fn from(owner: Owner) -> Self {
        Self { owner, session: None }
    }
}

/// The owner of files, memory, and sessions: one user with one agent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The tenant.
    pub tenant: TenantId,
    /// The agent.
    pub agent: AgentId,
    /// The user.
    pub user: UserId,
}
