//! Awaits the platform's stores with a timeout, and converts their errors to text.

use super::runtime::WorkerClock;
use crate::ports::within;
use worker::{Error, Result};

/// Awaits a request to a store for at most `ms` milliseconds. A request that timed out may still take effect.
pub async fn with_timeout<T>(
    ms: u64,
    request: impl Future<Output = Result<T>>,
) -> std::result::Result<T, String> {
    match within(&WorkerClock, ms, request).await {
        Ok(result) => result.map_err(error_text),
        Err(unfinished) => Err(unfinished.to_string()),
    }
}

/// Returns the text of an error.
pub fn error_text(error: Error) -> String {
    match error {
        // `Display` of a D1 error panics, because it expects its cause to be a string.
        Error::D1(error) => error.cause(),
        error => error.to_string(),
    }
}
