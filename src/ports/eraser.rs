//! Erasing a session from outside its Durable Object.

use crate::types::{SessionId, TenantId};
use async_trait::async_trait;
use thiserror::Error;

/// Another session could not be reached, or failed to handle the message. The text is for the log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct PeerError(pub String);

/// Asks a session's Durable Object to erase all of its data.
///
/// ```
/// # use edge_harness::ports::{PeerError, SessionEraser};
/// # use edge_harness::types::{SessionId, TenantId};
/// async fn erase_all(eraser: &dyn SessionEraser, tenant: &TenantId, sessions: &[SessionId]) -> Result<(), PeerError> {
///     for session in sessions {
///         eraser.erase(tenant, session).await?;
///     }
///     Ok(())
/// }
/// ```
#[async_trait(?Send)]
pub trait SessionEraser {
    /// Erases a session. Succeeds if the session does not exist.
    ///
    /// # Errors
    /// When the session cannot be reached or its store fails. The call may be repeated.
    async fn erase(&self, tenant: &TenantId, session: &SessionId) -> Result<(), PeerError>;
}
