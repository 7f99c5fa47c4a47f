//! Owners of file trees.

use crate::ports::filesystem::Tree;
use crate::types::{AgentId, SessionId, TenantId, UserId, WorkspaceOwner};

/// The owner of a tree within a tenant. Ids contain neither `/` nor `+`, so no two owners have the same scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileScope {
    /// One session. Its tree is one of the trees of its user, which are moved, exported and erased together.
    Session {
        /// The agent.
        agent: AgentId,
        /// The user id; `_default` when empty.
        user: UserId,
        /// The session id.
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
        let (agent, user) = (owner.agent.clone(), owner.user.clone());
        match session.clone() {
            Some(session) => Self::Session { agent, user, session },
            None => Self::User { agent, user },
        }
    }

    /// Returns the tree of this scope.
    pub fn of(&self, tenant: &TenantId) -> Tree {
        let scope = match self {
            Self::Session { agent, user, session } => {
                format!("agents/{agent}+{session}/{}", Self::owner_of(user))
            }
            Self::User { agent, user } => format!("agents/{agent}/{}", Self::owner_of(user)),
            Self::Agent { agent } => format!("agents/{agent}/shared"),
            Self::Global => "global".to_owned(),
        };
        Tree { tenant: tenant.to_owned(), scope }
    }

    /// Returns how the scopes of all trees of a user end.
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
            FileScope::Session { agent: "a".into(), user: "u".into(), session: "x".into() },
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
                "agents/a+x/users/u",
                "agents/a/users/x",
                "agents/a/users/shared",
                "agents/a/users/_default",
                "agents/a/shared",
                "global"
            ]
        );
    }
}
