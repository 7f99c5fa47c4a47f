//! Erasing a session from outside its object.

use crate::types::TenantId;
use async_trait::async_trait;

/// Tells a session's object to erase everything of it.
#[async_trait(?Send)]
pub trait SessionEraser {
    /// Erases a session; one that is not there counts as erased.
    ///
    /// # Errors
    /// The platform's own message; asking again is safe.
    async fn erase(&self, tenant: &TenantId, session: &str) -> Result<(), String>;
}
