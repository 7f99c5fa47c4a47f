//! First answers kept under an Idempotency-Key, within the session that they concern.

use super::{Session, decode, encode};
use crate::ports::StoreError;
use crate::types::Timestamp;
use serde::{Deserialize, Serialize};

/// How long an answer is kept, in milliseconds (24 h).
pub const KEEP_MS: u64 = 24 * 3_600_000;

/// What was answered first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstAnswer {
    /// Hash of the request's body.
    pub body_hash: String,
    /// When the request came.
    pub at: Timestamp,
    /// What it got.
    pub answer: Answer,
}

/// See [`FirstAnswer`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It started this turn, and its answer is the turn's.
    Turn(String),
    /// It got this status and this JSON.
    Json(u16, String),
}

/// The document's key for a request of `route` with an Idempotency-Key.
pub fn document_key(route: &str, key: &str) -> String {
    format!("idem/{route}/{key}")
}

/// The document's value.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn document(answer: &FirstAnswer) -> Result<String, StoreError> {
    encode(answer)
}

/// Finds the first answer, unless it is past its time.
///
/// # Errors
/// When the store breaks.
pub fn find(session: &Session, key: &str, now: Timestamp) -> Result<Option<FirstAnswer>, StoreError> {
    let stored = session.store().get(key)?;
    let found: Option<FirstAnswer> = stored.as_deref().map(decode).transpose()?;
    Ok(found.filter(|first| now.since(first.at) < KEEP_MS))
}

/// Removes answers that are past their time.
///
/// # Errors
/// When the store fails.
pub fn purge(session: &Session, now: Timestamp) -> Result<(), StoreError> {
    let mut old = Vec::new();
    for (key, json) in session.store().list("idem/")? {
        if expiry(&json)? <= now {
            old.push(key);
        }
    }
    if !old.is_empty() {
        session.commit(now, |draft| old.into_iter().for_each(|key| draft.delete(key)))?;
    }
    Ok(())
}

/// Returns when the next answer expires; `None` when none is kept.
///
/// # Errors
/// When the store fails.
pub fn next_expiry(session: &Session) -> Result<Option<Timestamp>, StoreError> {
    let mut expiries = session.store().list("idem/")?.into_iter().map(|(_, json)| expiry(&json));
    expiries.try_fold(None::<Timestamp>, |next, at| at.map(|at| Some(next.map_or(at, |next| next.min(at)))))
}

fn expiry(json: &str) -> Result<Timestamp, StoreError> {
    decode::<FirstAnswer>(json).map(|first| first.at.plus(KEEP_MS))
}
