//! The inbox of a tenant: what waits in all of its sessions, and the changes of this list.

use crate::types::{
    InboxCall, InboxChanges, InboxFilter, InboxNotice, InboxPosition, Problem, TenantId, Timestamp,
};
use async_trait::async_trait;
use std::time::Duration;
use thiserror::Error;

/// The inbox could not be reached, or its store failed. The text is for the log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("inbox: {0}")]
pub struct InboxError(pub String);

impl From<InboxError> for Problem {
    fn from(error: InboxError) -> Self {
        Self::unavailable("the inbox of the tenant is unavailable; try again", error)
    }
}

/// The result of a call of an inbox.
pub type InboxResult<T> = Result<T, InboxError>;

/// The inboxes of all tenants. After an error, a notice may or may not have arrived; it can be sent again.
///
/// ```
/// # use edge_harness::ports::{Inbox, inbox::InboxResult};
/// # use edge_harness::types::{InboxFilter, TenantId};
/// /// Returns whether anything of a tenant waits.
/// async fn waits(inbox: &dyn Inbox, tenant: &TenantId) -> InboxResult<bool> {
///     Ok(!inbox.list(tenant, &InboxFilter::default(), 0, 1).await?.is_empty())
/// }
/// ```
#[async_trait(?Send)]
pub trait Inbox {
    /// Replaces the calls of a session. A notice that is not later than all others of the session is ignored; then returns when
    /// the newest one was sent.
    async fn notify(&self, tenant: &TenantId, notice: &InboxNotice) -> InboxResult<Option<Timestamp>>;
    /// Lists up to `limit` calls in the order of their last change, starting after the change with number `after`.
    async fn list(
        &self,
        tenant: &TenantId,
        filter: &InboxFilter,
        after: u64,
        limit: usize,
    ) -> InboxResult<Vec<(u64, InboxCall)>>;
    /// Reads the changes after a position. If there are none, waits for up to `wait` until there are.
    async fn changes(
        &self,
        tenant: &TenantId,
        filter: &InboxFilter,
        position: InboxPosition,
        wait: Duration,
    ) -> InboxResult<InboxChanges>;
    /// Erases the inbox of a tenant.
    async fn erase(&self, tenant: &TenantId) -> InboxResult<()>;
}
