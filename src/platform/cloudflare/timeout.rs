//! Awaits the platform's stores with a timeout, and converts their errors to text.

use super::runtime::WorkerClock;
use crate::ports::{BlobError, Unfinished, within};
use std::time::Duration;
use worker::{Error, Result};

/// A store did not respond in time, or failed. There is no `source`, because the `Display` of a D1 error panics.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The store did not respond in time.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// The store failed.
    #[error("{}", error_text(.0))]
    Failed(Error),
}

impl From<CallError> for BlobError {
    fn from(error: CallError) -> Self {
        Self(error.to_string())
    }
}

/// Awaits a request to a store for at most `limit`. A request that timed out may still take effect.
pub async fn with_timeout<T>(
    limit: Duration,
    request: impl Future<Output = Result<T>>,
) -> std::result::Result<T, CallError> {
    within(&WorkerClock, limit, request).await?.map_err(CallError::Failed)
}

/// Returns the text of an error.
pub fn error_text(error: &Error) -> String {
    match error {
        // `Display` of a D1 error panics, because it expects its cause to be a string.
        Error::D1(error) => error.cause(),
        error => error.to_string(),
    }
}
