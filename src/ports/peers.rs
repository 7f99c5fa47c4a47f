//! Other sessions of the same tenant.

use super::SessionEraser;
use crate::types::TenantId;
use async_trait::async_trait;

/// Reaches the object of another session.
#[async_trait(?Send)]
pub trait Peers: SessionEraser {
    /// Makes session `session` from a snapshot of another one, and returns it as clients see it. One that is a
    /// subagent's and is there already goes by the rules of the snapshot from then on; where it is not there and the
    /// snapshot has no log, nothing is made, and the answer is empty.
    ///
    /// # Errors
    /// The platform's own message; asking again is safe.
    async fn import(&self, tenant: &TenantId, session: &str, snapshot: String) -> Result<String, String>;

    /// Calls a subagent's session back from its errand, and returns its last report.
    ///
    /// # Errors
    /// The platform's own message, also where there is no such session.
    async fn recall(&self, tenant: &TenantId, session: &str) -> Result<String, String>;

    /// Tells session `session` how the errand of a subagent stands that it has sent out. Returns whether it waits
    /// for that still; `None` when there is no such session any more.
    ///
    /// # Errors
    /// The platform's own message; telling it again is safe.
    async fn report(&self, tenant: &TenantId, session: &str, report: String) -> Result<Option<bool>, String>;
}
