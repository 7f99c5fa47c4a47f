//! The directory on D1 (`migrations/0001_directory.sql`, `0006_permissions.sql`, `0007_subagents.sql`,
//! `0008_secrets.sql`, `0009_tenant_version.sql`, `0010_tenant_limits.sql`, `0011_tenant_storage.sql`,
//! `0012_pending_calls.sql`, `0013_audit.sql`, `0017_user_shards.sql`, `0019_limits_due.sql`,
//! `0020_running_sessions.sql`, `0021_storage_days.sql`). Tenants, keys, secrets, the audit trail and the numbers of stored
//! bytes by day are in the root database, with the operator's Idempotency-Keys. Those of a tenant and its list of sessions
//! are on its shard.

mod rows;

use super::{Database, Rows, Shards, number, optional, time, timestamp};
use crate::platform::sql::{
    PROBE, Sql, SqlError, Statement, audit, storage,
    storage_days::{self, Progress, read_days, select_days},
    tenants,
};
use crate::ports::Directory;
use crate::ports::directory::{
    AUDIT_TTL, ApiKey, CLAIM_TIMEOUT, CLAIM_TTL, Claim, DirectoryError, DirectoryResult, SHARDS_PER_SWEEP,
    SessionEntry, SessionKinds, Tenant,
};
use crate::types::{
    AgentId, AuditEntry, AuditQuery, Day, KeyId, SessionId, StorageUse, TenantId, TenantPolicy, Timestamp,
    UserId, time::in_turn,
};
use async_trait::async_trait;
use futures::future::try_join_all;
use rows::{ClaimRow, CountRow, DeletedRow, KeyRow, SecretRow, SessionRow, TenantRow};
use serde::de::IgnoredAny;
use serde_json::json;
use std::rc::Rc;
use worker::D1Type;

/// Maximum number of rows that one sweep deletes from a table.
const EXPIRED_AT_ONCE: usize = 500;
/// Maximum number of shards whose storage one run records, with two calls for each.
const RECORDED_SHARDS: usize = 5;

const TENANT: &str = "SELECT id, name, created_at, jwt, shard, spread, permissions, limits, version FROM tenants WHERE deleted_at IS NULL";
const SESSION: &str =
    "SELECT tenant, id, user, agent, title, created_at, updated_at, pending, running, parent FROM sessions";
const KEY: &str = "SELECT id, tenant, name, scopes, created_at, expires_at FROM api_keys";
const KEY_AND_POLICY: &str = "SELECT k.id, k.tenant, k.name, k.scopes, k.created_at, k.expires_at, t.permissions, \
                             t.limits, t.version FROM api_keys k JOIN tenants t ON t.id = k.tenant \
                             WHERE (k.expires_at IS NULL OR k.expires_at > ?1)";

/// The directory on D1.
pub struct D1Directory {
    shards: Rc<Shards>,
}

impl D1Directory {
    /// Creates the directory in these databases.
    pub fn new(shards: Rc<Shards>) -> Self {
        Self { shards }
    }

    fn root(&self) -> &Database {
        self.shards.root()
    }

    /// Returns the database of a tenant's Idempotency-Keys, or of the operator's.
    async fn keys_of(&self, tenant: Option<&TenantId>) -> DirectoryResult<Database> {
        Ok(match tenant {
            Some(tenant) => self.shards.of(tenant).await?,
            None => self.root().clone(),
        })
    }

    /// Makes a change together with its row of the audit trail; see [`tenants`]. Returns whether it was made.
    async fn change(&self, batch: Vec<Statement<'_>>) -> DirectoryResult<bool> {
        let results = Sql::batch(self.root(), &batch).await?;
        results.get(1).map_or(Ok(false), |changed| Ok(changed.any()?))
    }
}

/// Returns the scope of the rows that record in which sessions the calls of a tenant's clients run.
fn scope_of_calls(tenant: &TenantId) -> String {
    json!(["call", tenant]).to_string()
}

