//! HTTP responses as handlers build them.

use super::upgrade::Upgrade;
use crate::session::hub::ByteReceiver;
use crate::types::Problem;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::Value;

/// A response.
pub type Response = http::Response<Body>;

/// The body of a response.
pub enum Body {
    /// No body.
    Empty,
    /// The whole body.
    Bytes(Bytes),
    /// A body that is sent in pieces. The stream owns plain memory only and no handle of a turn, because the
    /// platform may drop it at any time.
    Stream(ByteReceiver),
    /// No body: the platform opens a WebSocket in place of the response.
    WebSocket(Box<Upgrade>),
}

/// Adds headers to a response.
///
/// ```
/// use edge_harness::http::response::{self, ResponseExt};
/// use http::StatusCode;
///
/// let response = response::empty(StatusCode::ACCEPTED).with("retry-after", "5");
/// assert_eq!(response.headers()["retry-after"], "5");
/// ```
pub trait ResponseExt {
    /// Sets a header. A value that is not valid in a header is skipped.
    #[must_use]
    fn with(self, name: &'static str, value: &str) -> Self;
}

impl ResponseExt for Response {
    fn with(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers_mut().insert(name, value);
        }
        self
    }
}

/// Builds a response without headers.
pub fn new(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

/// Builds a response without a body.
pub fn empty(status: StatusCode) -> Response {
    new(status, Body::Empty)
}

/// Builds a response of the given content type.
pub fn bytes(status: StatusCode, content_type: &str, bytes: impl Into<Bytes>) -> Response {
    new(status, Body::Bytes(bytes.into())).with("content-type", content_type)
}

/// Builds a JSON response.
///
/// # Errors
/// `internal` when `value` cannot be serialized.
pub fn json(status: StatusCode, value: &impl Serialize) -> Result<Response, Problem> {
    Ok(bytes(status, "application/json", to_json(value)?))
}

/// Serializes a value to JSON.
///
/// # Errors
/// `internal` when it cannot be serialized.
pub fn to_json(value: &impl Serialize) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(value).map_err(|error| Problem::internal(error.to_string()))
}

/// Builds the response for a problem in the form of another protocol, with the headers of its own form.
pub fn problem_as(given: &Problem, request_id: &str, status: StatusCode, body: &Value) -> Response {
    let mut response = bytes(status, "application/json", body.to_string());
    for (name, value) in problem(given, request_id).headers() {
        if *name != header::CONTENT_TYPE {
            response.headers_mut().insert(name.clone(), value.clone());
        }
    }
    response
}

/// Builds the response for a problem (RFC 9457).
pub fn problem(problem: &Problem, request_id: &str) -> Response {
    let status = StatusCode::from_u16(problem.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = bytes(status, "application/problem+json", problem.to_json(request_id));
    if status == StatusCode::UNAUTHORIZED {
        response = response.with("www-authenticate", "Bearer realm=\"edge-harness\"");
    }
    if let Some(seconds) = problem.retry_after_s {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    if let Some(allow) = &problem.allow {
        response = response.with("allow", allow);
    }
    response
}
