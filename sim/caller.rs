//! The callers of the API, with their credentials.

use edge_harness::types::{Scope, Scopes};
use serde_json::{Value, json};

/// The credential of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A token of the session's user with all scopes. It decides nothing.
    Owner,
    /// A token of the session's user with the scopes `chat` and `read`.
    User,
    /// A key with the scopes `chat` and `read`.
    Desk,
    /// A key with the scopes `chat`, `read` and `approve`.
    Approver,
    /// A key with the scope `read`.
    Reader,
    /// A key with the scope `approve`, which is not sufficient to decide.
    Signer,
}

impl Caller {
    /// Those who try to decide.
    pub const DECIDING: [Self; 8] = [
        Self::User,
        Self::User,
        Self::Desk,
        Self::Desk,
        Self::Approver,
        Self::Approver,
        Self::Reader,
        Self::Signer,
    ];

    /// Returns its scopes.
    pub fn scopes(self) -> Scopes {
        match self {
            Self::Owner => Scopes::all(),
            Self::User | Self::Desk => Scopes::new(vec![Scope::Chat, Scope::Read]),
            Self::Approver => Scopes::new(vec![Scope::Chat, Scope::Read, Scope::Approve]),
            Self::Reader => Scopes::new(vec![Scope::Read]),
            Self::Signer => Scopes::new(vec![Scope::Approve]),
        }
    }

    /// Returns the id of the key, unless the credential is a token.
    pub fn key(self) -> Option<&'static str> {
        match self {
            Self::Owner | Self::User => None,
            Self::Desk => Some("k_desk"),
            Self::Approver => Some("k_approver"),
            Self::Reader => Some("k_reader"),
            Self::Signer => Some("k_signer"),
        }
    }

    /// Returns whether it may send messages and decide.
    pub fn may_chat(self) -> bool {
        matches!(self, Self::Owner | Self::User | Self::Desk | Self::Approver)
    }

    /// Returns whether it may approve what a rule of the operator asks about.
    pub fn may_approve(self) -> bool {
        matches!(self, Self::Owner | Self::Approver)
    }

    /// Returns what `by` says in the records of its decisions.
    pub fn by(self, user: &str) -> Value {
        match self.key() {
            Some(key) => json!({ "key": key }),
            None => json!({ "user": user }),
        }
    }
}
