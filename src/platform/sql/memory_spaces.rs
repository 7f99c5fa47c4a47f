//! The memory spaces (`migrations/0004_memory.sql`).
//!
//! Each change is one conditional statement, so that of two concurrent changes only one succeeds.

use super::{Databases, Sql, Statement, Value, read};
use crate::ports::memory::MemoryResult;
use crate::ports::memory_spaces::{Claim, Intent, Lease, MemorySpaces, Space};
use crate::types::{AgentId, TenantId, Timestamp, UserId, time::millis};
use async_trait::async_trait;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::time::Duration;

/// The space identified by the first three parameters.
const SPACE: &str = "tenant = ?1 AND user = ?2 AND agent = ?3";
/// The space while the fourth parameter still holds its lease.
const HELD: &str = "tenant = ?1 AND user = ?2 AND agent = ?3 AND holder = ?4";
/// The columns of a [`Lease`].
const LEASE: &str = "tenant, user, agent, holder, watermark, intent_etag, intent_watermark, \
                     requested_at IS NULL AS not_requested, dirty_since";

/// The memory spaces.
pub struct SqlSpaces<D> {
    databases: D,
}

impl<D: Databases> SqlSpaces<D> {
    /// Creates the spaces in these databases.
    pub fn new(databases: D) -> Self {
        Self { databases }
    }

    /// Runs a batch in the space's database.
    async fn batch(
        &self,
        space: &Space,
        statements: &[Statement<'_>],
    ) -> MemoryResult<Vec<<D::Database as Sql>::Rows>> {
        Ok(self.databases.of(&space.tenant, &space.user).await?.batch(statements).await?)
    }

    /// Runs a statement on a leased space that ends in `RETURNING 1 AS done`. Returns whether it changed a
    /// row.
    async fn held(&self, lease: &Lease, sql: &str, args: &[Value<'_>]) -> MemoryResult<bool> {
        let mut all = named(&lease.space);
        all.push(lease.holder.as_str().into());
        all.extend_from_slice(args);
        let results = self.batch(&lease.space, &[Statement::new(sql, all)]).await?;
        Ok(!read::<IgnoredAny>(&results, 0)?.is_empty())
    }
}

/// Returns the parameters of [`SPACE`].
fn named(space: &Space) -> Vec<Value<'_>> {
    [space.tenant.as_str(), &space.user, &space.agent].map(Value::from).into()
}

/// Returns the holder of a lease: the claim's name, followed by the space.
fn holder(claim: &Claim, space: &Space) -> String {
    format!("{}/{}/{}/{}", claim.holder, space.tenant, space.agent, space.user)
}

#[derive(Deserialize)]
struct FlushedRow {
    flushed_at: Option<f64>,
}

#[derive(Deserialize)]
struct ConsolidatedRow {
    consolidated_at: Option<f64>,
}

/// Sort key: requested spaces first, then those that have been dirty longest.
type Urgency = (bool, Timestamp);

#[derive(Deserialize)]
struct LeaseRow {
    tenant: TenantId,
    user: UserId,
    agent: AgentId,
    holder: String,
    watermark: f64,
    intent_etag: Option<String>,
    intent_watermark: Option<f64>,
    not_requested: f64,
    dirty_since: Option<f64>,
}

fn timestamp(ms: f64) -> Timestamp {
    Timestamp(ms as u64)
}

impl LeaseRow {
    fn urgency(&self) -> Urgency {
        (self.not_requested > 0.0, timestamp(self.dirty_since.unwrap_or_default()))
    }

    fn read(self) -> Lease {
        let Self { tenant, user, agent, holder, watermark, intent_etag, intent_watermark, .. } = self;
        let intent = intent_etag.zip(intent_watermark);
        Lease {
            space: Space { tenant, agent, user },
            holder,
            watermark: watermark as u64,
            intent: intent.map(|(etag, watermark)| Intent { etag, watermark: watermark as u64 }),
        }
    }
}

/// Returns the value of `dirty_since` for the space of the first three parameters after this watermark: the
/// time of the first added fact. Finding the earliest time would read all facts.
pub(super) fn dirty_since(watermark: &str) -> String {
    format!(
        "(SELECT at FROM memory_entries WHERE collection = (SELECT id FROM memory_collections \
         WHERE {SPACE} AND kind = 'facts') AND serial > {watermark} AND source = 'log' \
         ORDER BY serial LIMIT 1)"
    )
}

/// The spaces that [`MemorySpaces::claim_due`] may lease, without those that are moving. Parameters: now, and
/// the latest time of the last consolidation.
const DUE: &str = "dirty_since IS NOT NULL AND leased_until <= ?1 \
                   AND (consolidated_at IS NULL OR consolidated_at < ?2) \
                   AND NOT EXISTS (SELECT 1 FROM fences WHERE fences.tenant = memory_spaces.tenant AND open = 0 \
                   AND part IN ('', 'users/' || memory_spaces.user))";

/// Leases up to `limit` due spaces of a database. Selection and lease are one statement, so that concurrent
/// claims get different spaces.
async fn take_due(
    database: &impl Sql,
    claim: &Claim,
    since: Timestamp,
    limit: usize,
) -> MemoryResult<Vec<(Urgency, Lease)>> {
    let sql = format!(
        "UPDATE memory_spaces SET holder = ?4 || '/' || tenant || '/' || agent || '/' || user, leased_until = ?3 \
         WHERE (tenant, user, agent) IN (SELECT tenant, user, agent FROM memory_spaces WHERE {DUE} \
           ORDER BY requested_at IS NULL, dirty_since, tenant, agent, user LIMIT {limit}) \
         RETURNING {LEASE}"
    );
    let args = [claim.now.into(), since.into(), claim.until.into(), claim.holder.as_str().into()];
    let rows: Vec<LeaseRow> = read(&database.batch(&[Statement::new(sql, args)]).await?, 0)?;
    Ok(rows.into_iter().map(|row| (row.urgency(), row.read())).collect())
}

#[async_trait(?Send)]
impl<D: Databases> MemorySpaces for SqlSpaces<D> {
    async fn claim_flush(
        &self,
        space: &Space,
        now: Timestamp,
        gap: Duration,
    ) -> MemoryResult<Option<Timestamp>> {
        let take = "INSERT INTO memory_spaces (tenant, user, agent, flushed_at) VALUES (?1, ?2, ?3, ?4) \
                    ON CONFLICT (tenant, user, agent) DO UPDATE SET flushed_at = excluded.flushed_at \
                    WHERE flushed_at IS NULL OR flushed_at + ?5 <= excluded.flushed_at RETURNING flushed_at";
        let flushed_at = format!("SELECT flushed_at FROM memory_spaces WHERE {SPACE}");
        let mut args = named(space);
        args.extend([now.into(), millis(gap).into()]);
        let batch = [Statement::new(take, args), Statement::new(flushed_at, named(space))];
        let results = self.batch(space, &batch).await?;
        if !read::<IgnoredAny>(&results, 0)?.is_empty() {
            return Ok(None);
        }
        let row = read::<FlushedRow>(&results, 1)?.into_iter().next();
        let flushed_at = row.and_then(|row| row.flushed_at).map_or(now, timestamp);
        Ok(Some(flushed_at + gap))
    }

