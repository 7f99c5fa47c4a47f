//! Identifiers, each kind a type of its own, so that the compiler rejects one passed as another.
//!
//! A generated id is a short prefix and a UUIDv7, such as `trn_0199…`, so that ids sort by age.

use super::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{borrow::Borrow, fmt, ops::Deref, rc::Rc};
use uuid::{Builder, Uuid};

/// Defines id types: a string in JSON, cheap to clone, comparable with text but not with other ids.
///
/// `From` trusts the text, as storage is trusted; `parse` checks text from a caller with the named
/// function. With a prefix, the service generates ids of this type.
macro_rules! id_type {
    ($($(#[$doc:meta])* $name:ident($is_valid:path $(, $prefix:literal)?);)+) => {$(
        $(#[$doc])*
        #[derive(
            Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
        )]
        #[serde(transparent)]
        #[schemars(inline)]
        pub struct $name(Rc<str>);

        impl $name {
            /// Parses an id that a caller chose; `None` if it is not valid.
            pub fn parse(text: &str) -> Option<Self> {
                $is_valid(text).then(|| Self::from(text))
            }

            /// Returns the id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, text: &str) -> bool {
                *self.0 == *text
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, text: &&str) -> bool {
                *self.0 == **text
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        $(impl GeneratedId for $name {
            const PREFIX: &'static str = $prefix;
        })?
    )+};
}

impl TurnId {
    /// The turn of a message outside of any turn, such as a question to a one-shot model.
    pub fn none() -> Self {
        "".into()
    }
}

impl AuditId {
    /// Returns the first id of this time: the lowest that can be generated.
    pub fn first_at(at: Timestamp) -> Self {
        Self::generate(at, &[0; 10])
    }

    /// Returns the id of the row for a record of a session's log.
    pub fn of_record(at: Timestamp, session: &SessionId, seq: u64) -> Self {
        Self::of_repeated(at, &format!("audit {session} {seq}"))
    }

    /// Returns the id that all rows with this time and text have.
    pub fn of_repeated(at: Timestamp, what: &str) -> Self {
        let digest = Sha256::digest(what);
        Self::generate(at, &digest.first_chunk().copied().unwrap_or_default())
    }
}

/// An id type that the service can generate.
///
/// ```
/// use edge_harness::types::{GeneratedId, Timestamp, TurnId};
///
/// let (first, second) = (Timestamp(0), Timestamp(1));
/// assert!(TurnId::generate(first, &[0; 10]) < TurnId::generate(second, &[0; 10]));
/// assert_eq!(TurnId::derive("a"), TurnId::derive("a"));
/// ```
pub trait GeneratedId: From<String> {
    /// The prefix of generated ids.
    const PREFIX: &'static str;

    /// Generates an id from the time and ten random bytes.
    fn generate(now: Timestamp, random: &[u8; 10]) -> Self {
        make(Self::PREFIX, now, random).into()
    }

    /// Derives an id from a name: the first half of the name's SHA-256.
    fn derive(name: &str) -> Self {
        derive(Self::PREFIX, name).into()
    }
}

id_type! {
    /// The unit of isolation: the first part of every key.
    TenantId(is_valid, "ten_");

    /// A user of a tenant, as the caller or its identity provider names the person.
    UserId(is_user);

    /// An agent of a tenant.
    AgentId(is_valid);

    /// A session of a tenant.
    SessionId(is_valid, "ses_");

    /// A turn of a session.
    TurnId(is_valid, "trn_");

    /// A message of a session.
    MessageId(is_valid, "msg_");

    /// A tool call. The id is the provider's, unless that is invalid or used already.
    CallId(is_valid, "call_");

    /// An artifact of a session.
    ArtifactId(is_valid, "art_");

    /// The public part of an API key.
    KeyId(is_valid, "key_");

    /// A fact about a user.
    FactId(is_valid, "mem_");

    /// The claim of a lease on a memory space.
    LeaseId(is_valid, "lea_");

    /// A move of a tenant to another shard.
    MoveId(is_valid, "mov_");

    /// The content of a large file, as an object in the blob store.
    BlobId(is_valid, "fil_");

    /// A request over HTTP.
    RequestId(is_valid, "req_");

    /// A row of the audit trail.
    AuditId(is_valid, "aud_");
}

/// Maximum length of an id that a caller chooses, in bytes.
pub const MAX_CHOSEN: usize = 128;

/// Creates an id from a prefix, the time, and ten random bytes.
fn make(prefix: &str, now: Timestamp, random: &[u8; 10]) -> String {
    let uuid = Builder::from_unix_timestamp_millis(now.0, random).into_uuid();
    format!("{prefix}{}", uuid.simple())
}

/// Derives an id from a name: the first half of the name's SHA-256.
fn derive(prefix: &str, name: &str) -> String {
    let digest = Sha256::digest(name.as_bytes());
    let half = digest.first_chunk().copied().unwrap_or_default();
    format!("{prefix}{}", Uuid::from_bytes(half).simple())
}

/// Returns whether `id` is safe in a path, a key, and an object name without escaping:
/// 1–128 of `A–Z a–z 0–9 _ - . ~ : @`, and neither `.` nor `..`.
pub fn is_valid(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= MAX_CHOSEN
        && id != "."
        && id != ".."
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.~:@".contains(&b))
}

/// Returns whether `name` is a valid user name: 1–128 bytes without `/`, `\\`, and control characters, and
/// neither `.` nor `..`. Wider than [`is_valid`], because identity providers use names such as `auth0|7`.
pub fn is_user(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_CHOSEN
        && name != "."
        && name != ".."
        && !name.chars().any(|c| c.is_control() || c == '/' || c == '\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_are_valid() {
        let a = TurnId::generate(Timestamp(1_000), &[255; 10]);
        let b = TurnId::generate(Timestamp(1_001), &[0; 10]);
        assert!(a < b);
        assert!(is_valid(&a));
        assert_eq!(a.len(), TurnId::PREFIX.len() + 32);
    }

    #[test]
    fn ids_are_plain_text_in_json() {
        let id: TenantId = serde_json::from_str("\"acme\"").unwrap();
        assert_eq!(id, "acme");
        assert_eq!(serde_json::to_string(&id).unwrap(), "\"acme\"");
        assert_eq!(TenantId::parse("a/b"), None);
    }

    #[test]
    fn user_names_cannot_traverse_paths() {
        for bad in ["", ".", "..", "a/b", "a\\b", "a\n", &"x".repeat(129)] {
            assert!(!is_user(bad), "{bad:?}");
        }
        for good in ["auth0|7", "user@example.com", "Zoë K."] {
            assert!(is_user(good), "{good:?}");
        }
    }

    #[test]
    fn chosen_ids_cannot_traverse_paths() {
        for bad in ["", ".", "..", "a/b", "a b", "ü", "a\0", &"x".repeat(129)] {
            assert!(!is_valid(bad), "{bad:?}");
        }
        for good in ["a", "user@example.com", "chat:1", "A-b_c.d~e"] {
            assert!(is_valid(good), "{good:?}");
        }
    }
}
