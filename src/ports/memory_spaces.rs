//! The consolidation state of each user's memory: watermark, lease, and due time.
//!
//! A space is dirty while its log has facts after its watermark, since the time the first of these was added.
//! [`super::MemoryIndex::add`] marks it in the same commit that adds the facts.

use super::memory::MemoryResult;
use crate::types::{LeaseId, Timestamp};
use async_trait::async_trait;
use std::time::Duration;

/// A memory space: the memory of one user with one agent.
pub type Space = crate::types::Owner;

/// The exclusive right to consolidate a space until the lease expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The space.
    pub space: Space,
    /// The holder's id, unique for each lease.
    pub holder: String,
    /// Serial number up to which facts are consolidated.
    pub watermark: u64,
    /// The rewrite that the previous holder recorded but did not finish.
    pub intent: Option<Intent>,
}

/// An announced rewrite of `MEMORY.md`. If the file has this etag, the rewrite took place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The etag of the file after the rewrite.
    pub etag: String,
    /// Serial number up to which the rewritten file includes facts.
    pub watermark: u64,
}

/// A request for leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The claimant's id, unique for each claim. The holder id of each lease is derived from it.
    pub holder: LeaseId,
    /// The current time. Leases that expired before it are free.
    pub now: Timestamp,
    /// When the new leases expire.
    pub until: Timestamp,
}

/// The memory spaces of all tenants.
///
/// ```
/// # use edge_harness::ports::{MemorySpaces, memory::MemoryResult, memory_spaces::Claim};
/// # use edge_harness::types::Timestamp;
/// /// Leases all due spaces, and gives them back without consolidating them.
/// async fn skip(spaces: &dyn MemorySpaces, claim: &Claim, since: Timestamp) -> MemoryResult<()> {
///     for lease in spaces.claim_due(claim, since, 10).await? {
///         spaces.give_back(&lease, claim.until).await?;
///     }
///     Ok(())
/// }
/// ```
#[async_trait(?Send)]
pub trait MemorySpaces {
    /// Claims the right to extract facts for a space, which is granted once per `gap`. Returns `None` if
    /// granted, otherwise the time of the next possible grant.
    async fn claim_flush(
        &self,
        space: &Space,
        now: Timestamp,
        gap: Duration,
    ) -> MemoryResult<Option<Timestamp>>;

    /// Gives a dirty space priority over spaces without a request. Returns when the space was last
    /// consolidated.
    async fn request(&self, space: &Space, now: Timestamp) -> MemoryResult<Option<Timestamp>>;

    /// Leases up to `limit` dirty spaces that are free and were not consolidated since `since`, from every
    /// database: requested spaces first, then the longest dirty. Concurrent callers never get the same space,
    /// and each gets one while any is due.
    async fn claim_due(&self, claim: &Claim, since: Timestamp, limit: usize) -> MemoryResult<Vec<Lease>>;

    /// Leases one space, dirty or not. Returns `None` if another holder has the lease.
    async fn claim(&self, claim: &Claim, space: &Space) -> MemoryResult<Option<Lease>>;

    /// Sets the watermark and the intent. Returns `false` if the lease was lost.
    async fn note(&self, lease: &Lease, watermark: u64, intent: Option<&Intent>) -> MemoryResult<bool>;

    /// Sets the watermark and releases the lease. Returns `false` if the lease was lost. The space stays
    /// dirty if it has
    /// newer facts.
    async fn finish(&self, lease: &Lease, watermark: u64, now: Timestamp) -> MemoryResult<bool>;

    /// Releases the lease without a result. The space is not leased again before `until`.
    async fn give_back(&self, lease: &Lease, until: Timestamp) -> MemoryResult<()>;
}