#[async_trait(?Send)]
impl Directory for D1Directory {
    async fn check(&self) -> DirectoryResult<()> {
        try_join_all(self.shards.all().iter().map(|shard| shard.run(PROBE, &[]))).await?;
        Ok(())
    }

    async fn create_tenant(&self, tenant: &Tenant, audit: &AuditEntry) -> DirectoryResult<bool> {
        self.change(tenants::create_tenant(tenant, audit)?).await
    }

    async fn update_tenant(
        &self,
        tenant: &Tenant,
        read_version: u64,
        audit: &AuditEntry,
    ) -> DirectoryResult<bool> {
        self.change(tenants::update_tenant(tenant, read_version, audit)?).await
    }

    async fn copy_limits(&self, tenant: &Tenant) -> DirectoryResult<()> {
        let statement = storage::set_limits(&tenant.id, &tenant.limits.storage(), tenant.version);
        for shard in self.shards.all_of(&tenant.id).await? {
            Sql::batch(&shard, std::slice::from_ref(&statement)).await?;
        }
        Sql::batch(self.root(), &[tenants::limits_copied(tenant)]).await?;
        Ok(())
    }

    async fn limits_due(&self, limit: usize) -> DirectoryResult<Vec<Tenant>> {
        let sql = format!("{TENANT} AND {} ORDER BY limits_due LIMIT {limit}", tenants::LIMITS_DUE);
        let found: Vec<TenantRow> = self.root().rows(&sql, &[]).await?;
        found.into_iter().map(TenantRow::read).collect()
    }

    async fn tenant(&self, id: &TenantId) -> DirectoryResult<Option<Tenant>> {
        let found: Vec<TenantRow> =
            self.root().rows(&format!("{TENANT} AND id = ?1"), &[D1Type::Text(id)]).await?;
        found.into_iter().next().map(TenantRow::read).transpose()
    }

    async fn tenants(&self, after: Option<&TenantId>, limit: usize) -> DirectoryResult<Vec<Tenant>> {
        let sql = format!("{TENANT} AND id > ?1 ORDER BY id LIMIT {limit}");
        let found: Vec<TenantRow> =
            self.root().rows(&sql, &[D1Type::Text(after.map_or("", TenantId::as_str))]).await?;
        found.into_iter().map(TenantRow::read).collect()
    }

    async fn delete_tenant(&self, audit: &AuditEntry) -> DirectoryResult<bool> {
        self.change(tenants::delete_tenant(audit)?).await
    }

    async fn deleted_tenants(&self, limit: usize) -> DirectoryResult<Vec<(TenantId, Timestamp)>> {
        let sql = format!(
            "SELECT id, deleted_at FROM tenants WHERE deleted_at IS NOT NULL ORDER BY deleted_at LIMIT {limit}"
        );
        let found: Vec<DeletedRow> = self.root().rows(&sql, &[]).await?;
        Ok(found.into_iter().map(|row| (row.id, timestamp(row.deleted_at))).collect())
    }

    async fn deleted_at(&self, id: &TenantId) -> DirectoryResult<Option<Timestamp>> {
        let sql = "SELECT id, deleted_at FROM tenants WHERE id = ?1 AND deleted_at IS NOT NULL";
        let found: Vec<DeletedRow> = self.root().rows(sql, &[D1Type::Text(id)]).await?;
        Ok(found.first().map(|row| timestamp(row.deleted_at)))
    }

    async fn shard_count(&self, tenant: &TenantId) -> DirectoryResult<usize> {
        Ok(self.shards.all_of(tenant).await?.len())
    }

