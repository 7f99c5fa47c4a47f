//! Who is asking.

use super::{Rules, TenantId};
use serde::{Deserialize, Serialize};

/// What a key may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Talk to agents: everything that creates, changes or runs something.
    Chat,
    /// Read sessions, events and results.
    Read,
    /// Manage agents and shared files of the tenant.
    Admin,
}

/// A set of scopes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scopes(pub Vec<Scope>);

impl Scopes {
    /// All there are.
    pub fn all() -> Self {
        Self(vec![Scope::Chat, Scope::Read, Scope::Admin])
    }

    /// Whether `scope` is allowed.
    pub fn allow(&self, scope: Scope) -> bool {
        self.0.contains(&scope)
    }
}

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// The tenant that every key, row and object of this request starts with.
    pub tenant: TenantId,
    /// The user, when the credential itself names one (a token or a ticket): it cannot be
    /// overridden. With an API key the caller names the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What the credential allows.
    pub scopes: Scopes,
    /// The only session a ticket opens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The public id of the API key, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The tenant's rules as they are now. What is kept of a caller for later has none.
    #[serde(default, skip_serializing_if = "Rules::is_empty")]
    pub rules: Rules,
}

impl Principal {
    /// Somebody of a tenant whom the caller names, and of whom nothing else is known.
    pub fn new(tenant: impl Into<TenantId>, scopes: Scopes) -> Self {
        Self { tenant: tenant.into(), user: None, scopes, session: None, key: None, rules: Rules::default() }
    }
}

/// Whose something is: one user's with one agent. Files, memory and sessions belong to one of these.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The tenant.
    pub tenant: TenantId,
    /// The agent.
    pub agent: String,
    /// The user.
    pub user: String,
}
