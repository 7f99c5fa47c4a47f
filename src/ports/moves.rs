//! Moves of tenants and users between shards.
//!
//! A move is stored, and carried on by requests of the operator and by cron, each of which does a bounded part. A part
//! that is interrupted or repeated changes nothing.

use super::{Clock, directory::DirectoryResult};
use crate::types::{MoveId, TenantId, Timestamp, UserId};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MovePhase {
    /// Waits until no isolate caches the shard. Everything works as usual.
    Draining,
    /// The rows are copied. Both shards refuse other writes of them.
    Copying,
    /// The rows are on their new shard, and those on the old one are removed.
    Cleaning,
    /// The rows stay on their shard, and the copied ones are removed.
    Canceling,
    /// The move has succeeded.
    Done,
    /// Nothing has moved.
    Canceled,
}

impl MovePhase {
    /// Returns whether nothing is left to do.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Canceled)
    }
}

/// A move from one shard to another: of a tenant, without users that have a shard of their own, or of one user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The id. Later moves have higher ids.
    pub id: MoveId,
    /// The tenant.
    pub tenant: TenantId,
    /// The user whose memory and files move. Absent if the tenant moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserId>,
    /// The shard that is left.
    pub source: String,
    /// The new shard.
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
/// # use edge_harness::ports::{Clock, Moves, directory::DirectoryResult, moves::Move};
/// async fn carry_on(moves: &dyn Moves, new: &Move, clock: &dyn Clock) -> DirectoryResult<bool> {
///     moves.start(new).await?;
///     moves.advance(Some(&new.tenant), clock).await?;
///     Ok(moves.latest(&new.tenant).await?.is_some_and(|latest| latest.phase.is_final()))
/// }
/// ```
#[async_trait(?Send)]
pub trait Moves {
    /// Stores a new move. Returns `false` if the tenant does not exist, the tenant or the user is no longer on the
    /// source, or another move of the tenant has not ended.
    async fn start(&self, new: &Move) -> DirectoryResult<bool>;
    /// Cancels the latest move of a tenant. Returns `false` if the rows are already on their new shard, or there is no move.
    async fn cancel(&self, tenant: &TenantId, now: Timestamp) -> DirectoryResult<bool>;
    /// Returns the latest move of a tenant, or of one of its users.
    async fn latest(&self, tenant: &TenantId) -> DirectoryResult<Option<Move>>;
    /// Returns the users of a tenant that have moved, with their shards.
    async fn user_shards(&self, tenant: &TenantId) -> DirectoryResult<BTreeMap<UserId, String>>;
    /// Does a bounded part of the moves that have not ended, or only of that of `tenant`. A move that fails does not block
    /// the others.
    async fn advance(&self, tenant: Option<&TenantId>, clock: &dyn Clock) -> DirectoryResult<()>;
}
