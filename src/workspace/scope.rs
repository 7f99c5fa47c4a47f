//! Owners of file trees.

use crate::ports::filesystem::Tree;
use crate::types::TenantId;

/// The owner of a tree within a tenant. Ids contain no slash, so no scope is nested in another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileScope {
    /// One session.
    Session {
        /// The agent.
        agent: String,
        /// The session id; `default` when empty.
        session: String,
    },
    /// One user with one agent: the agent's working tree.
    User {
        /// The agent.
        agent: String,
        /// The user id; `_default` when empty.
        user: String,
    },
    /// One agent: files shared by all its users.
    Agent {
        /// The agent.
        agent: String,
    },
    /// The entire tenant.
    Global,
}

impl FileScope {
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
        let or = |id: &str, missing: &str| if id.is_empty() { missing.to_owned() } else { id.to_owned() };
        match self {
            Self::Session { session, .. } => format!("sessions/{}", or(session, "default")),
            Self::User { user, .. } => format!("users/{}", or(user, "_default")),
            Self::Agent { .. } => "shared".to_owned(),
            Self::Global => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_scopes_are_the_same_tree() {
        let id = |text: &str| text.to_owned();
        let trees: Vec<String> = [
            FileScope::Session { agent: id("a"), session: id("x") },
            FileScope::Session { agent: id("a"), session: id("") },
            FileScope::User { agent: id("a"), user: id("x") },
            FileScope::User { agent: id("a"), user: id("shared") },
            FileScope::User { agent: id("a"), user: id("") },
            FileScope::Agent { agent: id("a") },
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
