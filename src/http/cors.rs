//! Pages of other origins: only those that the deployment names.

use super::{ApiRequest, ApiResponse};
use crate::types::{ErrorCode, Problem};

const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";
const REQUEST_HEADERS: &str = "authorization, content-disposition, content-type, idempotency-key, if-match, \
    if-none-match, if-range, last-event-id, prefer, range, x-request-id";
const EXPOSED: &str = "x-request-id, idempotent-replayed, x-turn-id, location, retry-after, accept-ranges, \
    content-disposition, content-range, etag";

/// Whether this is a browser asking before it sends the request itself.
pub fn is_preflight(request: &ApiRequest) -> bool {
    request.method == "OPTIONS" && request.header("access-control-request-method").is_some()
}

/// Answers a preflight.
///
/// # Errors
/// `forbidden_origin` unless the origin is one of `origins`.
pub fn preflight(origins: &[String], request: &ApiRequest) -> Result<ApiResponse, Problem> {
    match allowed(origins, request) {
        Some(_) => Ok(ApiResponse::empty(204)
            .with("access-control-allow-methods", METHODS)
            .with("access-control-allow-headers", REQUEST_HEADERS)
            .with("access-control-max-age", "7200")),
        None => Err(Problem::new(ErrorCode::ForbiddenOrigin, "this origin is not configured")),
    }
}

/// The headers that every answer to `request` carries.
pub fn headers(origins: &[String], request: &ApiRequest) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    if !origins.is_empty() {
        headers.push(("vary".into(), "origin".into()));
    }
    if let Some(origin) = allowed(origins, request) {
        headers.push(("access-control-allow-origin".into(), origin.into()));
        headers.push(("access-control-expose-headers".into(), EXPOSED.into()));
    }
    headers
}

fn allowed<'a>(origins: &[String], request: &'a ApiRequest) -> Option<&'a str> {
    let origin = request.header("origin")?;
    origins.iter().any(|known| known == origin).then_some(origin)
}
