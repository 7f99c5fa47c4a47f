//! Other sessions of the same tenant.

use async_trait::async_trait;

/// Reaches the object of another session.
#[async_trait(?Send)]
pub trait Peers {
    /// Makes session `session` from a snapshot of another one, and returns it as clients see it.
    ///
    /// # Errors
    /// The platform's own message. Nothing was made then, or all of it.
    async fn import(&self, tenant: &str, session: &str, snapshot: String) -> Result<String, String>;
}
