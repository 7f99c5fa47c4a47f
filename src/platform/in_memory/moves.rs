//! Moves in memory. There are no rows to copy, so a move stays in its first phase until it is canceled.

use crate::ports::directory::DirectoryResult;
use crate::ports::moves::{Move, MovePhase};
use crate::ports::{Clock, Moves};
use crate::types::{TenantId, Timestamp, UserId};
use async_trait::async_trait;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The moves in memory.
#[derive(Default)]
pub struct InMemoryMoves(RefCell<BTreeMap<TenantId, Move>>);

#[async_trait(?Send)]
impl Moves for InMemoryMoves {
    async fn start(&self, new: &Move) -> DirectoryResult<bool> {
        let mut moves = self.0.borrow_mut();
        let is_free = moves.get(&new.tenant).is_none_or(|old| old.phase.is_final());
        if is_free {
            moves.insert(new.tenant.clone(), new.clone());
        }
        Ok(is_free)
    }

    async fn cancel(&self, tenant: &TenantId, now: Timestamp) -> DirectoryResult<bool> {
        let mut moves = self.0.borrow_mut();
        let Some(one) = moves.get_mut(tenant) else { return Ok(false) };
        (one.phase, one.since) = (MovePhase::Canceled, now);
        Ok(true)
    }

    async fn latest(&self, tenant: &TenantId) -> DirectoryResult<Option<Move>> {
        Ok(self.0.borrow().get(tenant).cloned())
    }

    async fn user_shards(&self, _tenant: &TenantId) -> DirectoryResult<BTreeMap<UserId, String>> {
        Ok(BTreeMap::new())
    }

    async fn advance(&self, _tenant: Option<&TenantId>, _clock: &dyn Clock) -> DirectoryResult<()> {
        Ok(())
    }
}
