//! The ledger of a tenant: what its turns consumed, and which limits over time it has reached.

use crate::types::{
    Admission, Admitted, Day, Problem, Receipt, Report, RequestBlock, TenantId, UsagePage, UsageRow,
};
use async_trait::async_trait;
use thiserror::Error;

/// The ledger could not be reached, or its store failed. The text is for the log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("ledger: {0}")]
pub struct LedgerError(pub String);

impl From<LedgerError> for Problem {
    fn from(error: LedgerError) -> Self {
        Self::unavailable("the limits and the usage of the tenant are unavailable; try again", error)
    }
}

/// The result of a call of a ledger.
pub type LedgerResult<T> = Result<T, LedgerError>;

/// The ledgers of all tenants. After an error, a message may or may not have arrived; it can be sent again.
///
/// ```
/// # use edge_harness::ports::{Ledger, ledger::{LedgerResult, UsagePages}};
/// # use edge_harness::types::{Day, TenantId};
/// /// Returns the number of a tenant's turns on a day.
/// async fn turns_on(ledger: &dyn Ledger, tenant: &TenantId, day: Day) -> LedgerResult<u64> {
///     let (mut turns, mut pages) = (0, UsagePages::new(ledger, tenant, day, day));
///     while let Some(rows) = pages.next().await? {
///         turns += rows.iter().map(|row| row.totals.turns).sum::<u64>();
///     }
///     Ok(turns)
/// }
/// ```
#[async_trait(?Send)]
pub trait Ledger {
    /// Asks for one more turn of a session, or for one that waits to continue. A session that holds a slot keeps it.
    async fn admit(&self, tenant: &TenantId, admission: &Admission) -> LedgerResult<Admitted>;
    /// Counts a report, unless it was counted before, and takes, keeps or releases the session's slot according to
    /// its standing. Never refused. A turn that nobody asked the ledger for takes its slot in this way, even over the limits:
    /// one that continues because a call expired or a waiting subagent ended, a queued message behind a waiting turn that
    /// was aborted, and one that is recovered after its lease.
    async fn report(&self, tenant: &TenantId, report: &Report) -> LedgerResult<Receipt>;
    /// Counts usage that no session reports, each time it is called.
    async fn charge(&self, tenant: &TenantId, rows: &[UsageRow]) -> LedgerResult<()>;
    /// Takes up to `wanted` of the requests of the current minute, of which there are `limit`.
    async fn take_requests(&self, tenant: &TenantId, wanted: u32, limit: u32) -> LedgerResult<RequestBlock>;
    /// Returns a page of the usage of the days `from` to `to`, both included: the rows that follow `after`, which is
    /// [`UsagePage::next`] of the page before.
    async fn usage(
        &self,
        tenant: &TenantId,
        from: Day,
        to: Day,
        after: Option<&str>,
    ) -> LedgerResult<UsagePage>;
    /// Erases the ledger of a tenant.
    async fn erase(&self, tenant: &TenantId) -> LedgerResult<()>;
}

/// Reads the usage of a tenant page by page.
pub struct UsagePages<'a> {
    ledger: &'a dyn Ledger,
    tenant: &'a TenantId,
    from: Day,
    to: Day,
    after: Option<String>,
    is_over: bool,
}

impl<'a> UsagePages<'a> {
    /// Reads the days `from` to `to`, both included.
    pub fn new(ledger: &'a dyn Ledger, tenant: &'a TenantId, from: Day, to: Day) -> Self {
        Self { ledger, tenant, from, to, after: None, is_over: false }
    }

    /// Returns the rows of the next page; `None` after the last one.
    ///
    /// # Errors
    /// If the ledger cannot be reached.
    pub async fn next(&mut self) -> LedgerResult<Option<Vec<UsageRow>>> {
        if self.is_over {
            return Ok(None);
        }
        let page = self.ledger.usage(self.tenant, self.from, self.to, self.after.as_deref()).await?;
        self.is_over = page.next.is_none();
        self.after = page.next;
        Ok(Some(page.rows))
    }
}
