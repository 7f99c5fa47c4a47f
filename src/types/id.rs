//! Identifiers: a short prefix and a UUIDv7, such as `trn_0199…`, so that ids sort by age.

use super::Timestamp;
use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

/// The prefix of a session id.
pub const SESSION: &str = "ses_";
/// The prefix of a turn id.
pub const TURN: &str = "trn_";
/// The prefix of a message id.
pub const MESSAGE: &str = "msg_";
/// The prefix of a tool call id that we had to make ourselves.
pub const CALL: &str = "call_";
/// The prefix of a tenant id.
pub const TENANT: &str = "ten_";
/// The prefix of an API key's public id.
pub const KEY: &str = "key_";
/// The prefix of an artifact's id.
pub const ARTIFACT: &str = "art_";
/// The prefix of a large file's bytes in the object store.
pub const FILE: &str = "fil_";
/// The prefix of a fact's id.
pub const MEMORY: &str = "mem_";
/// The prefix of a lease's holder.
pub const LEASE: &str = "lea_";
/// The prefix of a request id.
pub const REQUEST: &str = "req_";

/// Longest id that a caller may choose, in bytes.
pub const MAX_CHOSEN: usize = 128;

/// Makes an id from a prefix, the time and ten random bytes.
pub fn make(prefix: &str, now: Timestamp, random: &[u8; 10]) -> String {
    let uuid = Builder::from_unix_timestamp_millis(now.0, random).into_uuid();
    format!("{prefix}{}", uuid.simple())
}

/// Makes the id that follows from a name: the first half of its SHA-256, the same each time.
pub fn derive(prefix: &str, name: &str) -> String {
    let digest = Sha256::digest(name.as_bytes());
    let half = digest.first_chunk().copied().unwrap_or_default();
    format!("{prefix}{}", Uuid::from_bytes(half).simple())
}

/// Whether `id` may be used in a path, a key and an object name as it stands:
/// 1–128 of `A–Z a–z 0–9 _ - . ~ : @`, and neither `.` nor `..`.
pub fn is_valid(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= MAX_CHOSEN
        && id != "."
        && id != ".."
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.~:@".contains(&b))
}

/// Whether `name` may name a user: 1–128 bytes without `/`, `\\` and control characters, and neither
/// `.` nor `..`. Wider than [`is_valid`], since identity providers choose names such as `auth0|7`.
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
        let a = make(TURN, Timestamp(1_000), &[255; 10]);
        let b = make(TURN, Timestamp(1_001), &[0; 10]);
        assert!(a < b);
        assert!(is_valid(&a));
        assert_eq!(a.len(), TURN.len() + 32);
    }

    #[test]
    fn users_cannot_leave_their_place() {
        for bad in ["", ".", "..", "a/b", "a\\b", "a\n", &"x".repeat(129)] {
            assert!(!is_user(bad), "{bad:?}");
        }
        for good in ["auth0|7", "user@example.com", "Zoë K."] {
            assert!(is_user(good), "{good:?}");
        }
    }

    #[test]
    fn chosen_ids_cannot_leave_their_place() {
        for bad in ["", ".", "..", "a/b", "a b", "ü", "a\0", &"x".repeat(129)] {
            assert!(!is_valid(bad), "{bad:?}");
        }
        for good in ["a", "user@example.com", "chat:1", "A-b_c.d~e"] {
            assert!(is_valid(good), "{good:?}");
        }
    }
}
