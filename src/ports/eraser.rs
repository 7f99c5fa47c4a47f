//! Erasing a session from outside its Durable Object.

use crate::types::{SessionId, TenantId};
use async_trait::async_trait;

/// Asks a session's Durable Object to erase all of its data.
#[async_trait(?Send)]
pub trait SessionEraser {
    /// Erases a session. Succeeds if the session does not exist.
    ///
    /// # Errors
    /// The platform's message. The call may be repeated.
    async fn erase(&self, tenant: &TenantId, session: &SessionId) -> Result<(), String>;
}
