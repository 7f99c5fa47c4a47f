//! Messages to other sessions of the same tenant.

use super::SessionEraser;
use crate::types::TenantId;
use async_trait::async_trait;

/// Sends messages to other sessions.
#[async_trait(?Send)]
pub trait Peers: SessionEraser {
    /// Creates session `session` from a snapshot of another session, and returns it as clients see it. An
    /// existing subagent's session takes over the permission rules of the snapshot. If the session does not
    /// exist and the snapshot has no log, nothing is created and the result is empty.
    ///
    /// # Errors
    /// The platform's message. The call is idempotent.
    async fn import(&self, tenant: &TenantId, session: &str, snapshot: String) -> Result<String, String>;

    /// Cancels the task of a subagent's session, and returns its final status.
    ///
    /// # Errors
    /// The platform's message, or that the session does not exist.
    async fn recall(&self, tenant: &TenantId, session: &str) -> Result<String, String>;

    /// Sends the status of a subagent's task to the parent `session`. Returns whether the parent still waits
    /// for it; `None` if the parent no longer exists.
    ///
    /// # Errors
    /// The platform's message. The call is idempotent.
    async fn report(&self, tenant: &TenantId, session: &str, report: String) -> Result<Option<bool>, String>;
}