    async fn purge_tenant(&self, tenant: &TenantId) -> DirectoryResult<()> {
        let id = || D1Type::Text(tenant);
        let storage = "DELETE FROM tenant_storage WHERE tenant = ?1";
        // First the shards, so that nothing is left there if this stops: a closed fence would refuse the next tenant with
        // this id. A shard that the tenant or its users have left still has the fence, and may have the limits.
        let has_moved = "SELECT 1 AS done FROM moves WHERE tenant = ?1 AND phase IN ('done', 'canceled')";
        if self.root().did(has_moved, &[id()]).await? {
            let fences = "DELETE FROM fences WHERE tenant = ?1";
            for shard in self.shards.all() {
                shard.batch(&[(fences, &[id()]), (storage, &[id()])]).await?;
            }
        } else {
            for shard in self.shards.all_of(tenant).await? {
                shard.run(storage, &[id()]).await?;
            }
        }
        // Until a move has ended, rows may be on another shard.
        let row = "DELETE FROM tenants WHERE id = ?1 AND deleted_at IS NOT NULL AND NOT EXISTS \
                   (SELECT 1 FROM moves WHERE tenant = ?1 AND phase NOT IN ('done', 'canceled'))";
        let moves = "DELETE FROM moves WHERE tenant = ?1 AND phase IN ('done', 'canceled')";
        let users = "DELETE FROM user_shards WHERE tenant = ?1 \
                     AND NOT EXISTS (SELECT 1 FROM tenants WHERE id = ?1)";
        let days = "DELETE FROM storage_days WHERE tenant = ?1";
        self.root().batch(&[(days, &[id()]), (row, &[id()]), (users, &[id()]), (moves, &[id()])]).await?;
        Ok(())
    }

    async fn tenants_by_issuer(&self, issuer: &str) -> DirectoryResult<Vec<Tenant>> {
        let sql = format!("{TENANT} AND issuer = ?1 ORDER BY id");
        let found: Vec<TenantRow> = self.root().rows(&sql, &[D1Type::Text(issuer)]).await?;
        found.into_iter().map(TenantRow::read).collect()
    }

    async fn create_key(&self, key: &ApiKey, hash: &str, audit: &AuditEntry) -> DirectoryResult<bool> {
        self.change(tenants::create_key(key, hash, audit)?).await
    }

    async fn key_by_hash(
        &self,
        hash: &str,
        now: Timestamp,
    ) -> DirectoryResult<Option<(ApiKey, TenantPolicy)>> {
        let sql = format!("{KEY_AND_POLICY} AND k.hash = ?2");
        let found: Vec<KeyRow> = self.root().rows(&sql, &[time(now), D1Type::Text(hash)]).await?;
        found.into_iter().next().map(KeyRow::read_with_policy).transpose()
    }

    async fn key(
        &self,
        tenant: &TenantId,
        id: &KeyId,
        now: Timestamp,
    ) -> DirectoryResult<Option<(ApiKey, TenantPolicy)>> {
        let sql = format!("{KEY_AND_POLICY} AND k.tenant = ?2 AND k.id = ?3");
        let args = [time(now), D1Type::Text(tenant), D1Type::Text(id)];
        let found: Vec<KeyRow> = self.root().rows(&sql, &args).await?;
        found.into_iter().next().map(KeyRow::read_with_policy).transpose()
    }

    async fn keys(
        &self,
        tenant: &TenantId,
        after: Option<&KeyId>,
        limit: usize,
    ) -> DirectoryResult<Vec<ApiKey>> {
        let sql = format!("{KEY} WHERE tenant = ?1 AND id > ?2 ORDER BY id LIMIT {limit}");
        let found: Vec<KeyRow> = self
            .root()
            .rows(&sql, &[D1Type::Text(tenant), D1Type::Text(after.map_or("", KeyId::as_str))])
            .await?;
        found.into_iter().map(KeyRow::read).collect()
    }

    async fn delete_key(&self, id: &KeyId, audit: &AuditEntry) -> DirectoryResult<bool> {
        self.change(tenants::delete_key(id, audit)?).await
    }

    async fn append_audit(&self, entries: &[AuditEntry]) -> DirectoryResult<()> {
        Sql::batch(self.root(), &[audit::add(entries)?]).await?;
        Ok(())
    }

