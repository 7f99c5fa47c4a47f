//! What the platform's stores answer: in time, and what went wrong as text.

use super::runtime::WorkerClock;
use crate::ports::within;
use worker::{Error, Result};

/// What a store answers within `ms` milliseconds. What was asked of one that is late may still take
/// place.
pub async fn answer<T>(ms: u64, asked: impl Future<Output = Result<T>>) -> std::result::Result<T, String> {
    match within(&WorkerClock, ms, asked).await {
        Ok(answered) => answered.map_err(said),
        Err(unfinished) => Err(unfinished.to_string()),
    }
}

/// An error as text.
pub fn said(error: Error) -> String {
    match error {
        // Its own `Display` takes the cause for a string, and panics since it is an error.
        Error::D1(error) => error.cause(),
        error => error.to_string(),
    }
}
