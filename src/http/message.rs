//! A request and a response, as handlers see them.

use crate::types::Problem;
use bytes::Bytes;
use futures::stream::LocalBoxStream;
use serde::Serialize;

/// A request whose body has been read (bounded by [`ApiRequest::MAX_BODY`]).
#[derive(Clone, Debug, Default)]
pub struct ApiRequest {
    /// `GET`, `POST`, … in upper case.
    pub method: String,
    /// The path, percent-encoded as it came, without the query.
    pub path: String,
    /// The query string as it came, without `?`.
    pub query: String,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// The id that names this request in answers and logs.
    pub id: String,
}

impl ApiRequest {
    /// Largest body that is read, in bytes (4 MiB).
    pub const MAX_BODY: usize = 4 << 20;

    /// The first header of that name (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The first query parameter of that name, decoded.
    pub fn query(&self, name: &str) -> Option<String> {
        form_urlencoded::parse(self.query.as_bytes())
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.into_owned())
    }
}

/// A response's body.
pub enum ApiBody {
    /// Nothing.
    Empty,
    /// All of it.
    Bytes(Bytes),
    /// Pieces as they come. Owns plain memory only, never a handle of a turn.
    Stream(LocalBoxStream<'static, Bytes>),
}

/// A response.
pub struct ApiResponse {
    /// The status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: ApiBody,
}

impl ApiResponse {
    /// A response without a body.
    pub fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: ApiBody::Empty }
    }

    /// JSON.
    ///
    /// # Errors
    /// When `value` cannot be written as JSON, which is our own fault.
    pub fn json(status: u16, value: &impl Serialize) -> Result<Self, Problem> {
        let text = serde_json::to_vec(value).map_err(|e| Problem::internal(e.to_string()))?;
        Ok(Self::bytes(status, "application/json", text))
    }

    /// Bytes of a content type.
    pub fn bytes(status: u16, content_type: &str, bytes: impl Into<Bytes>) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), content_type.into())],
            body: ApiBody::Bytes(bytes.into()),
        }
    }

    /// A problem document.
    pub fn problem(problem: &Problem, request_id: &str) -> Self {
        let mut response =
            Self::bytes(problem.code.status(), "application/problem+json", problem.to_json(request_id));
        if problem.code.status() == 401 {
            response = response.with("www-authenticate", "Bearer realm=\"edge-harness\"");
        }
        if let Some(seconds) = problem.retry_after_s {
            response = response.with("retry-after", &seconds.to_string());
        }
        if let Some(allow) = &problem.allow {
            response = response.with("allow", allow);
        }
        response
    }

    /// This response with one more header.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}
