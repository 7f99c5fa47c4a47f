//! Pages of a list: `?limit=` and an opaque `?cursor=` in, `{data, next_cursor}` out.

use super::request::{Request, RequestExt};
use super::response::{self, Response};
use crate::types::{Problem, json};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::StatusCode;
use serde::{Serialize, de::DeserializeOwned};

const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 200;

/// Returns the largest number of entries on the page.
///
/// # Errors
/// `validation_failed` when `?limit=` is not a number from 1 to 200.
pub fn limit(request: &Request) -> Result<usize, Problem> {
    let Some(text) = request.query("limit") else { return Ok(DEFAULT_LIMIT) };
    match text.parse() {
        Ok(limit) if (1..=MAX_LIMIT).contains(&limit) => Ok(limit),
        _ => Err(Problem::field("?limit", format!("expected a number from 1 to {MAX_LIMIT}"))),
    }
}

/// Returns the key of the last entry of the previous page.
///
/// # Errors
/// `validation_failed` when `?cursor=` is not a cursor of this list.
pub fn cursor<T: DeserializeOwned>(request: &Request) -> Result<Option<T>, Problem> {
    let Some(text) = request.query("cursor") else { return Ok(None) };
    let key = decode(&text).map(Some);
    key.ok_or_else(|| Problem::field("?cursor", "not a cursor of this list; start without one"))
}

/// Decodes a cursor; `None` for a text that is not one.
pub fn decode<T: DeserializeOwned>(cursor: &str) -> Option<T> {
    json::from_slice(&URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()
}

/// Encodes the key of the last entry of a page as a cursor.
///
/// # Errors
/// `internal` when the key cannot be serialized.
pub fn encode(key: &impl Serialize) -> Result<String, Problem> {
    Ok(URL_SAFE_NO_PAD.encode(response::to_json(key)?))
}

/// A page as clients see it.
#[derive(Serialize, schemars::JsonSchema)]
#[schemars(rename = "PageOf{E}")]
pub struct Page<E> {
    /// The entries.
    pub data: Vec<E>,
    /// The cursor of the next page.
    pub next_cursor: Option<String>,
}

/// Builds the response with a page from up to `limit + 1` entries; the last of them only shows that there is
/// another page.
///
/// # Errors
/// `internal` when an entry cannot be serialized.
pub fn respond<E, C: Serialize>(
    mut entries: Vec<E>,
    limit: usize,
    key: impl Fn(&E) -> C,
    view: impl Fn(&E) -> serde_json::Value,
) -> Result<Response, Problem> {
    let more = entries.len() > limit;
    entries.truncate(limit);
    let next = match entries.last() {
        Some(last) if more => Some(encode(&key(last))?),
        _ => None,
    };
    let data: Vec<_> = entries.iter().map(view).collect();
    response::json(StatusCode::OK, &Page { data, next_cursor: next })
}
