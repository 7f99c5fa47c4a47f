//! Time and chance.

use crate::types::Timestamp;
use futures::future::LocalBoxFuture;

/// The time, and waiting for it.
pub trait Clock {
    /// Now.
    fn now(&self) -> Timestamp;

    /// Completes after `ms` milliseconds; dropping the future ends the wait.
    fn sleep(&self, ms: u64) -> LocalBoxFuture<'static, ()>;
}

/// Unpredictable bytes.
pub trait Entropy {
    /// Fills `buffer` with bytes fit for keys.
    fn fill(&self, buffer: &mut [u8]);
}
