//! Time and chance.

use crate::types::Timestamp;
use futures::{
    FutureExt,
    future::{Either, LocalBoxFuture, select},
    pin_mut,
};
use std::panic::AssertUnwindSafe;

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

/// Why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfinished {
    /// It took too long, and was dropped.
    #[error("no answer in time")]
    Late,
    /// It panicked.
    #[error("it broke (a defect of ours)")]
    Broke,
}

/// Runs work of others, bounded in time and in what its defects cost: for `ms` milliseconds at most.
///
/// # Errors
/// When it took longer, or panicked.
pub async fn within<T>(clock: &dyn Clock, ms: u64, work: impl Future<Output = T>) -> Result<T, Unfinished> {
    let work = AssertUnwindSafe(work).catch_unwind();
    let timer = clock.sleep(ms);
    pin_mut!(work);
    match select(work, timer).await {
        Either::Left((done, _)) => done.map_err(|_panic| Unfinished::Broke),
        Either::Right(_) => Err(Unfinished::Late),
    }
}
