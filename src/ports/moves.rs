//! Moves of tenants between shards.
//!
//! A move is stored, and carried on by requests of the operator and by cron, each of which does a bounded part. A part
//! that is interrupted or repeated changes nothing.

use super::directory::DirectoryResult;
use crate::types::{MoveId, TenantId, Timestamp};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MovePhase {
    /// Waits until no isolate caches the tenant's shard. The tenant works as usual.
    Draining,
    /// The rows are copied. Both shards refuse other writes of the tenant.
    Copying,
    /// The tenant is on its new shard, and its rows on the old one are removed.
    Cleaning,
    /// The tenant stays on its shard, and the copied rows are removed.
    Canceling,
    /// The tenant has moved.
    Done,
    /// The tenant has not moved.
    Canceled,
}

impl MovePhase {
    /// Returns whether nothing is left to do.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Canceled)
    }
}

/// The move of a tenant from one shard to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The id. Later moves have higher ids.
    pub id: MoveId,
    /// The tenant.
    pub tenant: TenantId,
    /// The shard that the tenant leaves.
    pub source: String,
    /// The shard that the tenant gets.
    pub target: String,
    /// The phase.
    pub phase: MovePhase,
    /// When the phase began.
    pub since: Timestamp,
    /// Number of copied rows.
    pub copied: u64,
    /// When the operator started the move.
    pub started_at: Timestamp,
}

/// The moves of a deployment.
///
/// ```
/// # use edge_harness::ports::{Moves, directory::DirectoryResult, moves::Move};
/// # use edge_harness::types::Timestamp;
/// async fn carry_on(moves: &dyn Moves, new: &Move, now: Timestamp) -> DirectoryResult<bool> {
///     moves.start(new).await?;
///     moves.advance(Some(&new.tenant), now).await?;
///     Ok(moves.latest(&new.tenant).await?.is_some_and(|latest| latest.phase.is_final()))
/// }
/// ```
#[async_trait(?Send)]
pub trait Moves {
    /// Stores a new move. Returns `false` if the tenant does not exist, is no longer on the move's source, or another
    /// move of it has not ended.
    async fn start(&self, new: &Move) -> DirectoryResult<bool>;
    /// Cancels the move of a tenant. Returns `false` if the tenant is already on its new shard, or there is no move.
    async fn cancel(&self, tenant: &TenantId, now: Timestamp) -> DirectoryResult<bool>;
    /// Returns the latest move of a tenant.
    async fn latest(&self, tenant: &TenantId) -> DirectoryResult<Option<Move>>;
    /// Does a bounded part of the moves that have not ended, or only of that of `tenant`. A move that fails does not block
    /// the others.
    async fn advance(&self, tenant: Option<&TenantId>, now: Timestamp) -> DirectoryResult<()>;
}
