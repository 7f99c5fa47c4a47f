//! What an isolate remembers of credentials, so that a call does not pay a read of the directory
//! each time. Plain data, bounded, and short-lived: a revoked key may work for another minute in
//! other isolates, never longer.

use super::jwks::KeySet;
use crate::types::{Principal, Timestamp};
use std::cell::RefCell;
use std::collections::HashMap;

/// The longest that anything learnt about a credential is believed.
pub const KEPT_MS: u64 = 60_000;
/// The longest that an unknown key counts as unknown.
pub const UNKNOWN_KEPT_MS: u64 = 5_000;

const MAX_CREDENTIALS: usize = 1_000;
const MAX_KEY_SETS: usize = 100;

/// The memory of one isolate, shared by its requests.
pub struct AuthCache {
    /// Callers by the hash of the key or token that they showed.
    pub(super) callers: Expiring<Principal>,
    /// Hashes that no key has. Apart from the callers, so that guessing cannot crowd them out.
    pub(super) unknown: Expiring<()>,
    /// Key sets by the URL that publishes them.
    pub(super) key_sets: Expiring<KeySet>,
}

impl Default for AuthCache {
    fn default() -> Self {
        Self {
            callers: Expiring::new(MAX_CREDENTIALS),
            unknown: Expiring::new(MAX_CREDENTIALS),
            key_sets: Expiring::new(MAX_KEY_SETS),
        }
    }
}

impl AuthCache {
    /// Forgets everything learnt about a tenant's credentials: something about it changed.
    pub fn forget_tenant(&self, tenant: &str) {
        self.callers.retain(|caller| caller.tenant != tenant);
    }
}

/// A bounded map whose entries end.
pub(super) struct Expiring<V> {
    max: usize,
    entries: RefCell<HashMap<String, (V, Timestamp)>>,
}

impl<V: Clone> Expiring<V> {
    pub(super) fn new(max: usize) -> Self {
        Self { max, entries: RefCell::default() }
    }

    pub(super) fn get(&self, key: &str, now: Timestamp) -> Option<V> {
        self.entries.borrow().get(key).filter(|(_, end)| *end > now).map(|(value, _)| value.clone())
    }

    /// Keeps `value` until `end`. When the map is full, what has ended goes, or else what ends next.
    pub(super) fn put(&self, key: String, value: V, end: Timestamp, now: Timestamp) {
        let mut entries = self.entries.borrow_mut();
        if entries.len() >= self.max && !entries.contains_key(&key) {
            entries.retain(|_, (_, end)| *end > now);
            if entries.len() >= self.max
                && let Some(next) =
                    entries.iter().min_by_key(|(_, (_, end))| *end).map(|(key, _)| key.clone())
            {
                entries.remove(&next);
            }
        }
        entries.insert(key, (value, end));
    }

    fn retain(&self, keep: impl Fn(&V) -> bool) {
        self.entries.borrow_mut().retain(|_, (value, _)| keep(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_end_and_the_map_stays_bounded() {
        let map = Expiring::new(2);
        map.put("a".into(), 1, Timestamp(10), Timestamp(0));
        map.put("b".into(), 2, Timestamp(20), Timestamp(0));
        assert_eq!((map.get("a", Timestamp(9)), map.get("a", Timestamp(10))), (Some(1), None));
        map.put("c".into(), 3, Timestamp(30), Timestamp(0));
        assert_eq!(["a", "b", "c"].map(|key| map.get(key, Timestamp(0))), [None, Some(2), Some(3)]);
    }
}
