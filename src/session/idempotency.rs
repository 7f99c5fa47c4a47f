//! Stored responses of requests with an Idempotency-Key, kept in the session that handled them.

use super::{
    Draft, Session, decode,
    document_key::{self, DocumentKey, Listing, expiries},
    encode,
};
use crate::ports::{SessionStore, StoreError};
use crate::types::{Timestamp, TurnId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a response is kept (24 h).
pub const KEEP: Duration = Duration::from_hours(24);

/// Maximum number of responses that a session keeps: the newest.
pub const MAX_KEPT: usize = 1_000;
/// Maximum number of responses that one purge deletes.
const MAX_PER_PURGE: usize = 200;

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
    /// Status and JSON body. The body is empty if it is the session, which is shown as it is then.
    Json(u16, String),
}

/// A response to store in the commit that it responds to.
#[derive(Clone, Debug)]
pub struct ResponseDocument {
    /// Route and Idempotency-Key.
    place: String,
    json: String,
    expires_at: Timestamp,
    /// The oldest responses, which make room for this one.
    dropped: Vec<DocumentKey>,
}

impl ResponseDocument {
    /// Creates the document for a request to `route` with the Idempotency-Key `key`. If the session has [`MAX_KEPT`]
    /// responses, the oldest are deleted in the same commit.
    ///
    /// # Errors
    /// If the response cannot be written as JSON, or the store fails.
    pub fn new(
        store: &dyn SessionStore,
        route: &str,
        key: &str,
        first: &FirstResponse,
    ) -> Result<Self, StoreError> {
        let mut kept = expiries(store, Listing::FirstResponseExpiries, None, MAX_KEPT)?;
        kept.truncate((kept.len() + 1).saturating_sub(MAX_KEPT));
        let mut dropped = Vec::new();
        for entry in kept {
            dropped.extend(indexed_response(store, &entry)?);
            dropped.push(entry);
        }
        let expires_at = first.at + KEEP;
        Ok(Self { place: format!("{route}/{key}"), json: encode(first)?, expires_at, dropped })
    }
}

/// Returns the key of the response of an entry of the index. `None` if the key was used again after that response had
/// expired: then the stored response belongs to another entry.
fn indexed_response(
    store: &dyn SessionStore,
    entry: &DocumentKey,
) -> Result<Option<DocumentKey>, StoreError> {
    let DocumentKey::FirstResponseExpiry(expires_at, place) = entry else { return Ok(None) };
    let response = DocumentKey::FirstResponse(place.clone());
    let stored = document_key::read(store, &response)?;
    Ok(stored.is_some_and(|json| expiry(&json).is_ok_and(|at| at <= *expires_at)).then_some(response))
}

impl Draft {
    /// Stores the response of a request with an Idempotency-Key.
    pub fn store_response(&mut self, response: ResponseDocument) {
        let ResponseDocument { place, json, expires_at, dropped } = response;
        dropped.into_iter().for_each(|key| self.delete(key));
        self.put(DocumentKey::FirstResponseExpiry(expires_at, place.clone()), "null".to_owned());
        self.put_until(DocumentKey::FirstResponse(place), json, expires_at);
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
    let place = format!("{route}/{key}");
    let stored = session.document(&DocumentKey::FirstResponse(place))?;
    let found: Option<FirstResponse> = stored.as_deref().map(decode).transpose()?;
    Ok(found.filter(|first| now.since(first.at) < KEEP))
}

/// Deletes expired responses, a bounded number at once.
///
/// # Errors
/// If the store fails.
pub fn purge(session: &Session, now: Timestamp) -> Result<(), StoreError> {
    let mut old = Vec::new();
    for entry in expiries(session.store(), Listing::FirstResponseExpiries, Some(now), MAX_PER_PURGE)? {
        old.extend(indexed_response(session.store(), &entry)?);
        old.push(entry);
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
    let store = session.store();
    Ok(match expiries(store, Listing::FirstResponseExpiries, None, 1)?.first() {
        Some(DocumentKey::FirstResponseExpiry(at, _)) => Some(*at),
        _ => None,
    })
}

fn expiry(json: &str) -> Result<Timestamp, StoreError> {
    decode::<FirstResponse>(json).map(|first| first.at + KEEP)
}