    async fn audit(&self, tenant: &TenantId, query: &AuditQuery) -> DirectoryResult<Vec<AuditEntry>> {
        let results = Sql::batch(self.root(), &[audit::select(tenant, query)]).await?;
        Ok(results.first().map(audit::read).transpose()?.unwrap_or_default())
    }

    async fn put_session(&self, entry: &SessionEntry) -> DirectoryResult<()> {
        let sql = "INSERT INTO sessions (tenant, id, user, agent, title, created_at, updated_at, parent, pending, running) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (tenant, id) DO UPDATE SET \
                   user = excluded.user, agent = excluded.agent, title = excluded.title, \
                   created_at = excluded.created_at, updated_at = excluded.updated_at, pending = excluded.pending, \
                   running = excluded.running \
                   WHERE excluded.updated_at >= sessions.updated_at";
        let args = [
            D1Type::Text(&entry.tenant),
            D1Type::Text(&entry.id),
            D1Type::Text(&entry.user),
            D1Type::Text(&entry.agent),
            optional(entry.title.as_deref()),
            time(entry.created_at),
            time(entry.updated_at),
            optional(entry.parent.as_deref()),
            number(entry.pending.into()),
            number(entry.running.into()),
        ];
        Ok(self.shards.of(&entry.tenant).await?.run(sql, &args).await?)
    }

    async fn delete_session(&self, tenant: &TenantId, id: &SessionId) -> DirectoryResult<()> {
        let sql = "DELETE FROM sessions WHERE tenant = ?1 AND id = ?2";
        Ok(self.shards.of(tenant).await?.run(sql, &[D1Type::Text(tenant), D1Type::Text(id)]).await?)
    }

    async fn subagents(&self, tenant: &TenantId, session: &SessionId) -> DirectoryResult<Vec<SessionId>> {
        let sql = format!("{SESSION} WHERE tenant = ?1 AND parent = ?2");
        let args = [D1Type::Text(tenant), D1Type::Text(session)];
        let found: Vec<SessionRow> = self.shards.of(tenant).await?.rows(&sql, &args).await?;
        Ok(found.into_iter().map(|row| row.id).collect())
    }

    async fn sessions(
        &self,
        kinds: SessionKinds,
        tenant: &TenantId,
        user: Option<&UserId>,
        agent: Option<&AgentId>,
        before: Option<(Timestamp, &SessionId)>,
        limit: usize,
    ) -> DirectoryResult<Vec<SessionEntry>> {
        let mut sql = format!("{SESSION} WHERE tenant = ?");
        let mut args = vec![D1Type::Text(tenant)];
        // See `SessionId::is_run`. A backquote follows the underscore.
        sql.push_str(match kinds {
            SessionKinds::All => "",
            SessionKinds::Runs => " AND id >= 'run_' AND id < 'run`' AND length(id) = 36",
            SessionKinds::Conversations => {
                " AND parent IS NULL AND NOT (id >= 'run_' AND id < 'run`' AND length(id) = 36)"
            }
        });
        if let Some(user) = user {
            sql.push_str(" AND user = ?");
            args.push(D1Type::Text(user));
        }
        if let Some(agent) = agent {
            sql.push_str(" AND agent = ?");
            args.push(D1Type::Text(agent));
        }
        if let Some((at, id)) = before {
            sql.push_str(" AND (created_at, id) < (?, ?)");
            args.extend([time(at), D1Type::Text(id)]);
        }
        sql.push_str(&format!(" ORDER BY created_at DESC, id DESC LIMIT {limit}"));
        let found: Vec<SessionRow> = self.shards.of(tenant).await?.rows(&sql, &args).await?;
        Ok(found.into_iter().map(SessionRow::read).collect())
    }

