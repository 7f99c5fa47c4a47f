//! The keys of a session's documents.

use crate::ports::{SessionStore, StoreError, session_store::ACTIVITY};
use crate::types::{ArtifactId, CallId, Timestamp, TurnId};
use std::fmt;

/// The key of a document. The only place that contains the stored spelling of keys, which must never change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DocumentKey {
    /// The version of the stored shapes, and the session's metadata.
    State,
    /// The part of the state that guides the agent.
    Guidance,
    /// The part of the state that changes with each step.
    Activity,
    /// The part of the state for background jobs.
    Background,
    /// The part of the state that only children have.
    Child,
    /// The part of the state that concerns the tenant's ledger.
    Account,
    /// The part of the state that lists webhooks.
    Webhooks,
    /// The part of the state that lists background tasks.
    Subagents,
    /// The state of the context window.
    Context,
    /// The note that the task of this child was canceled before it started.
    Canceled,
    /// A queued turn.
    Queued(TurnId),
    /// The suspension of a call that waits or waited for approval.
    Approval(CallId),
    /// The suspension of a call that waits or waited for an answer.
    Answer(CallId),
    /// The details of a background task, by its id.
    BackgroundTask(TurnId),
    /// The pointer of an artifact.
    Artifact(ArtifactId),
    /// The entry of an artifact in the index by expiry time.
    ArtifactExpiry(Timestamp, ArtifactId),
    /// The stored response of a request, by `<route>/<Idempotency-Key>`.
    FirstResponse(String),
    /// The entry of a stored response in the index by expiry time.
    FirstResponseExpiry(Timestamp, String),
    /// A document of a hook, by its name.
    Hook(String),
}

/// The documents that are listed together, because their keys start with the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// All [`DocumentKey::ArtifactExpiry`], in the order of their times.
    ArtifactExpiries,
    /// All [`DocumentKey::FirstResponseExpiry`], in the order of their times.
    FirstResponseExpiries,
    /// The parts of the state.
    State,
}

impl Listing {
    fn prefix(self) -> &'static str {
        match self {
            Self::ArtifactExpiries => "artifact-expiry/",
            Self::FirstResponseExpiries => "response-expiry/",
            Self::State => "state",
        }
    }

    /// Parses a listed key; `None` if it has another form.
    fn parse(self, text: &str) -> Option<DocumentKey> {
        let rest = text.strip_prefix(self.prefix())?;
        match self {
            Self::ArtifactExpiries => {
                let (at, id) = rest.split_once('/')?;
                Some(DocumentKey::ArtifactExpiry(Timestamp(at.parse().ok()?), id.into()))
            }
            Self::FirstResponseExpiries => {
                let (at, response) = rest.split_once('/')?;
                Some(DocumentKey::FirstResponseExpiry(Timestamp(at.parse().ok()?), response.into()))
            }
            Self::State => {
                use DocumentKey::{
                    Account, Activity, Background, Child, Guidance, State, Subagents, Webhooks,
                };
                let parts = [State, Guidance, Activity, Background, Child, Account, Webhooks, Subagents];
                parts.into_iter().find(|key| key.to_string() == text)
            }
        }
    }
}

impl fmt::Display for DocumentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State => f.write_str(Listing::State.prefix()),
            Self::Guidance => f.write_str("state/guidance"),
            Self::Activity => f.write_str(ACTIVITY),
            Self::Background => f.write_str("state/background"),
            Self::Child => f.write_str("state/child"),
            Self::Account => f.write_str("state/account"),
            Self::Webhooks => f.write_str("state/webhooks"),
            Self::Subagents => f.write_str("state/subagents"),
            Self::Context => f.write_str("context"),
            Self::Canceled => f.write_str("canceled"),
            Self::Queued(turn) => write!(f, "queue/{turn}"),
            Self::Approval(call) => write!(f, "approval/{call}"),
            Self::Answer(call) => write!(f, "answer/{call}"),
            Self::BackgroundTask(id) => write!(f, "task/{id}"),
            Self::Artifact(id) => write!(f, "artifact/{id}"),
            // With leading zeros, so that the order of keys is the order of times.
            Self::ArtifactExpiry(at, id) => {
                write!(f, "{}{:020}/{id}", Listing::ArtifactExpiries.prefix(), at.0)
            }
            Self::FirstResponse(rest) => write!(f, "response/{rest}"),
            Self::FirstResponseExpiry(at, rest) => {
                write!(f, "{}{:020}/{rest}", Listing::FirstResponseExpiries.prefix(), at.0)
            }
            Self::Hook(name) => write!(f, "hook/{name}"),
        }
    }
}

