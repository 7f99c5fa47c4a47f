//! The memory spaces in memory.

use super::{InMemoryIndex, memory::SpaceState};
use crate::ports::{
    MemorySpaces,
    memory::MemoryResult,
    memory_spaces::{Claim, Intent, Lease, Space},
};
use crate::types::Timestamp;
use async_trait::async_trait;
use std::rc::Rc;
use std::time::Duration;

/// The spaces of an index.
pub struct InMemorySpaces {
    index: Rc<InMemoryIndex>,
}

impl InMemorySpaces {
    /// Creates the spaces of `index`.
    pub fn new(index: Rc<InMemoryIndex>) -> Self {
        Self { index }
    }

    fn with<T>(&self, space: &Space, change: impl FnOnce(&mut SpaceState) -> T) -> MemoryResult<T> {
        self.index.up()?;
        Ok(change(self.index.spaces.borrow_mut().entry(space.clone()).or_default()))
    }

    /// Changes a space if the lease is still held; returns whether it was.
    fn held(&self, lease: &Lease, change: impl FnOnce(&mut SpaceState)) -> MemoryResult<bool> {
        self.with(&lease.space, |state| {
            let held = state.holder.as_deref() == Some(&lease.holder);
            if held {
                change(state);
            }
            held
        })
    }

    fn lease(&self, claim: &Claim, space: &Space) -> MemoryResult<Option<Lease>> {
        self.with(space, |state| {
            if state.leased_until > claim.now {
                return None;
            }
            let holder = format!("{}/{}/{}/{}", claim.holder, space.tenant, space.agent, space.user);
            state.holder = Some(holder.clone());
            state.leased_until = claim.until;
            let (watermark, intent) = (state.watermark, state.intent.clone());
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
        gap: Duration,
    ) -> MemoryResult<Option<Timestamp>> {
        self.with(space, |state| match state.flushed_at.map(|at| at + gap) {
            Some(free_at) if free_at > now => Some(free_at),
            _ => {
                state.flushed_at = Some(now);
                None
            }
        })
    }

    async fn request(&self, space: &Space, now: Timestamp) -> MemoryResult<Option<Timestamp>> {
        let watermark = self.with(space, |state| state.watermark)?;
        let dirty = self.index.dirty_since(space, watermark).is_some();
        self.with(space, |state| {
            if dirty {
                state.requested_at.get_or_insert(now);
            }
            state.consolidated_at
        })
    }

    async fn claim_due(&self, claim: &Claim, since: Timestamp, limit: usize) -> MemoryResult<Vec<Lease>> {
        let mut due = Vec::new();
        for space in self.index.owners() {
            let state = self.with(&space, |state| state.clone())?;
            let rested = state.consolidated_at.is_none_or(|at| at < since);
            if let Some(dirty_since) = self.index.dirty_since(&space, state.watermark)
                && rested
                && state.leased_until <= claim.now
            {
                due.push((state.requested_at.is_none(), dirty_since, space));
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
        self.held(lease, |state| {
            state.watermark = watermark;
            state.intent = intent.cloned();
        })
    }

    async fn finish(&self, lease: &Lease, watermark: u64, now: Timestamp) -> MemoryResult<bool> {
        self.held(lease, |state| {
            *state = SpaceState {
                watermark,
                consolidated_at: Some(now),
                flushed_at: state.flushed_at,
                ..SpaceState::default()
            }
        })
    }

    async fn give_back(&self, lease: &Lease, until: Timestamp) -> MemoryResult<()> {
        self.held(lease, |state| {
            state.holder = None;
            state.leased_until = until;
        })
        .map(drop)
    }
}
