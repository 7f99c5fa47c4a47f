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

/// Sends the requests of readers to the objects of sessions.
#[async_trait(?Send)]
pub trait SessionReader {
    /// Sends a GET of `target`, a path with a query below `/v1/sessions/{id}`, to the object of a session of the
    /// principal's tenant. The object checks the principal as it does for a forwarded request.
    ///
    /// # Errors
    /// When the session cannot be reached. A problem of the request is a response.
    async fn get(
        &self,
        principal: &Principal,
        session: &SessionId,
        target: &str,
        accept: &str,
    ) -> Result<SessionResponse, PeerError>;
}
