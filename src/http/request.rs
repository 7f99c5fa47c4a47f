//! HTTP requests as handlers read them.

use super::loopback::is_loopback;
use crate::types::{ErrorCode, Problem};
use bytes::Bytes;
use http::Method;
use std::cell::RefCell;

/// Largest body that is read, in bytes (4 MiB).
pub const MAX_BODY: usize = 4 << 20;

/// A request. Its body is empty until it has been read.
pub type Request = http::Request<RequestBody>;

/// The body of a request. It can be released before the response, for which a request may wait as long as its turn runs.
#[derive(Clone, Debug, Default)]
pub struct RequestBody(RefCell<Bytes>);

impl RequestBody {
    /// Returns the body; empty after [`RequestBody::release`].
    pub fn bytes(&self) -> Bytes {
        self.0.borrow().clone()
    }

    /// Frees the memory of the body.
    pub fn release(&self) {
        self.0.take();
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self(RefCell::new(bytes))
    }
}

impl From<String> for RequestBody {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

/// Reads the head of a request as text.
///
/// ```
/// use edge_harness::http::{Request, RequestExt};
///
/// let mut request = Request::default();
/// *request.uri_mut() = "/v1/memory/search?q=green+tea".parse().unwrap();
/// assert_eq!(request.query("q").as_deref(), Some("green tea"));
/// ```
pub trait RequestExt {
    /// Returns the first header of that name, unless its value is not UTF-8.
    fn header(&self, name: &str) -> Option<&str>;

    /// Returns the first query parameter of that name, decoded.
    fn query(&self, name: &str) -> Option<String>;

    /// Returns the origin of the server as its client names it. Only this machine is reached without TLS.
    fn origin(&self) -> String;

    /// Returns whether the `accept` header names `media_type` and does not weight `other` higher (RFC 9110,
    /// section 12.5.1). Ranges such as `*/*` do not name it.
    fn prefers(&self, media_type: &str, other: &str) -> bool;
}

impl<B> RequestExt for http::Request<B> {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers().get(name).and_then(|value| std::str::from_utf8(value.as_bytes()).ok())
    }

    fn query(&self, name: &str) -> Option<String> {
        form_urlencoded::parse(self.uri().query().unwrap_or_default().as_bytes())
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.into_owned())
    }

    fn origin(&self) -> String {
        let is_host = |host: &&str| host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]".contains(c));
        let host = self.header("host").filter(is_host).unwrap_or_default();
        format!("{}://{host}", if is_loopback(host) { "http" } else { "https" })
    }

    fn prefers(&self, media_type: &str, other: &str) -> bool {
        let accept = self.header("accept").unwrap_or_default();
        let weight = |media_type: &str| {
            let entry = accept.split(',').find_map(|entry| {
                let (name, parameters) = entry.split_once(';').unwrap_or((entry, ""));
                name.trim().eq_ignore_ascii_case(media_type).then_some(parameters)
            })?;
            let mut weights = entry.split(';').filter_map(|parameter| {
                let (name, value) = parameter.split_once('=')?;
                name.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse::<f32>().ok())?
            });
            Some(weights.next().unwrap_or(1.0))
        };
        weight(media_type).is_some_and(|own| own > 0.0 && weight(other).is_none_or(|other| own >= other))
    }
}

/// Returns the `content-length` of a request, in bytes; `None` without a valid one.
pub fn length<B>(request: &http::Request<B>) -> Option<usize> {
    request.header("content-length").and_then(|length| length.parse().ok())
}

/// Checks that a request asks for a WebSocket.
///
/// # Errors
/// `invalid_request` otherwise.
pub fn require_upgrade<B>(request: &http::Request<B>) -> Result<(), Problem> {
    if request.header("upgrade").is_some_and(|upgrade| upgrade.eq_ignore_ascii_case("websocket")) {
        return Ok(());
    }
    let detail = "this route opens a WebSocket: send the header `Upgrade: websocket`";
    Err(Problem::new(ErrorCode::InvalidRequest, detail))
}

/// Returns whether the body of a request with this method is read.
pub fn has_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

/// Returns the problem of a body that is larger than [`MAX_BODY`].
pub fn too_large() -> Problem {
    Problem::new(ErrorCode::PayloadTooLarge, "the body is larger than 4 MiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_is_preferred_by_its_weight() {
        for (accept, expected) in [
            ("text/event-stream", true),
            ("TEXT/Event-Stream; charset=utf-8", true),
            ("text/event-stream, application/json", true),
            ("application/json, text/event-stream", true),
            ("text/event-stream;q=0.5, application/json", false),
            ("text/event-stream;q=0.5, application/json;q=0.1", true),
            ("text/event-stream;q=0", false),
            ("application/json", false),
            ("*/*", false),
            ("", false),
        ] {
            let mut request = Request::default();
            request.headers_mut().insert("accept", accept.parse().expect("a header"));
            assert_eq!(request.prefers("text/event-stream", "application/json"), expected, "{accept}");
        }
    }
}
