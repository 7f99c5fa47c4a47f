//! Owners of file trees.

use crate::ports::filesystem::Tree;
use crate::types::{AgentId, SessionId, TenantId, UserId, WorkspaceOwner};

/// The owner of a tree within a tenant. Ids contain no slash, so no scope is nested in another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileScope {
    /// One session.
    Session {
        /// The agent.
        agent: AgentId,
        /// The session id; `default` when empty.
        session: SessionId,
    },
    /// One user with one agent: the agent's working tree.
    User {
        /// The agent.
        agent: AgentId,
        /// The user id; `_default` when empty.
        user: UserId,
    },
    /// One agent: files shared by all its users.
    Agent {
        /// The agent.
        agent: AgentId,
    },
    /// The entire tenant.
    Global,
}

impl FileScope {
    /// Returns the scope of the tree that a workspace writes to.
    pub fn of_workspace(WorkspaceOwner { owner, session }: &WorkspaceOwner) -> Self {
        let agent = owner.agent.clone();
        match session.clone() {
            Some(session) => Self::Session { agent, session },
            None => Self::User { agent, user: owner.user.clone() },
        }
    }

    /// Returns the tree of this scope.
    pub fn of(&self, tenant: &TenantId) -> Tree {
        let scope = match self {
            Self::Session { agent, .. } | Self::User { agent, .. } | Self::Agent { agent } => {
                format!("agents/{agent}/{}", self.owner())
            }
            Self::Global => "global".to_owned(),
        };
        Tree { tenant: tenant.to_owned(), scope }
    }

    /// Returns the part of the scope after the agent, which is the same for all agents. Empty for
    /// [`FileScope::Global`].
    pub fn owner(&self) -> String {
        match self {
            Self::Session { session, .. } if session.is_empty() => "sessions/default".to_owned(),
            Self::Session { session, .. } => format!("sessions/{session}"),
            Self::User { user, .. } => Self::owner_of(user),
            Self::Agent { .. } => "shared".to_owned(),
            Self::Global => String::new(),
        }
    }

    /// Returns [`FileScope::owner`] of a user's working tree.
    pub fn owner_of(user: &UserId) -> String {
        format!("users/{}", if user.is_empty() { "_default" } else { user })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_scopes_are_the_same_tree() {
        let trees: Vec<String> = [
            FileScope::Session { agent: "a".into(), session: "x".into() },
            FileScope::Session { agent: "a".into(), session: "".into() },
            FileScope::User { agent: "a".into(), user: "x".into() },
            FileScope::User { agent: "a".into(), user: "shared".into() },
            FileScope::User { agent: "a".into(), user: "".into() },
            FileScope::Agent { agent: "a".into() },
            FileScope::Global,
        ]
        .iter()
        .map(|scope| scope.of(&"t".into()).scope)
        .collect();
        assert_eq!(
            trees,
            [
                "agents/a/sessions/x",
                "agents/a/sessions/default",
                "agents/a/users/x",
                "agents/a/users/shared",
                "agents/a/users/_default",
                "agents/a/shared",
                "global"
            ]
        );
    }
}
