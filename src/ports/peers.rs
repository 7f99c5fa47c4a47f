//! Other sessions of a tenant: creating copies and children, and the messages between parent and child.
//!
//! All messages are at-least-once and idempotent: after an error the sender repeats them.

use super::{PeerError, SessionEraser, SessionReader};
use crate::types::{
    Acknowledgement, CallId, ChildStatus, Imported, Principal, RequestId, SessionId, Snapshot, TenantId,
};
use async_trait::async_trait;
use bytes::Bytes;

/// A POST of JSON that a caller sends to another session.
#[derive(Clone, Debug)]
pub struct PeerRequest {
    /// The authenticated caller.
    pub principal: Principal,
    /// The id of the request.
    pub id: RequestId,
    /// The path, below `/v1/sessions/{id}`.
    pub path: String,
    /// The body.
    pub body: String,
}

/// The response to a [`PeerRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerResponse {
    /// The status.
    pub status: u16,
    /// The header `retry-after`, in seconds.
    pub retry_after_s: Option<u32>,
    /// The body.
    pub body: Bytes,
}

/// The other sessions.
///
/// ```
/// # use edge_harness::ports::{PeerError, Peers};
/// # use edge_harness::types::{CallId, ChildStatus, SessionId, TenantId};
/// /// Cancels a child's task, at the second attempt if the first one fails.
/// async fn cancel(peers: &dyn Peers, tenant: &TenantId, child: &SessionId, call: &CallId) -> Result<ChildStatus, PeerError> {
///     match peers.cancel(tenant, child, call).await {
///         Err(_) => peers.cancel(tenant, child, call).await,
///         canceled => canceled,
///     }
/// }
/// ```
#[async_trait(?Send)]
pub trait Peers: SessionEraser + SessionReader {
    /// Stores the first records of session `session`, which the next [`Peers::import`] creates.
    ///
    /// # Errors
    /// When the session cannot be reached or its store fails.
    async fn copy(&self, tenant: &TenantId, session: &SessionId, snapshot: Snapshot)
    -> Result<(), PeerError>;

    /// Creates session `session` from a snapshot, or updates it if it is a child.
    ///
    /// # Errors
    /// When the session cannot be reached or its store fails.
    async fn import(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        snapshot: Snapshot,
    ) -> Result<Imported, PeerError>;

    /// Cancels the task of the child in `session`, for call `call_id` of its parent, and returns its final
    /// status. A child that does not exist yet will refuse its task when it arrives.
    ///
    /// # Errors
    /// When the session cannot be reached or its store fails.
    async fn cancel(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        call_id: &CallId,
    ) -> Result<ChildStatus, PeerError>;

    /// Notifies the parent in `session` of a child's status.
    ///
    /// # Errors
    /// When the session cannot be reached or its store fails.
    async fn notify(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        status: ChildStatus,
    ) -> Result<Acknowledgement, PeerError>;

    /// Sends the request of a caller to `session`, of the caller's tenant. The session checks the caller as for any other
    /// request, and responds without waiting for its turn. Returns the status and the body of the response.
    ///
    /// # Errors
    /// When the session cannot be reached. A problem of the request is a response.
    async fn post(&self, session: &SessionId, request: PeerRequest) -> Result<PeerResponse, PeerError>;
}
