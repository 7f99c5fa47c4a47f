//! Stored responses of requests with an Idempotency-Key, kept in the session that handled them.

use super::{
    Draft, Session, decode,
    document_key::{self, DocumentKey, Listing},
    encode,
};
use crate::ports::StoreError;
use crate::types::{Timestamp, TurnId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a response is kept (24 h).
pub const KEEP: Duration = Duration::from_hours(24);

/// The stored response of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstResponse {
    /// Hash of the request's body.
    pub body_hash: String,
    /// When the request arrived.
    pub at: Timestamp,
    /// The response.
    #[serde(rename = "answer")]
    pub response: StoredResponse,
}

/// The response of a request; see [`FirstResponse`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredResponse {
    /// The request started this turn; the response is the turn's.
    Turn(TurnId),
    /// Status and JSON body.
    Json(u16, String),
}

/// A response to store in the commit that it responds to.
#[derive(Clone, Debug)]
pub struct ResponseDocument {
    key: DocumentKey,
    json: String,
    expires_at: Timestamp,
}

impl ResponseDocument {
    /// Creates the document for a request to `route` with the Idempotency-Key `key`.
    ///
    /// # Errors
    /// If the response cannot be written as JSON.
    pub fn new(route: &str, key: &str, first: &FirstResponse) -> Result<Self, StoreError> {
        let key = DocumentKey::first_response(route, key);
        Ok(Self { key, json: encode(first)?, expires_at: first.at + KEEP })
    }
}

impl Draft {
    /// Stores the response of a request with an Idempotency-Key.
    pub fn store_response(&mut self, response: ResponseDocument) {
        self.put_until(response.key, response.json, response.expires_at);
    }
}

/// Finds the stored response to a request, unless it has expired.
///
/// # Errors
/// If the store fails.
pub fn find(
    session: &Session,
    route: &str,
    key: &str,
    now: Timestamp,
) -> Result<Option<FirstResponse>, StoreError> {
    let stored = session.document(&DocumentKey::first_response(route, key))?;
    let found: Option<FirstResponse> = stored.as_deref().map(decode).transpose()?;
    Ok(found.filter(|first| now.since(first.at) < KEEP))
}

/// Deletes expired responses.
///
/// # Errors
/// If the store fails.
pub fn purge(session: &Session, now: Timestamp) -> Result<(), StoreError> {
    let mut old = Vec::new();
    for (key, json) in document_key::list(session.store().as_ref(), Listing::FirstResponses)? {
        if expiry(&json)? <= now {
            old.push(key);
        }
    }
    if !old.is_empty() {
        session.commit(now, |draft| old.into_iter().for_each(|key| draft.delete(key)))?;
    }
    Ok(())
}

/// Returns when the next response expires; `None` when none is stored.
///
/// # Errors
/// When the store fails.
pub fn next_expiry(session: &Session) -> Result<Option<Timestamp>, StoreError> {
    let stored = document_key::list(session.store().as_ref(), Listing::FirstResponses)?;
    let mut expiries = stored.into_iter().map(|(_, json)| expiry(&json));
    expiries.try_fold(None::<Timestamp>, |next, at| at.map(|at| Some(next.map_or(at, |next| next.min(at)))))
}

fn expiry(json: &str) -> Result<Timestamp, StoreError> {
    decode::<FirstResponse>(json).map(|first| first.at + KEEP)
}
