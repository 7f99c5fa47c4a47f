//! Pages of a list: `?limit=` and an opaque `?cursor=` in, `{data, next_cursor}` out.

use super::{ApiRequest, ApiResponse};
use crate::types::Problem;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Serialize, de::DeserializeOwned};

const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 200;

/// How many entries the caller wants.
///
/// # Errors
/// When `?limit=` is not a number from 1 to 200.
pub fn limit(request: &ApiRequest) -> Result<usize, Problem> {
    let Some(text) = request.query("limit") else { return Ok(DEFAULT_LIMIT) };
    match text.parse() {
        Ok(limit) if (1..=MAX_LIMIT).contains(&limit) => Ok(limit),
        _ => Err(Problem::field("?limit", format!("expected a number from 1 to {MAX_LIMIT}"))),
    }
}

/// Where the page before ended.
///
/// # Errors
/// When `?cursor=` is not one that this list gave out.
pub fn cursor<T: DeserializeOwned>(request: &ApiRequest) -> Result<Option<T>, Problem> {
    let Some(text) = request.query("cursor") else { return Ok(None) };
    URL_SAFE_NO_PAD
        .decode(text)
        .ok()
        .and_then(|bytes| crate::types::json::read(&bytes).ok())
        .map(Some)
        .ok_or_else(|| Problem::field("?cursor", "not a cursor of this list; start without one"))
}

/// The opaque form of where a page ends.
///
/// # Errors
/// When the key cannot be written as JSON, which is our own fault.
pub fn encode(key: &impl Serialize) -> Result<String, Problem> {
    let json = serde_json::to_vec(key).map_err(|e| Problem::internal(e.to_string()))?;
    Ok(URL_SAFE_NO_PAD.encode(json))
}

/// A page, as it is answered.
#[derive(Serialize)]
pub struct Page<E> {
    /// What is on it.
    pub data: Vec<E>,
    /// Where the next one begins.
    pub next_cursor: Option<String>,
}

/// A page made of up to `limit + 1` entries: the one too many only tells that there is more.
///
/// # Errors
/// When an entry cannot be written as JSON, which is our own fault.
pub fn answer<E, C: Serialize>(
    mut entries: Vec<E>,
    limit: usize,
    key: impl Fn(&E) -> C,
    view: impl Fn(&E) -> serde_json::Value,
) -> Result<ApiResponse, Problem> {
    let more = entries.len() > limit;
    entries.truncate(limit);
    let next = match entries.last() {
        Some(last) if more => Some(encode(&key(last))?),
        _ => None,
    };
    let data: Vec<_> = entries.iter().map(view).collect();
    ApiResponse::json(200, &Page { data, next_cursor: next })
}
