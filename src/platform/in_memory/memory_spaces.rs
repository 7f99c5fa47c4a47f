//! The spaces of memories, in plain memory.

use super::InMemoryIndex;
use crate::ports::{
    MemorySpaces,
    memory::MemoryResult,
    memory_spaces::{Claim, Intent, Lease, Space},
};
use crate::types::Timestamp;
use async_trait::async_trait;
use std::rc::Rc;

/// The spaces of an index.
pub struct InMemorySpaces {
    index: Rc<InMemoryIndex>,
}

/// What is known of a space.
#[derive(Clone, Default)]
pub(super) struct Known {
    watermark: u64,
    requested_at: Option<Timestamp>,
    consolidated_at: Option<Timestamp>,
    flushed_at: Option<Timestamp>,
    holder: Option<String>,
    leased_until: Timestamp,
    intent: Option<Intent>,
}

impl InMemorySpaces {
    /// The spaces of this index.
    pub fn new(index: Rc<InMemoryIndex>) -> Self {
        Self { index }
    }

    fn with<T>(&self, space: &Space, change: impl FnOnce(&mut Known) -> T) -> MemoryResult<T> {
        self.index.up()?;
        Ok(change(self.index.spaces.borrow_mut().entry(space.clone()).or_default()))
    }

    /// The same for whoever holds the lease; false when it was lost.
    fn held(&self, lease: &Lease, change: impl FnOnce(&mut Known)) -> MemoryResult<bool> {
        self.with(&lease.space, |known| {
            let held = known.holder.as_deref() == Some(&lease.holder);
            if held {
                change(known);
            }
            held
        })
    }

    fn lease(&self, claim: &Claim, space: &Space) -> MemoryResult<Option<Lease>> {
        self.with(space, |known| {
            if known.leased_until > claim.now {
                return None;
            }
            let holder = format!("{}/{}/{}/{}", claim.holder, space.tenant, space.agent, space.user);
            known.holder = Some(holder.clone());
            known.leased_until = claim.until;
            let (watermark, intent) = (known.watermark, known.intent.clone());
            Some(Lease { space: space.clone(), holder, watermark, intent })
        })
    }
}

#[async_trait(?Send)]
impl MemorySpaces for InMemorySpaces {
    async fn claim_flush(
        &self,
        space: &Space,
        now: Timestamp,
        gap_ms: u64,
    ) -> MemoryResult<Option<Timestamp>> {
        self.with(space, |known| match known.flushed_at.map(|at| at.plus(gap_ms)) {
            Some(free_at) if free_at > now => Some(free_at),
            _ => {
                known.flushed_at = Some(now);
                None
            }
        })
    }

    async fn request(&self, space: &Space, now: Timestamp) -> MemoryResult<Option<Timestamp>> {
        let watermark = self.with(space, |known| known.watermark)?;
        let dirty = self.index.dirty_since(space, watermark).is_some();
        self.with(space, |known| {
            if dirty {
                known.requested_at.get_or_insert(now);
            }
            known.consolidated_at
        })
    }

    async fn claim_due(&self, claim: &Claim, since: Timestamp, limit: usize) -> MemoryResult<Vec<Lease>> {
        let mut due = Vec::new();
        for space in self.index.owners() {
            let known = self.with(&space, |known| known.clone())?;
            let rested = known.consolidated_at.is_none_or(|at| at < since);
            if let Some(dirty_since) = self.index.dirty_since(&space, known.watermark)
                && rested
                && known.leased_until <= claim.now
            {
                due.push((known.requested_at.is_none(), dirty_since, space));
            }
        }
        due.sort();
        let leases = due.into_iter().take(limit).map(|(.., space)| self.lease(claim, &space));
        Ok(leases.collect::<MemoryResult<Vec<_>>>()?.into_iter().flatten().collect())
    }

    async fn claim(&self, claim: &Claim, space: &Space) -> MemoryResult<Option<Lease>> {
        self.lease(claim, space)
    }

    async fn note(&self, lease: &Lease, watermark: u64, intent: Option<&Intent>) -> MemoryResult<bool> {
        self.held(lease, |known| {
            known.watermark = watermark;
            known.intent = intent.cloned();
        })
    }

    async fn finish(&self, lease: &Lease, watermark: u64, now: Timestamp) -> MemoryResult<bool> {
        self.held(lease, |known| {
            *known = Known {
                watermark,
                consolidated_at: Some(now),
                flushed_at: known.flushed_at,
                ..Known::default()
            }
        })
    }

    async fn give_back(&self, lease: &Lease, until: Timestamp) -> MemoryResult<()> {
        self.held(lease, |known| {
            known.holder = None;
            known.leased_until = until;
        })
        .map(drop)
    }
}
