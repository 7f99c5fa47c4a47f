//! Outbound HTTP, and the platform's model binding.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::LocalBoxStream;
use std::{cell::Cell, rc::Rc};
use thiserror::Error;

/// An outbound request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpRequest {
    /// `GET`, `POST`, …
    pub method: &'static str,
    /// The absolute URL.
    pub url: String,
    /// Headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<Bytes>,
    /// When the response may be read ahead; `None` for never.
    pub read_ahead: Option<ReadAhead>,
}

/// Lets the platform read a stream ahead, and deliver together what arrives within a short time (50 milliseconds on
/// Cloudflare), once the caller has what must not wait. Nothing limits how much is read ahead, so it is only for servers
/// that the operator has chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadAhead(Rc<Cell<bool>>);

impl ReadAhead {
    /// Lets the platform read ahead from now on.
    pub fn start(&self) {
        self.0.set(true);
    }

    /// Returns whether the platform may read ahead.
    pub fn has_started(&self) -> bool {
        self.0.get()
    }
}

/// A response whose body is streamed. Dropping it closes the connection.
pub struct HttpResponse {
    /// The HTTP status.
    pub status: u16,
    /// Headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, in pieces as they arrive.
    pub body: LocalBoxStream<'static, Result<Bytes, HttpError>>,
}

impl HttpResponse {
    /// Returns the first header with this name, given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// A connection that could not be established, or was lost.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct HttpError(pub String);

/// Outbound HTTP. Redirects are not followed, so that the caller can check the new URL first.
///
/// ```
/// use edge_harness::{platform::in_memory::ScriptedHttp, ports::{Http, HttpRequest}};
/// use futures::executor::block_on;
///
/// let http = ScriptedHttp::default();
/// http.respond(204, "");
/// let request = HttpRequest { method: "GET", url: "https://example.com/".into(), ..HttpRequest::default() };
/// assert_eq!(block_on(http.send(request)).unwrap().status, 204);
/// ```
#[async_trait(?Send)]
pub trait Http {
    /// Sends a request. Completes when the head of the response has arrived. Dropping the future aborts the
    /// request.
    ///
    /// # Errors
    /// No response arrived.
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError>;
}

/// The platform's model binding (Workers AI).
///
/// ```
/// # use edge_harness::ports::{Ai, HttpError, ReadAhead};
/// # use futures::TryStreamExt;
/// /// Returns the size of the response to a prompt.
/// async fn size(ai: &dyn Ai) -> Result<usize, HttpError> {
///     let input = serde_json::json!({"prompt": "Hello", "stream": true});
///     let response = ai.run("@cf/meta/llama-3.1-8b-instruct", input, ReadAhead::default());
///     let pieces: Vec<_> = response.await?.try_collect().await?;
///     Ok(pieces.iter().map(|piece| piece.len()).sum())
/// }
/// ```
#[async_trait(?Send)]
pub trait Ai {
    /// Runs `model` on an input that requests streaming. Returns the bytes of the stream.
    ///
    /// # Errors
    /// The binding's message, which contains the provider's code.
    async fn run(
        &self,
        model: &str,
        input: serde_json::Value,
        read_ahead: ReadAhead,
    ) -> Result<LocalBoxStream<'static, Result<Bytes, HttpError>>, HttpError>;
}
