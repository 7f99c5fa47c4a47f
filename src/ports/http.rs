//! Outbound HTTP and the platform's own model binding.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::LocalBoxStream;
use thiserror::Error;

/// A request to the outside.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpRequest {
    /// `GET`, `POST`, …
    pub method: &'static str,
    /// The absolute URL.
    pub url: String,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<Bytes>,
}

/// An answer whose body is still coming. Dropping it closes the connection.
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, in the pieces in which it arrives.
    pub body: LocalBoxStream<'static, Result<Bytes, HttpError>>,
}

impl HttpResponse {
    /// The first header of that name (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// The connection could not be made or was lost.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct HttpError(pub String);

/// Outbound HTTP. Redirects are never followed: whoever wants to, checks the new address first.
#[async_trait(?Send)]
pub trait Http {
    /// Sends a request. Completes when the answer's head is there. Dropping the future aborts.
    ///
    /// # Errors
    /// When no answer came.
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError>;
}

/// The platform's model binding (Workers AI).
#[async_trait(?Send)]
pub trait Ai {
    /// Runs `model` on a JSON input that asks for a stream, and returns the stream's bytes.
    ///
    /// # Errors
    /// The binding's own message, which holds the provider's code.
    async fn run(
        &self,
        model: &str,
        input: serde_json::Value,
    ) -> Result<LocalBoxStream<'static, Result<Bytes, HttpError>>, HttpError>;
}
