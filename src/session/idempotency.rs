//! Stored responses of requests with an Idempotency-Key, kept in the session that they concern.

use super::{Session, decode, encode};
use crate::ports::StoreError;
use crate::types::Timestamp;
use serde::{Deserialize, Serialize};

/// How long a response is kept, in milliseconds (24 h).
pub const KEEP_MS: u64 = 24 * 3_600_000;

/// The stored response of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstAnswer {
    /// Hash of the request's body.
    pub body_hash: String,
    /// When the request arrived.
    pub at: Timestamp,
    /// The response.
    pub answer: Answer,
}

/// The response of a request; see [`FirstAnswer`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The request started this turn; the response is the turn's.
    Turn(String),
    /// Status and JSON body.
    Json(u16, String),
}

/// The key of the document for a request to `route` with an Idempotency-Key.
pub fn document_key(route: &str, key: &str) -> String {
    format!("idem/{route}/{key}")
}

/// The value of the document.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn document(answer: &FirstAnswer) -> Result<String, StoreError> {
    encode(answer)
}

/// Finds a stored response that has not expired.
///
/// # Errors
/// If the store fails.
pub fn find(session: &Session, key: &str, now: Timestamp) -> Result<Option<FirstAnswer>, StoreError> {
    let stored = session.store().get(key)?;
    let found: Option<FirstAnswer> = stored.as_deref().map(decode).transpose()?;
    Ok(found.filter(|first| now.since(first.at) < KEEP_MS))
}

/// Deletes expired responses. Returns when the next one expires.
///
/// # Errors
/// If the store fails.
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