    async fn count_sessions(&self, tenant: &TenantId, user: Option<&UserId>) -> DirectoryResult<u64> {
        let mut sql = "SELECT count(*) AS sessions FROM sessions WHERE tenant = ?".to_owned();
        let mut args = vec![D1Type::Text(tenant)];
        if let Some(user) = user {
            sql.push_str(" AND user = ?");
            args.push(D1Type::Text(user));
        }
        let found: Vec<CountRow> = self.shards.of(tenant).await?.rows(&sql, &args).await?;
        Ok(found.first().map_or(0, |row| row.sessions as u64))
    }

    async fn claim(
        &self,
        tenant: Option<&TenantId>,
        scope: &str,
        key: &str,
        body_hash: &str,
        now: Timestamp,
    ) -> DirectoryResult<Claim> {
        let ended = "DELETE FROM idempotency WHERE scope = ?1 AND key = ?2 \
                     AND created_at <= CASE WHEN status IS NULL THEN ?3 ELSE ?4 END";
        let insert = "INSERT INTO idempotency (scope, key, body_hash, created_at) VALUES (?1, ?2, ?3, ?4) \
                      ON CONFLICT DO NOTHING RETURNING 1 AS done";
        let select = "SELECT body_hash, status, answer FROM idempotency WHERE scope = ?1 AND key = ?2";
        let scope = || D1Type::Text(scope);
        let key = || D1Type::Text(key);
        let running = time(now - CLAIM_TIMEOUT);
        let kept = time(now - CLAIM_TTL);
        // A batch is one transaction, so that of two concurrent claims only one inserts.
        let results = self
            .keys_of(tenant)
            .await?
            .batch(&[
                (ended, &[scope(), key(), running, kept]),
                (insert, &[scope(), key(), D1Type::Text(body_hash), time(now)]),
                (select, &[scope(), key()]),
            ])
            .await?;
        let [_, inserted, found] = results.as_slice() else {
            return Err(DirectoryError("the database returned fewer results than statements".into()));
        };
        if inserted.any()? {
            return Ok(Claim::Fresh);
        }
        let row = found.read::<ClaimRow>()?.into_iter().next();
        Ok(match row.ok_or_else(|| DirectoryError("the row of the claim is missing".into()))? {
            row if row.body_hash != body_hash => Claim::Reused,
            ClaimRow { status: Some(status), answer: Some(body), .. } => Claim::Done(status as u16, body),
            _ => Claim::Running,
        })
    }

    async fn settle(
        &self,
        tenant: Option<&TenantId>,
        scope: &str,
        key: &str,
        response: Option<(u16, &str)>,
    ) -> DirectoryResult<()> {
        let [scope, key] = [scope, key].map(D1Type::Text);
        let database = self.keys_of(tenant).await?;
        match response {
            Some((status, body)) => {
                let sql = "UPDATE idempotency SET status = ?3, answer = ?4 WHERE scope = ?1 AND key = ?2";
                database.run(sql, &[scope, key, number(status.into()), D1Type::Text(body)]).await?;
            }
            None => {
                let sql = "DELETE FROM idempotency WHERE scope = ?1 AND key = ?2 AND status IS NULL";
                database.run(sql, &[scope, key]).await?;
            }
        }
        Ok(())
    }

    /// The row is one of `idempotency`, whose response is the session: it expires in the same way.
    async fn put_call(
        &self,
        tenant: &TenantId,
        call: &str,
        session: &SessionId,
        now: Timestamp,
    ) -> DirectoryResult<()> {
        let sql = "INSERT OR REPLACE INTO idempotency (scope, key, body_hash, created_at, status, answer) \
                   VALUES (?1, ?2, '', ?3, 202, ?4)";
        let (scope, session) = (scope_of_calls(tenant), D1Type::Text(session));
        let values = [D1Type::Text(&scope), D1Type::Text(call), time(now), session];
        self.keys_of(Some(tenant)).await?.run(sql, &values).await?;
        Ok(())
    }

