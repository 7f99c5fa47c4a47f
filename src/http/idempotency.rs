//! Idempotency-Key: a repeated POST gets the first response again.
//!
//! One engine, [`once`], runs over two stores: [`DirectoryStore`] for routes of the gateway, and
//! `session::documents::DocumentStore` for routes of a session. Only responses with a 2xx status are
//! stored, so a client may correct a refused request under the same key.

mod directory;

pub use directory::{DirectoryStore, IdempotencyClaim, claim, settle};

use super::crypto::sha256_hex;
use super::pattern::Params;
use super::request::{Request, RequestExt};
use super::response::{self, Body, Response, ResponseExt};
use crate::ports::directory::Claim;
use crate::types::{ErrorCode, Problem};
use async_trait::async_trait;
use http::{StatusCode, header};
use serde_json::{Value, json};
use std::borrow::Cow;

/// Largest body that is stored, in bytes (16 kB).
pub const MAX_STORED: usize = 16 << 10;
/// Longest key, in bytes.
const MAX_KEY: usize = 255;

/// Identifies a request that may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    /// Method, path pattern, path parameters and owner, as a JSON array.
    pub scope: String,
    /// The client's key.
    pub key: String,
    /// Hash of the request's body.
    pub body_hash: String,
}

impl RequestKey {
    /// Reads the key of a request; `None` when the request has none. `owner` identifies the callers that may
    /// see the stored response again.
    ///
    /// # Errors
    /// See [`key`].
    pub fn of(request: &Request, params: &Params, owner: &Value) -> Result<Option<Self>, Problem> {
        let Some(key) = key(request)? else { return Ok(None) };
        let values: Vec<_> = params.values().collect();
        let scope = json!([request.method().as_str(), params.pattern(), values, owner]).to_string();
        Ok(Some(Self { scope, key: key.to_owned(), body_hash: body_hash(&request.body().bytes()) }))
    }
}

/// Stores the first responses of requests with an Idempotency-Key.
///
/// ```
/// # use edge_harness::http::idempotency::{RequestKey, ResponseStore, once};
/// # use edge_harness::http::{Response, response};
/// # use edge_harness::types::Problem;
/// # use http::StatusCode;
/// /// Creates a thing once, however often the request arrives.
/// async fn create(store: &impl ResponseStore, key: &RequestKey) -> Result<Response, Problem> {
///     let work = async { response::json(StatusCode::CREATED, &serde_json::json!({"id": "thing"})) };
///     once(store, key, work).await
/// }
/// ```
#[async_trait(?Send)]
pub trait ResponseStore {
    /// Claims the key, or returns the outcome of the earlier request that claimed it.
    async fn claim(&self, key: &RequestKey) -> Result<Claim, Problem>;

    /// Stores the response to a request that claimed its key; `None` releases the key.
    async fn settle(&self, key: &RequestKey, response: Option<(StatusCode, &str)>) -> Result<(), Problem>;
}

/// Responds to a request with an Idempotency-Key: by running `work`, or with the stored response.
///
/// # Errors
/// `idempotency_key_reused`, `idempotency_in_progress`, or a problem of `work` or of the store.
pub async fn once(
    store: &impl ResponseStore,
    key: &RequestKey,
    work: impl Future<Output = Result<Response, Problem>>,
) -> Result<Response, Problem> {
    match store.claim(key).await? {
        Claim::Fresh => {}
        Claim::Running => return Err(in_progress()),
        Claim::Reused => return Err(reused()),
        Claim::Done(status, body) => return Ok(replayed(status, body)),
    }
    let outcome = work.await;
    let stored = outcome.as_ref().ok().and_then(storable);
    store.settle(key, stored.as_ref().map(|(status, body)| (*status, body.as_ref()))).await?;
    outcome
}

/// Returns the status and body of a response that is stored. In place of a large body, the location of what was
/// created is stored.
fn storable(response: &Response) -> Option<(StatusCode, Cow<'_, str>)> {
    let Body::Bytes(body) = response.body() else { return None };
    if !response.status().is_success() {
        return None;
    }
    let body = match body.len() <= MAX_STORED {
        true => Cow::Borrowed(std::str::from_utf8(body).ok()?),
        false => {
            let location = response.headers().get(header::LOCATION).and_then(|at| at.to_str().ok());
            let detail = "the request has succeeded; its first response is too large to be repeated";
            Cow::Owned(json!({ "truncated": true, "detail": detail, "location": location }).to_string())
        }
    };
    Some((response.status(), body))
}

/// Returns the request's Idempotency-Key.
///
/// # Errors
/// `invalid_request` unless the key is 1 to 255 visible ASCII characters.
pub fn key(request: &Request) -> Result<Option<&str>, Problem> {
    let Some(key) = request.header("idempotency-key") else { return Ok(None) };
    if key.is_empty() || key.len() > MAX_KEY || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        let detail = format!("Idempotency-Key must be 1 to {MAX_KEY} visible ASCII characters");
        return Err(Problem::new(ErrorCode::InvalidRequest, detail));
    }
    Ok(Some(key))
}

/// Hashes a request's body.
pub fn body_hash(body: &[u8]) -> String {
    sha256_hex(body)
}

/// Returns the problem of a request whose first attempt is still running.
pub fn in_progress() -> Problem {
    let problem = Problem::new(ErrorCode::IdempotencyInProgress, "the first request still runs; try again");
    Problem { retry_after_s: Some(1), ..problem }
}

/// Returns the problem of a request with another body than the first request with the same key.
pub fn reused() -> Problem {
    Problem::new(ErrorCode::IdempotencyKeyReused, "this Idempotency-Key was used with another body")
}

/// Builds the response from a stored status and body.
pub fn replayed(status: u16, body: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    response::bytes(status, "application/json", body).with("idempotent-replayed", "true")
}