/// Reads a document.
///
/// # Errors
/// If the store fails.
pub fn read(store: &dyn SessionStore, key: &DocumentKey) -> Result<Option<String>, StoreError> {
    store.get(&key.to_string())
}

/// Returns the first `limit` keys of an index by expiry time, those due at `until` only if given.
///
/// # Errors
/// If the store fails.
pub fn expiries(
    store: &dyn SessionStore,
    index: Listing,
    until: Option<Timestamp>,
    limit: usize,
) -> Result<Vec<DocumentKey>, StoreError> {
    let prefix = index.prefix();
    let end = until.map_or_else(|| char::MAX.to_string(), |at| format!("{:020}", at.0.saturating_add(1)));
    let keys = store.keys(prefix, &format!("{prefix}{end}"), limit)?;
    Ok(keys.iter().filter_map(|key| index.parse(key)).collect())
}

/// Reads all documents of a listing, sorted by the text of their keys.
///
/// # Errors
/// If the store fails.
pub fn list(store: &dyn SessionStore, listing: Listing) -> Result<Vec<(DocumentKey, String)>, StoreError> {
    let listed = store.list(listing.prefix())?.into_iter();
    Ok(listed.filter_map(|(key, json)| Some((listing.parse(&key)?, json))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn the_spelling_of_each_key_is_fixed() {
        let rest = "POST /sessions/a/b".to_owned();
        let response = DocumentKey::FirstResponse(rest.clone());
        let response_expiry = DocumentKey::FirstResponseExpiry(Timestamp(1_795_176_000_000), rest);
        let expiry = DocumentKey::ArtifactExpiry(Timestamp(1_795_176_000_000), "art_1".into());
        let keys = [
            (DocumentKey::State, "state"),
            (DocumentKey::Guidance, "state/guidance"),
            (DocumentKey::Activity, "state/activity"),
            (DocumentKey::Background, "state/background"),
            (DocumentKey::Child, "state/child"),
            (DocumentKey::Account, "state/account"),
            (DocumentKey::Webhooks, "state/webhooks"),
            (DocumentKey::Subagents, "state/subagents"),
            (DocumentKey::Context, "context"),
            (DocumentKey::Canceled, "canceled"),
            (DocumentKey::Queued("trn_1".into()), "queue/trn_1"),
            (DocumentKey::Approval("call_1".into()), "approval/call_1"),
            (DocumentKey::Answer("call_1".into()), "answer/call_1"),
            (DocumentKey::BackgroundTask("trn_1".into()), "task/trn_1"),
            (DocumentKey::Artifact("art_1".into()), "artifact/art_1"),
            (expiry.clone(), "artifact-expiry/00000001795176000000/art_1"),
            (response, "response/POST /sessions/a/b"),
            (response_expiry.clone(), "response-expiry/00000001795176000000/POST /sessions/a/b"),
            (DocumentKey::Hook("audit/trn_1".into()), "hook/audit/trn_1"),
        ];
        for (key, text) in &keys {
            assert_eq!(key.to_string(), *text);
        }
        let listings = [
            (Listing::ArtifactExpiries, vec![expiry]),
            (Listing::FirstResponseExpiries, vec![response_expiry]),
            (Listing::State, keys[..8].iter().map(|(key, _)| key.clone()).collect()),
        ];
        for (listing, listed) in listings {
            let starts = keys.iter().filter(|(_, text)| text.starts_with(listing.prefix()));
            let parsed: Vec<_> = starts.filter_map(|(_, text)| listing.parse(text)).collect();
            assert_eq!(parsed, listed);
        }
    }
}
