//! Work of others, bounded: in time, and in what its defects cost.

use crate::ports::Clock;
use futures::{
    FutureExt,
    future::{Either, select},
    pin_mut,
};
use std::panic::AssertUnwindSafe;

/// Why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfinished {
    /// It took too long, and was dropped.
    #[error("no answer in time")]
    Late,
    /// It panicked.
    #[error("it broke (a defect of ours)")]
    Broke,
}

/// Runs `work` for `ms` milliseconds at most.
pub(super) async fn within<T>(
    clock: &dyn Clock,
    ms: u64,
    work: impl Future<Output = T>,
) -> Result<T, Unfinished> {
    let work = AssertUnwindSafe(work).catch_unwind();
    let timer = clock.sleep(ms);
    pin_mut!(work);
    match select(work, timer).await {
        Either::Left((done, _)) => done.map_err(|_panic| Unfinished::Broke),
        Either::Right(_) => Err(Unfinished::Late),
    }
}
