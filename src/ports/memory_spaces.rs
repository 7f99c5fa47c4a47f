//! What is known of each user's memory beside its content: how far it was consolidated, and who is at
//! it.
//!
//! A space is dirty as long as its log holds facts behind its watermark, since the time of the one of them
//! that was added first. [`super::MemoryIndex::add`] makes it so in the step that adds them.

use super::memory::MemoryResult;
use crate::types::Timestamp;
use async_trait::async_trait;

/// One user's memory with one agent.
pub type Space = crate::types::Owner;

/// The right to consolidate a space, until the lease ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Which space.
    pub space: Space,
    /// Who holds it: never the same twice.
    pub holder: String,
    /// Facts up to this serial number are consolidated.
    pub watermark: u64,
    /// What a holder before this one was about to do when it was last heard of.
    pub intent: Option<Intent>,
}

/// The rewrite of a memory file that was about to happen. If the file is what was intended, it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The etag of the file as it will be.
    pub etag: String,
    /// The facts that it holds then.
    pub watermark: u64,
}

/// Asks for the right to consolidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who asks; each claim has a name of its own, from which that of each lease follows.
    pub holder: String,
    /// Now. A lease that ended before is free.
    pub now: Timestamp,
    /// When the leases end.
    pub until: Timestamp,
}

/// The spaces of all tenants.
#[async_trait(?Send)]
pub trait MemorySpaces {
    /// Takes the right to extract facts for a space, which is given once in `gap_ms`. `None` when it is
    /// taken; else when it will be free.
    async fn claim_flush(
        &self,
        space: &Space,
        now: Timestamp,
        gap_ms: u64,
    ) -> MemoryResult<Option<Timestamp>>;

    /// Asks that a dirty space be consolidated before those for which nobody asked. Returns when it was last
    /// consolidated.
    async fn request(&self, space: &Space, now: Timestamp) -> MemoryResult<Option<Timestamp>>;

    /// Leases of up to `limit` dirty spaces of all tenants that are free and were not consolidated since
    /// `since`: those asked for first, then those that are dirty the longest, of each database. No two callers
    /// get the same, and none goes away with nothing while something is due.
    async fn claim_due(&self, claim: &Claim, since: Timestamp, limit: usize) -> MemoryResult<Vec<Lease>>;

    /// The lease of one space, dirty or not; none when somebody else has it.
    async fn claim(&self, claim: &Claim, space: &Space) -> MemoryResult<Option<Lease>>;

    /// Moves the watermark, and notes what is about to happen, if anything; false when the lease was lost.
    async fn note(&self, lease: &Lease, watermark: u64, intent: Option<&Intent>) -> MemoryResult<bool>;

    /// Moves the watermark and gives the lease back; false when it was lost. The space stays dirty if it has
    /// newer facts.
    async fn finish(&self, lease: &Lease, watermark: u64, now: Timestamp) -> MemoryResult<bool>;

    /// Gives the lease back without anything done: the space is not given out again before `until`.
    async fn give_back(&self, lease: &Lease, until: Timestamp) -> MemoryResult<()>;
}
