//! Time and randomness.

use crate::types::Timestamp;
use futures::{
    FutureExt,
    future::{Either, LocalBoxFuture, select},
    pin_mut,
};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// A source of time.
///
/// ```
/// use edge_harness::{platform::in_memory::ManualClock, ports::Clock};
/// use std::time::Duration;
///
/// let clock = ManualClock::default();
/// let start = clock.now();
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(clock.now().since(start), Duration::from_secs(5));
/// ```
pub trait Clock {
    /// Returns the current time.
    fn now(&self) -> Timestamp;

    /// Completes after `span`. Dropping the future cancels the timer.
    fn sleep(&self, span: Duration) -> LocalBoxFuture<'static, ()>;
}

/// A source of cryptographically secure random bytes.
///
/// ```
/// use edge_harness::{platform::in_memory::SeededEntropy, ports::Entropy};
///
/// let mut bytes = [0; 16];
/// SeededEntropy::default().fill(&mut bytes);
/// assert_ne!(bytes, [0; 16]);
/// ```
pub trait Entropy {
    /// Fills `buffer` with random bytes.
    fn fill(&self, buffer: &mut [u8]);
}

/// Why supervised work has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfinished {
    /// The work exceeded its time limit and was dropped.
    #[error("timed out")]
    TimedOut,
    /// The work panicked.
    #[error("internal error: the task panicked")]
    Panicked,
}

/// Runs `work` for at most `limit` and catches its panics.
///
/// # Errors
/// The work timed out or panicked.
pub async fn within<T>(
    clock: &dyn Clock,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Result<T, Unfinished> {
    let work = AssertUnwindSafe(work).catch_unwind();
    let timer = clock.sleep(limit);
    pin_mut!(work);
    match select(work, timer).await {
        Either::Left((done, _)) => done.map_err(|_panic| Unfinished::Panicked),
        Either::Right(_) => Err(Unfinished::TimedOut),
    }
}
