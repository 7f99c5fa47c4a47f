//! Waits before a request is repeated.

use crate::error::{Error, Result};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(10);

/// Maximum time that a server can ask for.
const LONGEST_REQUESTED: Duration = Duration::from_secs(60);

/// Waits before the next attempt: longer after each failure, and at least as long as the server asks for.
pub async fn back_off(failures: u32, error: &Error) {
    let grown = FIRST.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST);
    // Clients that failed together do not return together.
    let spread = 0.5 + f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 512.0;
    let requested = error.retry_after().unwrap_or_default().min(LONGEST_REQUESTED);
    tokio::time::sleep(grown.mul_f64(spread).max(requested)).await;
}

/// Repeats an attempt until the server has decided about it. `on_lost` gets each error after which it is repeated.
///
/// # Errors
/// What the server refuses, and a response of another form.
pub async fn insist<T>(
    mut attempt: impl AsyncFnMut() -> Result<T>,
    mut on_lost: impl FnMut(&Error),
) -> Result<T> {
    let mut failures = 0;
    loop {
        match attempt().await {
            Err(error) if error.may_pass() => {
                on_lost(&error);
                failures += 1;
                back_off(failures, &error).await;
            }
            result => return result,
        }
    }
}
