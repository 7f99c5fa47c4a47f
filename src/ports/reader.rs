//! Reading a session through the API of its Durable Object.

use super::PeerError;
use crate::types::{Principal, SessionId};
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::LocalBoxStream;

/// The response of a session's object.
pub struct SessionResponse {
    /// The HTTP status.
    pub status: u16,
    /// The body, in pieces.
    pub body: LocalBoxStream<'static, Result<Bytes, PeerError>>,
}

/// A request of a reader.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReaderRequest<'a> {
    /// A path with a query, such as `/v1/sessions/{id}/events?after=7`.
    pub target: &'a str,
    /// The headers.
    pub headers: &'a [(&'a str, &'a str)],
    /// The body of a POST; without one, the request is a GET.
    pub body: Option<&'a str>,
}

/// Sends the requests of readers to the objects of sessions.
///
/// ```
/// # use edge_harness::ports::{PeerError, ReaderRequest, SessionReader};
/// # use edge_harness::types::{Principal, SessionId};
/// async fn exists(reader: &dyn SessionReader, caller: &Principal, session: &SessionId) -> Result<bool, PeerError> {
///     let target = format!("/v1/sessions/{session}");
///     let request = ReaderRequest { target: &target, ..ReaderRequest::default() };
///     Ok(reader.send(caller, session, request).await?.status == 200)
/// }
/// ```
#[async_trait(?Send)]
pub trait SessionReader {
    /// Sends a request to the object of a session of the principal's tenant. The object checks the principal as it does
    /// for a forwarded request.
    ///
    /// # Errors
    /// When the session cannot be reached. A problem of the request is a response.
    async fn send(
        &self,
        principal: &Principal,
        session: &SessionId,
        request: ReaderRequest<'_>,
    ) -> Result<SessionResponse, PeerError>;
}
