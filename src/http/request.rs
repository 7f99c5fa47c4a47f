//! HTTP requests as handlers read them.

use crate::types::{ErrorCode, Problem};
use bytes::Bytes;
use http::Method;

/// Largest body that is read, in bytes (4 MiB).
pub const MAX_BODY: usize = 4 << 20;

/// A request. Its body is empty until it has been read.
pub type Request = http::Request<Bytes>;

/// Reads the head of a request as text.
pub trait RequestExt {
    /// Returns the first header of that name, unless its value is not UTF-8.
    fn header(&self, name: &str) -> Option<&str>;

    /// Returns the first query parameter of that name, decoded.
    fn query(&self, name: &str) -> Option<String>;
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
}

/// Returns whether the body of a request with this method is read.
pub fn has_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

/// Returns the problem of a body that is larger than [`MAX_BODY`].
pub fn too_large() -> Problem {
    Problem::new(ErrorCode::PayloadTooLarge, "the body is larger than 4 MiB")
}