    async fn request(&self, space: &Space, now: Timestamp) -> MemoryResult<Option<Timestamp>> {
        let sql = format!(
            "UPDATE memory_spaces SET requested_at = \
             CASE WHEN dirty_since IS NULL THEN requested_at ELSE coalesce(requested_at, ?4) END \
             WHERE {SPACE} RETURNING consolidated_at"
        );
        let mut args = named(space);
        args.push(now.into());
        let results = self.batch(space, &[Statement::new(sql, args)]).await?;
        let row = read::<ConsolidatedRow>(&results, 0)?.into_iter().next();
        Ok(row.and_then(|row| row.consolidated_at).map(timestamp))
    }

    /// First takes an equal share from each database, so that no database waits for another, then fills up to
    /// the limit.
    async fn claim_due(&self, claim: &Claim, since: Timestamp, limit: usize) -> MemoryResult<Vec<Lease>> {
        let mut databases = self.databases.all();
        let (mut leases, mut failed): (Vec<(Urgency, Lease)>, _) = (Vec::new(), None);
        for share in [limit.div_ceil(databases.len().max(1)), limit] {
            let mut more = Vec::new();
            for database in databases {
                let room = share.min(limit - leases.len());
                // A database that fails does not block the others.
                let taken = match room {
                    0 => Ok(Vec::new()),
                    _ => take_due(&database, claim, since, room).await,
                };
                let taken = taken.unwrap_or_else(|error| {
                    failed = Some(error);
                    Vec::new()
                });
                if taken.len() == share && share < limit {
                    more.push(database);
                }
                leases.extend(taken);
            }
            databases = more;
        }
        if let Some(error) = failed.filter(|_| leases.is_empty()) {
            return Err(error);
        }
        leases.sort_by(|(a, one), (b, other)| (a, &one.space).cmp(&(b, &other.space)));
        Ok(leases.into_iter().map(|(_, lease)| lease).collect())
    }

    async fn claim(&self, claim: &Claim, space: &Space) -> MemoryResult<Option<Lease>> {
        let sql = format!(
            "INSERT INTO memory_spaces (tenant, user, agent, holder, leased_until) \
             VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (tenant, user, agent) DO UPDATE SET \
             holder = excluded.holder, leased_until = excluded.leased_until WHERE leased_until <= ?6 \
             RETURNING {LEASE}"
        );
        let mut args = named(space);
        args.extend([holder(claim, space).into(), claim.until.into(), claim.now.into()]);
        let results = self.batch(space, &[Statement::new(sql, args)]).await?;
        Ok(read::<LeaseRow>(&results, 0)?.into_iter().next().map(LeaseRow::read))
    }

    async fn note(&self, lease: &Lease, watermark: u64, intent: Option<&Intent>) -> MemoryResult<bool> {
        let dirty_since = dirty_since("?5");
        // The etag is null if there is no intent.
        let sql = format!(
            "UPDATE memory_spaces SET watermark = ?5, dirty_since = {dirty_since}, \
             intent_etag = nullif(?6, ''), intent_watermark = ?7 WHERE {HELD} RETURNING 1 AS done"
        );
        let (etag, up_to) = intent.map_or(("", 0), |intent| (intent.etag.as_str(), intent.watermark));
        self.held(lease, &sql, &[watermark.into(), etag.into(), up_to.into()]).await
    }

    async fn finish(&self, lease: &Lease, watermark: u64, now: Timestamp) -> MemoryResult<bool> {
        let dirty_since = dirty_since("?5");
        let sql = format!(
            "UPDATE memory_spaces SET watermark = ?5, dirty_since = {dirty_since}, consolidated_at = ?6, \
             requested_at = NULL, holder = NULL, leased_until = 0, intent_etag = NULL, \
             intent_watermark = NULL WHERE {HELD} RETURNING 1 AS done"
        );
        self.held(lease, &sql, &[watermark.into(), now.into()]).await
    }

    async fn give_back(&self, lease: &Lease, until: Timestamp) -> MemoryResult<()> {
        let sql = format!(
            "UPDATE memory_spaces SET holder = NULL, leased_until = ?5 WHERE {HELD} RETURNING 1 AS done"
        );
        self.held(lease, &sql, &[until.into()]).await.map(drop)
    }
}
