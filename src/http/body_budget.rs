//! The bodies that an isolate holds at once, bounded in total.

use super::request::MAX_BODY;
use crate::types::Problem;
use bytes::Bytes;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Maximum size of all bodies, from the start of their arrival until they are processed, in bytes. An isolate has 128 MB for
/// everything.
const MAX_BODIES: usize = 6 * MAX_BODY;

/// Counts the bytes of the bodies of an isolate.
#[derive(Debug, Default)]
pub struct BodyBudget(Arc<AtomicUsize>);

impl BodyBudget {
    /// Reserves memory for this many bytes of a body.
    ///
    /// # Errors
    /// `unavailable` if the other bodies leave no room.
    pub fn reserve(&self, bytes: usize) -> Result<BodyPermit, Problem> {
        let mut permit = BodyPermit { budget: Arc::clone(&self.0), bytes: 0 };
        permit.grow(bytes)?;
        Ok(permit)
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
    /// Reserves memory for `bytes` bytes in total. A body that arrives slowly takes no room before it has arrived.
    ///
    /// # Errors
    /// `unavailable` if the other bodies leave no room.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Problem> {
        let (used, more) = (self.budget.load(Ordering::Relaxed), bytes.saturating_sub(self.bytes));
        if used.saturating_add(more) > MAX_BODIES {
            let detail = "the server is reading too many large bodies; try again";
            return Err(Problem::unavailable(detail, format!("{used} bytes of bodies are held")));
        }
        self.budget.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
        Ok(())
    }

    /// Returns the body, which holds the permit for its length until it is dropped.
    pub fn hold(mut self, mut body: Vec<u8>) -> Bytes {
        body.shrink_to_fit();
        let unused = self.bytes.saturating_sub(body.len());
        self.budget.fetch_sub(unused, Ordering::Relaxed);
        self.bytes -= unused;
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
        let mut permits: Vec<_> = (0..5).filter_map(|_| budget.reserve(MAX_BODY).ok()).collect();
        let mut arriving = budget.reserve(0).expect("room");
        arriving.grow(MAX_BODY - 10).expect("room");
        assert!(budget.reserve(10).is_ok());
        let refused = budget.reserve(11).map(drop).expect_err("no room");
        assert_eq!((refused.code, refused.retry_after_s), (ErrorCode::Unavailable, Some(2)));
        assert!(arriving.grow(MAX_BODY + 1).is_err());
        permits.pop();
        assert!(arriving.grow(MAX_BODY + 1).is_ok() && budget.reserve(MAX_BODY).is_err());
        drop(arriving);
        assert!(budget.reserve(MAX_BODY).is_ok());
        drop(permits);
        let body = budget.reserve(MAX_BODY).expect("room").hold(b"abc".to_vec());
        assert_eq!(budget.0.load(Ordering::Relaxed), 3);
        let part = body.slice(1..);
        drop(body);
        assert_eq!((part.as_ref(), budget.0.load(Ordering::Relaxed)), (&b"bc"[..], 3));
        drop(part);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }
}
