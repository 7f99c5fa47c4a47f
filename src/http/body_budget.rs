//! The bodies that an isolate reads at once, bounded in total.

use super::request::MAX_BODY;
use crate::types::Problem;
use bytes::Bytes;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Maximum size of all bodies that are being read, in bytes. An isolate has 128 MB for everything.
const MAX_BODIES: usize = 6 * MAX_BODY;

/// Counts the bytes of the bodies of an isolate.
#[derive(Debug, Default)]
pub struct BodyBudget(Arc<AtomicUsize>);

impl BodyBudget {
    /// Reserves memory for a body of this length; for the largest body if the length is unknown.
    ///
    /// # Errors
    /// `unavailable` if the other bodies leave no room.
    pub fn reserve(&self, length: Option<usize>) -> Result<BodyPermit, Problem> {
        let bytes = length.unwrap_or(MAX_BODY);
        let others = self.0.load(Ordering::Relaxed);
        if others.saturating_add(bytes) > MAX_BODIES {
            let detail = "the server is reading too many large bodies; try again";
            return Err(Problem::unavailable(detail, format!("{others} bytes of bodies are being read")));
        }
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Ok(BodyPermit { budget: Arc::clone(&self.0), bytes })
    }
}

/// The right to hold a body. Dropping it frees its share of the budget.
#[derive(Debug)]
pub struct BodyPermit {
    // Atomic, because `Bytes` may be sent to another thread.
    budget: Arc<AtomicUsize>,
    bytes: usize,
}

impl BodyPermit {
    /// Returns the body, which holds the permit until it is dropped.
    pub fn hold(self, body: Vec<u8>) -> Bytes {
        Bytes::from_owner(Held(body, self))
    }
}

impl Drop for BodyPermit {
    fn drop(&mut self) {
        self.budget.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A body with its permit.
struct Held(Vec<u8>, #[allow(dead_code, reason = "is held, not read")] BodyPermit);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ErrorCode;

    #[test]
    fn bodies_are_bounded_in_total_until_they_are_dropped() {
        let budget = BodyBudget::default();
        let mut permits: Vec<_> = (0..5).filter_map(|_| budget.reserve(None).ok()).collect();
        permits.extend(budget.reserve(Some(MAX_BODY - 10)).ok());
        assert_eq!(permits.len(), 6);
        assert!(budget.reserve(Some(10)).is_ok());
        let refused = budget.reserve(Some(11)).map(drop).expect_err("no room");
        assert_eq!((refused.code, refused.retry_after_s), (ErrorCode::Unavailable, Some(2)));
        permits.pop();
        assert!(budget.reserve(Some(MAX_BODY)).is_ok() && budget.reserve(Some(MAX_BODY + 1)).is_err());
        drop(permits);
        let body = budget.reserve(Some(3)).expect("room").hold(b"abc".to_vec());
        let part = body.slice(1..);
        drop(body);
        assert_eq!((part.as_ref(), budget.0.load(Ordering::Relaxed)), (&b"bc"[..], 3));
        drop(part);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }
}
