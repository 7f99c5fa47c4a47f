//! A cache whose entries expire.

use crate::types::Timestamp;
use std::cell::RefCell;
use std::collections::HashMap;

/// A bounded map whose entries expire.
pub struct Expiring<V> {
    max: usize,
    entries: RefCell<HashMap<String, (V, Timestamp)>>,
}

impl<V: Clone> Expiring<V> {
    /// Creates a map with at most `max` entries.
    pub fn new(max: usize) -> Self {
        Self { max, entries: RefCell::default() }
    }

    /// Returns the value of a key, unless it has expired.
    pub fn get(&self, key: &str, now: Timestamp) -> Option<V> {
        self.entries.borrow().get(key).filter(|(_, end)| *end > now).map(|(value, _)| value.clone())
    }

    /// Stores `value` until `end`. A full map first drops its expired entries, then, if still full, the entry
    /// that expires next.
    pub fn put(&self, key: String, value: V, end: Timestamp, now: Timestamp) {
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

    /// Drops the entry of a key.
    pub fn remove(&self, key: &str) {
        self.entries.borrow_mut().remove(key);
    }

    /// Drops the entries that `keep` rejects.
    pub fn retain(&self, keep: impl Fn(&V) -> bool) {
        self.entries.borrow_mut().retain(|_, (value, _)| keep(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_expire_and_the_map_stays_bounded() {
        let map = Expiring::new(2);
        map.put("a".into(), 1, Timestamp(10), Timestamp(0));
        map.put("b".into(), 2, Timestamp(20), Timestamp(0));
        assert_eq!((map.get("a", Timestamp(9)), map.get("a", Timestamp(10))), (Some(1), None));
        map.put("c".into(), 3, Timestamp(30), Timestamp(0));
        assert_eq!(["a", "b", "c"].map(|key| map.get(key, Timestamp(0))), [None, Some(2), Some(3)]);
    }
}
