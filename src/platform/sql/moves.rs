//! Moves between shards (`migrations/0014_moves.sql`, `migrations/0017_user_shards.sql`).
//!
//! The root stores the phase of a move, and the target how much is copied, in the transaction that copies it. So a run
//! may stop anywhere, and two runs of one move cannot disturb each other: a step applies only while phase and position
//! are those that the run has read.

mod clear;
mod copying;
mod fence;
mod part;
mod position;
mod root;
mod rows;

pub use super::memory::copy::Terms;
pub use fence::is_refusal;

use super::{Databases, Rows, Sql, SqlError, Statement, shard_name};
use crate::ports::directory::{DirectoryError, DirectoryResult};
use crate::ports::moves::{Move, MovePhase};
use crate::ports::{Clock, Moves};
use crate::types::{TenantId, Timestamp, UserId, time::in_turn};
use async_trait::async_trait;
use part::{Job, read_use};
use position::Position;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of pages that one run copies or removes. A page takes up to 13 queries, and each move a dozen more. D1
/// allows 1,000 in one invocation, almost half of which are for erasures.
const PAGES_AT_ONCE: usize = 30;
/// Maximum number of moves that one run carries on.
const MOVES_AT_ONCE: usize = 10;
/// How long rows are kept on the shard that a tenant has left, for reads that had already begun.
const READS_END: Duration = Duration::from_secs(30);

/// Returns the shard of a user of a spread tenant, among the shards over which it is spread.
pub type UserShard = for<'a> fn(&TenantId, &UserId, &'a [String]) -> Option<&'a str>;

/// The moves.
pub struct SqlMoves<D> {
    databases: D,
    terms: Terms,
    user_shard: UserShard,
    /// How long an isolate may cache the shard of a tenant that does not move.
    cached: Duration,
}

impl<D: Databases> SqlMoves<D> {
    /// Creates the moves between these databases. `terms` computes the terms of the memory index, `user_shard` the shard of
    /// a user, and `cached` is how long an isolate may cache the shard of a tenant that does not move.
    pub fn new(databases: D, terms: Terms, user_shard: UserShard, cached: Duration) -> Self {
        Self { databases, terms, user_shard, cached }
    }

    fn shard(&self, name: &str) -> Result<D::Database, SqlError> {
        let missing = || SqlError(format!("the shard {name} is not bound"));
        self.databases.named(name).ok_or_else(missing)
    }

