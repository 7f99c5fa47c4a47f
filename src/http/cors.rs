//! Cross-origin requests: only pages of configured origins may call the API.

use super::loopback::is_loopback;
use super::request::{Request, RequestExt};
use super::response::{self, Response, ResponseExt};
use crate::types::{ErrorCode, Problem};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";
const REQUEST_HEADERS: &str = "a2a-version, authorization, content-disposition, content-type, idempotency-key, if-match, \
    if-none-match, if-range, last-event-id, mcp-method, mcp-name, mcp-protocol-version, mcp-session-id, \
    openai-beta, openai-organization, openai-project, prefer, range, x-request-id, x-session-id";
const EXPOSED: &str = "x-request-id, idempotent-replayed, x-turn-id, location, retry-after, accept-ranges, \
    content-disposition, content-range, etag, mcp-session-id, www-authenticate, x-should-retry";

/// Returns whether a browser asks for permission before it sends the request itself.
pub fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS && request.header("access-control-request-method").is_some()
}

/// Responds to a preflight.
///
/// # Errors
/// `forbidden_origin` unless the origin is one of `origins`.
pub fn preflight(origins: &[String], request: &Request) -> Result<Response, Problem> {
    match allowed(origins, request) {
        Some(_) => {
            let asked = request.header("access-control-request-headers").unwrap_or_default().split(',');
            // Headers that OpenAI's clients add to every request.
            let of_client = asked.map(str::trim).filter(|name| name.starts_with("x-stainless-"));
            let headers: Vec<_> = std::iter::once(REQUEST_HEADERS).chain(of_client).collect();
            Ok(response::empty(StatusCode::NO_CONTENT)
                .with("access-control-allow-methods", METHODS)
                .with("access-control-allow-headers", &headers.join(", "))
                .with("access-control-max-age", "7200"))
        }
        None => Err(Problem::new(ErrorCode::ForbiddenOrigin, "this origin is not in CORS_ORIGINS")),
    }
}

/// Checks that no page of another site has sent the request: browsers do not check this for a WebSocket, or for a page that
/// has made its name an alias of this machine. Over HTTP, only this machine has an origin of its own.
///
/// # Errors
/// `forbidden_origin` if the origin is neither one of `origins` nor the server's own.
pub fn check_origin(origins: &[String], request: &Request) -> Result<(), Problem> {
    let Some(origin) = request.header("origin") else { return Ok(()) };
    let host = request.header("host").unwrap_or_default();
    let is_own = origin.strip_prefix("https://") == Some(host)
        || origin.strip_prefix("http://").is_some_and(|own| own == host && is_loopback(own));
    if is_own || allowed(origins, request).is_some() {
        return Ok(());
    }
    let detail = "this page's origin is neither the server's own nor in CORS_ORIGINS";
    Err(Problem::new(ErrorCode::ForbiddenOrigin, detail))
}

/// Returns the headers that every response to `request` carries.
pub fn headers(origins: &[String], request: &Request) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if !origins.is_empty() {
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
    }
    if let Some(origin) = allowed(origins, request)
        && let Ok(origin) = HeaderValue::from_str(origin)
    {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    }
    headers
}

fn allowed<'a>(origins: &[String], request: &'a Request) -> Option<&'a str> {
    let origin = request.header("origin")?;
    origins.iter().any(|known| known == origin).then_some(origin)
}