    async fn session_of_call(&self, tenant: &TenantId, call: &str) -> DirectoryResult<Option<SessionId>> {
        let sql = "SELECT body_hash, status, answer FROM idempotency WHERE scope = ?1 AND key = ?2";
        let scope = scope_of_calls(tenant);
        let values = [D1Type::Text(&scope), D1Type::Text(call)];
        let found: Vec<ClaimRow> = self.keys_of(Some(tenant)).await?.rows(sql, &values).await?;
        Ok(found.into_iter().next().and_then(|row| SessionId::parse(&row.answer?)))
    }

    async fn secret(&self, name: &str, new: &str) -> DirectoryResult<String> {
        let insert = "INSERT INTO secrets (name, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
        let select = "SELECT value FROM secrets WHERE name = ?1";
        let name = || D1Type::Text(name);
        let results =
            self.root().batch(&[(insert, &[name(), D1Type::Text(new)]), (select, &[name()])]).await?;
        let found = results.last().map(|found| found.read::<SecretRow>()).transpose()?;
        let row = found.and_then(|rows| rows.into_iter().next());
        row.map(|row| row.value).ok_or_else(|| DirectoryError("the row of the secret is missing".into()))
    }

    async fn storage(&self, tenant: &TenantId, user: Option<&UserId>) -> DirectoryResult<StorageUse> {
        let used = self.shards.all_of(tenant).await?.into_iter().map(|shard| async move {
            let results = Sql::batch(&shard, &[storage::select_use(tenant, user)]).await?;
            Ok::<_, SqlError>(results.first().map(storage::read_use).transpose()?.unwrap_or_default())
        });
        Ok(try_join_all(used).await?.into_iter().fold(StorageUse::default(), |sum, used| sum + used))
    }

    async fn record_storage(&self, now: Timestamp) -> DirectoryResult<()> {
        let day = Day::of(now);
        let progress = Progress::read(self.root(), day).await?;
        let shards = self.shards.names().iter().zip(self.shards.all());
        let left = shards.filter_map(|(name, shard)| Some((name, shard, progress.after(name)?)));
        let mut result = Ok(());
        for (name, shard, after) in in_turn(left.collect(), RECORDED_SHARDS, now) {
            // A shard that is down does not block others.
            result = result.and(storage_days::record(self.root(), (name, shard), day, after).await);
        }
        Ok(result?)
    }

    async fn stored_by_day(
        &self,
        tenant: &TenantId,
        from: Day,
        to: Day,
    ) -> DirectoryResult<Vec<(Day, StorageUse)>> {
        let results = Sql::batch(self.root(), &[select_days(tenant, from, to)]).await?;
        Ok(results.first().map(read_days).transpose()?.unwrap_or_default())
    }

    async fn expire(&self, now: Timestamp) -> DirectoryResult<bool> {
        let responses = format!(
            "DELETE FROM idempotency WHERE (scope, key) IN \
             (SELECT scope, key FROM idempotency WHERE created_at <= ?1 LIMIT {EXPIRED_AT_ONCE}) RETURNING 1 AS done"
        );
        let keys = format!(
            "DELETE FROM api_keys WHERE (tenant, id) IN \
             (SELECT tenant, id FROM api_keys WHERE expires_at <= ?1 LIMIT {EXPIRED_AT_ONCE}) RETURNING 1 AS done"
        );
        let since = now - CLAIM_TTL;
        let keys: Vec<IgnoredAny> = self.root().rows(&keys, &[time(now)]).await?;
        let audit = Sql::batch(self.root(), &[audit::expire(now - AUDIT_TTL, EXPIRED_AT_ONCE)]).await?;
        let audit: Vec<IgnoredAny> = audit.first().map_or(Ok(Vec::new()), Rows::read)?;
        let mut most = keys.len().max(audit.len());
        for shard in in_turn(self.shards.all().to_vec(), SHARDS_PER_SWEEP, now) {
            most = most.max(shard.rows::<IgnoredAny>(&responses, &[time(since)]).await?.len());
        }
        Ok(most == EXPIRED_AT_ONCE)
    }
}