    async fn root(&self, statements: &[Statement<'_>]) -> Result<Vec<<D::Database as Sql>::Rows>, SqlError> {
        self.shard(&shard_name(0))?.batch(statements).await
    }

    /// Carries on a move until it must wait, or no page is left.
    async fn carry_on(
        &self,
        tenant: &TenantId,
        clock: &dyn Clock,
        pages: &mut usize,
    ) -> Result<(), SqlError> {
        while *pages > 0
            && let Some(job) = root::read_all(&self.root(&[root::select(tenant)]).await?)?.pop()
        {
            match self.step(&job, clock, pages).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if fence::is_overtaken(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns whether the user of a spread tenant moves to the shard that its id determines.
    fn returns(&self, job: &Job) -> bool {
        let Some((user, spread)) = job.one.user.as_ref().zip(job.spread) else { return false };
        let shards: Vec<_> = (0..spread).map(shard_name).collect();
        (self.user_shard)(&job.one.tenant, user, &shards) == Some(&job.one.target)
    }

    /// Returns whether the phase of a move has to last longer.
    fn must_wait(&self, job: &Job, now: Timestamp) -> bool {
        match job.one.phase {
            MovePhase::Draining => !job.is_deleted && now < job.one.since + self.cached,
            MovePhase::Cleaning => now < job.one.since + READS_END,
            _ => false,
        }
    }

    /// Returns the tenants whose moves a run carries on: each move in turn if there are many, so that some that fail do
    /// not block others. Those whose tenants cannot write come first.
    fn next(&self, mut open: Vec<Job>, now: Timestamp) -> Vec<TenantId> {
        open.retain(|job| !self.must_wait(job, now));
        let mut open = in_turn(open, MOVES_AT_ONCE, now);
        open.sort_by_key(|Job { one, .. }| {
            (one.phase != MovePhase::Copying, one.phase != MovePhase::Canceling, one.since)
        });
        open.into_iter().map(|job| job.one.tenant).collect()
    }

    /// Lets the tenants and users write that are on their new shard, if the run that stored it stopped there.
    async fn open_targets(&self, open: &[Job]) -> Result<(), SqlError> {
        let mut targets: BTreeMap<&str, Vec<&Job>> = BTreeMap::new();
        for job in open.iter().filter(|job| job.one.phase == MovePhase::Cleaning) {
            targets.entry(&job.one.target).or_default().push(job);
        }
        let mut failed = None;
        for (target, jobs) in targets {
            let opened = async { self.shard(target)?.batch(&[fence::end_all(&jobs)?]).await };
            failed = opened.await.err().or(failed);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Does the work of one phase, as far as the pages last. Returns `false` if the move must wait.
    async fn step(&self, job: &Job, clock: &dyn Clock, pages: &mut usize) -> Result<bool, SqlError> {
        let (one, now) = (&job.one, clock.now());
        let next = match one.phase {
            // The erasure of the tenant continues on its shard.
            MovePhase::Draining | MovePhase::Copying if job.is_deleted => Some(MovePhase::Canceling),
            MovePhase::Draining if self.must_wait(job, now) => return Ok(false),
            MovePhase::Draining => Some(MovePhase::Copying),
            MovePhase::Copying => return self.copy(job, clock, pages).await,
            MovePhase::Cleaning => {
                self.shard(&one.target)?.batch(&[fence::end(job)?]).await?;
                if self.must_wait(job, now) {
                    return Ok(false);
                }
                self.clear(job, &one.source, fence::leave, pages).await?.then_some(MovePhase::Done)
            }
            MovePhase::Canceling => match self.clear(job, &one.target, fence::end, pages).await? {
                true => {
                    self.shard(&one.source)?.batch(&[fence::end(job)?]).await?;
                    Some(MovePhase::Canceled)
                }
                false => None,
            },
            MovePhase::Done | MovePhase::Canceled => return Ok(false),
        };
        if let Some(phase) = next {
            self.root(&[root::enter(one, phase, clock.now())]).await?;
        }
        Ok(true)
    }

    /// Copies the rows, and then stores the target as their shard. Returns `false` if the move must wait.
    async fn copy(&self, job: &Job, clock: &dyn Clock, pages: &mut usize) -> Result<bool, SqlError> {
        let one = &job.one;
        let (source, target) = (self.shard(&one.source)?, self.shard(&one.target)?);
        source.batch(&[fence::set(job)?]).await?;
        let results = target.batch(&[fence::set(job)?, fence::select(job)]).await?;
        let found = fence::read(results.get(1..).unwrap_or_default())?;
        let (mut position, mut copied) = found.ok_or_else(|| SqlError::new("a later move has begun"))?;
        if position == Position::Ended {
            // The root does not know it yet, so the same step would follow at once.
            return Ok(false);
        }
        while *pages > 0 && position != Position::End {
            *pages -= 1;
            match &position {
                Position::Clear => {
                    let close = fence::close(job, &position.next(), 0)?;
                    if copying::clear_page(job, &target, &position, close).await? {
                        position = position.next();
                    }
                }
                _ => {
                    let (next, count) =
                        copying::copy_page(job, &source, &target, &position, self.terms).await?;
                    (position, copied) = (next, copied + count as u64);
                }
            }
        }
        self.root(&[root::progress(one, copied)]).await?;
        if position != Position::End {
            return Ok(true);
        }
        let used = [job.select_use()];
        let (before, after) = (source.batch(&used).await?, target.batch(&used).await?);
        if read_use(&before)? == read_use(&after)? {
            // Reads of the old shard may begin until now.
            self.root(&root::switch(one, self.returns(job), clock.now())).await?;
            let results = self.root(&[root::select(&one.tenant)]).await?;
            if root::read_all(&results)?.pop().is_some_and(|latest| latest.one.phase == MovePhase::Cleaning) {
                // At once, because the next step may follow much later.
                target.batch(&[fence::end(job)?]).await?;
            }
            return Ok(true);
        }
        let results = self.root(&[root::enter(one, MovePhase::Canceling, clock.now())]).await?;
        match is_any(&results)? {
            true => Err(SqlError::new("the copy differs from the rows, so the move is canceled")),
            // Another run has carried the move on, which changes the rows of both shards.
            false => Ok(true),
        }
    }

    /// Removes the move's rows from a shard and ends the fence there with `end`. Returns whether both are done.
    async fn clear(
        &self,
        job: &Job,
        shard: &str,
        end: fn(&Job) -> Result<Statement<'static>, SqlError>,
        pages: &mut usize,
    ) -> Result<bool, SqlError> {
        let shard = self.shard(shard)?;
        let Some((position, _)) = fence::read(&shard.batch(&[fence::select(job)]).await?)? else {
            // Nothing was copied before the move was canceled.
            shard.batch(&[end(job)?]).await?;
            return Ok(true);
        };
        let mut is_clear = position == Position::Ended;
        while *pages > 0 && !is_clear {
            *pages -= 1;
            is_clear = copying::clear_page(job, &shard, &position, end(job)?).await?;
        }
        Ok(is_clear)
    }
}

fn is_any(results: &[impl Rows]) -> Result<bool, SqlError> {
    Ok(!super::read::<serde::de::IgnoredAny>(results, 0)?.is_empty())
}

fn failed(error: SqlError) -> DirectoryError {
    DirectoryError(error.0)
}

#[async_trait(?Send)]
impl<D: Databases> Moves for SqlMoves<D> {
    async fn start(&self, new: &Move) -> DirectoryResult<bool> {
        let results = self.root(&[root::insert(new)]).await.map_err(failed)?;
        is_any(&results).map_err(failed)
    }

    async fn cancel(&self, tenant: &TenantId, now: Timestamp) -> DirectoryResult<bool> {
        let Some(one) = self.latest(tenant).await? else { return Ok(false) };
        match one.phase {
            MovePhase::Draining | MovePhase::Copying => {
                let canceling = root::enter(&one, MovePhase::Canceling, now);
                is_any(&self.root(&[canceling]).await.map_err(failed)?).map_err(failed)
            }
            MovePhase::Canceling | MovePhase::Canceled => Ok(true),
            MovePhase::Cleaning | MovePhase::Done => Ok(false),
        }
    }

    async fn latest(&self, tenant: &TenantId) -> DirectoryResult<Option<Move>> {
        let results = self.root(&[root::select(tenant)]).await.map_err(failed)?;
        Ok(root::read_all(&results).map_err(failed)?.pop().map(|job| job.one))
    }

    async fn user_shards(&self, tenant: &TenantId) -> DirectoryResult<BTreeMap<UserId, String>> {
        let results = self.root(&[root::select_users(tenant)]).await.map_err(failed)?;
        root::read_users(&results).map_err(failed)
    }

    async fn advance(&self, tenant: Option<&TenantId>, clock: &dyn Clock) -> DirectoryResult<()> {
        let (mut pages, mut failure) = (PAGES_AT_ONCE, None);
        let tenants = match tenant {
            Some(tenant) => vec![tenant.clone()],
            None => {
                let results = self.root(&[root::select_open()]).await.map_err(failed)?;
                let open = root::read_all(&results).map_err(failed)?;
                failure = self.open_targets(&open).await.err().map(failed);
                self.next(open, clock.now())
            }
        };
        for tenant in &tenants {
            if let Err(error) = self.carry_on(tenant, clock, &mut pages).await {
                failure = Some(DirectoryError(format!("the move of {tenant}: {error}")));
            }
        }
        failure.map_or(Ok(()), Err)
    }
}
