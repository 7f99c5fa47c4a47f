//! The directory in memory.

use crate::ports::Directory;
use crate::ports::directory::{
    AUDIT_TTL, ApiKey, CLAIM_TIMEOUT, CLAIM_TTL, Claim, DirectoryError, DirectoryResult, SessionEntry,
    SessionKinds, Tenant,
};
use crate::types::{
    AgentId, AuditEntry, AuditId, AuditQuery, Day, KeyId, SessionId, StorageLimits, StorageUse, TenantId,
    TenantPolicy, Timestamp, UserId,
};
use async_trait::async_trait;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A directory in memory.
#[derive(Default)]
pub struct InMemoryDirectory {
    /// While set, every call fails.
    pub down: Cell<bool>,
    /// Number of calls so far.
    pub calls: Cell<usize>,
    /// Number of calls of [`Directory::key_by_hash`] and [`Directory::key`] so far.
    pub key_reads: Cell<usize>,
    /// Number of calls of [`Directory::tenants_by_issuer`] so far.
    pub issuer_reads: Cell<usize>,
    /// Number of calls of [`Directory::copy_limits`] so far.
    pub limit_copies: Cell<usize>,
    /// The number of shards of each tenant, at least 1.
    pub shard_count: Cell<usize>,
    /// While set, [`Directory::copy_limits`] fails.
    pub copies_fail: Cell<bool>,
    tables: RefCell<Tables>,
}

#[derive(Default)]
struct Tables {
    tenants: BTreeMap<TenantId, Tenant>,
    limits_due: BTreeSet<TenantId>,
    deleted: BTreeMap<TenantId, Timestamp>,
    keys: BTreeMap<(TenantId, KeyId), (ApiKey, String)>,
    sessions: BTreeMap<(TenantId, SessionId), SessionEntry>,
    claims: BTreeMap<(String, String), ClaimRow>,
    calls: BTreeMap<(TenantId, String), (SessionId, Timestamp)>,
    secrets: BTreeMap<String, String>,
    audit: BTreeMap<(TenantId, AuditId), AuditEntry>,
    storage_days: BTreeMap<(TenantId, Day), StorageUse>,
}

struct ClaimRow {
    body_hash: String,
    at: Timestamp,
    response: Option<(u16, String)>,
}

impl Tables {
    /// Adds a row of the audit trail, unless it exists.
    fn record(&mut self, entry: &AuditEntry) {
        self.audit.entry((entry.tenant.clone(), entry.id.clone())).or_insert_with(|| entry.clone());
    }

    /// Returns a key with its tenant's rules, unless it has expired.
    fn valid(&self, key: &ApiKey, now: Timestamp) -> Option<(ApiKey, TenantPolicy)> {
        let tenant = self.tenants.get(&key.tenant)?;
        let is_valid = key.expires_at.is_none_or(|end| end > now);
        is_valid.then(|| (key.clone(), tenant.policy()))
    }
}

impl InMemoryDirectory {
    fn tables(&self) -> DirectoryResult<std::cell::RefMut<'_, Tables>> {
        self.calls.set(self.calls.get() + 1);
        if self.down.get() {
            return Err(DirectoryError("switched off".into()));
        }
        Ok(self.tables.borrow_mut())
    }
}

#[async_trait(?Send)]
impl Directory for InMemoryDirectory {
    async fn check(&self) -> DirectoryResult<()> {
        self.tables().map(drop)
    }

    async fn create_tenant(&self, tenant: &Tenant, audit: &AuditEntry) -> DirectoryResult<bool> {
        let mut tables = self.tables()?;
        let taken = tables.tenants.contains_key(&tenant.id) || tables.deleted.contains_key(&tenant.id);
        if !taken {
            tables.tenants.insert(tenant.id.clone(), tenant.clone());
            if tenant.limits.storage() != StorageLimits::default() {
                tables.limits_due.insert(tenant.id.clone());
            }
            tables.record(audit);
        }
        Ok(!taken)
    }

    async fn update_tenant(
        &self,
        tenant: &Tenant,
        read_version: u64,
        audit: &AuditEntry,
    ) -> DirectoryResult<bool> {
        let mut tables = self.tables()?;
        let row = tables.tenants.get_mut(&tenant.id).filter(|row| row.version == read_version);
        let Some(row) = row else { return Ok(false) };
        row.name.clone_from(&tenant.name);
        row.jwt.clone_from(&tenant.jwt);
        row.permissions.clone_from(&tenant.permissions);
        let is_changed = row.limits != tenant.limits;
        row.limits.clone_from(&tenant.limits);
        row.version = tenant.version;
        if is_changed {
            tables.limits_due.insert(tenant.id.clone());
        }
        tables.record(audit);
        Ok(true)
    }

    async fn copy_limits(&self, tenant: &Tenant) -> DirectoryResult<()> {
        let mut tables = self.tables()?;
        if self.copies_fail.get() {
            return Err(DirectoryError("a shard is down".into()));
        }
        self.limit_copies.set(self.limit_copies.get() + 1);
        tables.limits_due.remove(&tenant.id);
        Ok(())
    }

    async fn limits_due(&self, limit: usize) -> DirectoryResult<Vec<Tenant>> {
        let tables = self.tables()?;
        let due = tables.limits_due.iter().filter_map(|id| tables.tenants.get(id));
        Ok(due.take(limit).cloned().collect())
    }

    async fn tenant(&self, id: &TenantId) -> DirectoryResult<Option<Tenant>> {
        Ok(self.tables()?.tenants.get(id).cloned())
    }

    async fn tenants(&self, after: Option<&TenantId>, limit: usize) -> DirectoryResult<Vec<Tenant>> {
        let tables = self.tables()?;
        Ok(tables
            .tenants
            .values()
            .filter(|t| after.is_none_or(|after| t.id > *after))
            .take(limit)
            .cloned()
            .collect())
    }

    async fn delete_tenant(&self, audit: &AuditEntry) -> DirectoryResult<bool> {
        let mut tables = self.tables()?;
        let id = &audit.tenant;
        if tables.tenants.remove(id).is_none() {
            return Ok(false);
        }
        tables.deleted.insert(id.clone(), audit.at);
        tables.keys.retain(|(tenant, _), _| tenant != id);
        tables.record(audit);
        Ok(true)
    }

    async fn deleted_tenants(&self, limit: usize) -> DirectoryResult<Vec<(TenantId, Timestamp)>> {
        let tables = self.tables()?;
        let mut deleted: Vec<_> = tables.deleted.iter().map(|(id, at)| (id.clone(), *at)).collect();
        deleted.sort_by_key(|(_, at)| *at);
        deleted.truncate(limit);
        Ok(deleted)
    }

    async fn deleted_at(&self, id: &TenantId) -> DirectoryResult<Option<Timestamp>> {
        Ok(self.tables()?.deleted.get(id).copied())
    }

    async fn shard_count(&self, _tenant: &TenantId) -> DirectoryResult<usize> {
        Ok(self.shard_count.get().max(1))
    }

    async fn purge_tenant(&self, id: &TenantId) -> DirectoryResult<()> {
        let mut tables = self.tables()?;
        tables.deleted.remove(id);
        tables.storage_days.retain(|(tenant, _), _| tenant != id);
        Ok(())
    }

    async fn tenants_by_issuer(&self, issuer: &str) -> DirectoryResult<Vec<Tenant>> {
        self.issuer_reads.set(self.issuer_reads.get() + 1);
        let tables = self.tables()?;
        let signed_by = |tenant: &&Tenant| tenant.jwt.as_ref().is_some_and(|jwt| jwt.issuer == issuer);
        Ok(tables.tenants.values().filter(signed_by).cloned().collect())
    }

    async fn create_key(&self, key: &ApiKey, hash: &str, audit: &AuditEntry) -> DirectoryResult<bool> {
        let mut tables = self.tables()?;
        if !tables.tenants.contains_key(&key.tenant) {
            return Ok(false);
        }
        tables.keys.insert((key.tenant.clone(), key.id.clone()), (key.clone(), hash.into()));
        tables.record(audit);
        Ok(true)
    }

    async fn key_by_hash(
        &self,
        hash: &str,
        now: Timestamp,
    ) -> DirectoryResult<Option<(ApiKey, TenantPolicy)>> {
        self.key_reads.set(self.key_reads.get() + 1);
        let tables = self.tables()?;
        let found = tables.keys.values().find(|(_, h)| h == hash);
        Ok(found.and_then(|(key, _)| tables.valid(key, now)))
    }

    async fn key(
        &self,
        tenant: &TenantId,
        id: &KeyId,
        now: Timestamp,
    ) -> DirectoryResult<Option<(ApiKey, TenantPolicy)>> {
        self.key_reads.set(self.key_reads.get() + 1);
        let tables = self.tables()?;
        let found = tables.keys.get(&(tenant.clone(), id.clone()));
        Ok(found.and_then(|(key, _)| tables.valid(key, now)))
    }

    async fn keys(
        &self,
        tenant: &TenantId,
        after: Option<&KeyId>,
        limit: usize,
    ) -> DirectoryResult<Vec<ApiKey>> {
        let tables = self.tables()?;
        let is_after = |key: &&ApiKey| key.tenant == *tenant && after.is_none_or(|after| key.id > *after);
        Ok(tables.keys.values().map(|(key, _)| key).filter(is_after).take(limit).cloned().collect())
    }

    async fn delete_key(&self, id: &KeyId, audit: &AuditEntry) -> DirectoryResult<bool> {
        let mut tables = self.tables()?;
        let existed = tables.keys.remove(&(audit.tenant.clone(), id.clone())).is_some();
        if existed {
            tables.record(audit);
        }
        Ok(existed)
    }

    async fn append_audit(&self, entries: &[AuditEntry]) -> DirectoryResult<()> {
        let mut tables = self.tables()?;
        entries.iter().for_each(|entry| tables.record(entry));
        Ok(())
    }

    async fn audit(&self, tenant: &TenantId, query: &AuditQuery) -> DirectoryResult<Vec<AuditEntry>> {
        let tables = self.tables()?;
        let (first, end) = query.ids();
        let found = tables.audit.values().rev().filter(|entry| {
            entry.tenant == *tenant
                && first.as_ref().is_none_or(|first| entry.id >= *first)
                && end.as_ref().is_none_or(|end| entry.id < *end)
                && query.action.is_none_or(|action| entry.action == action)
        });
        Ok(found.take(query.limit).cloned().collect())
    }

    async fn put_session(&self, entry: &SessionEntry) -> DirectoryResult<()> {
        let mut tables = self.tables()?;
        let key = (entry.tenant.clone(), entry.id.clone());
        if tables.sessions.get(&key).is_none_or(|row| row.updated_at <= entry.updated_at) {
            tables.sessions.insert(key, entry.clone());
        }
        Ok(())
    }

    async fn delete_session(&self, tenant: &TenantId, id: &SessionId) -> DirectoryResult<()> {
        self.tables()?.sessions.remove(&(tenant.clone(), id.clone()));
        Ok(())
    }

    async fn subagents(&self, tenant: &TenantId, session: &SessionId) -> DirectoryResult<Vec<SessionId>> {
        let tables = self.tables()?;
        let own = |s: &&SessionEntry| s.tenant == *tenant && s.parent.as_deref() == Some(session);
        Ok(tables.sessions.values().filter(own).map(|s| s.id.clone()).collect())
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
        let tables = self.tables()?;
        let is_listed = |s: &&SessionEntry| match kinds {
            SessionKinds::All => true,
            SessionKinds::Runs => s.id.is_run(),
            SessionKinds::Conversations => s.parent.is_none() && !s.id.is_run(),
        };
        let mut found: Vec<_> = tables
            .sessions
            .values()
            .filter(|s| s.tenant == *tenant)
            .filter(is_listed)
            .filter(|s| {
                user.is_none_or(|user| s.user == *user) && agent.is_none_or(|agent| s.agent == *agent)
            })
            .filter(|s| before.is_none_or(|before| (s.created_at, &s.id) < before))
            .cloned()
            .collect();
        found.sort_by_key(|s| Reverse((s.created_at, s.id.clone())));
        found.truncate(limit);
        Ok(found)
    }

    async fn count_sessions(&self, tenant: &TenantId, user: Option<&UserId>) -> DirectoryResult<u64> {
        let tables = self.tables()?;
        let own = |s: &&SessionEntry| s.tenant == *tenant && user.is_none_or(|user| s.user == *user);
        Ok(tables.sessions.values().filter(own).count() as u64)
    }

    async fn claim(
        &self,
        _tenant: Option<&TenantId>,
        scope: &str,
        key: &str,
        body_hash: &str,
        now: Timestamp,
    ) -> DirectoryResult<Claim> {
        let mut tables = self.tables()?;
        let id = (scope.to_owned(), key.to_owned());
        if let Some(row) = tables.claims.get(&id) {
            let kept = if row.response.is_some() { CLAIM_TTL } else { CLAIM_TIMEOUT };
            if now.since(row.at) < kept {
                return Ok(match &row.response {
                    _ if row.body_hash != body_hash => Claim::Reused,
                    Some((status, body)) => Claim::Done(*status, body.clone()),
                    None => Claim::Running,
                });
            }
        }
        tables.claims.insert(id, ClaimRow { body_hash: body_hash.into(), at: now, response: None });
        Ok(Claim::Fresh)
    }

    async fn settle(
        &self,
        _tenant: Option<&TenantId>,
        scope: &str,
        key: &str,
        response: Option<(u16, &str)>,
    ) -> DirectoryResult<()> {
        let mut tables = self.tables()?;
        let id = (scope.to_owned(), key.to_owned());
        match response {
            Some((status, body)) => {
                if let Some(row) = tables.claims.get_mut(&id) {
                    row.response = Some((status, body.into()));
                }
            }
            None => {
                tables.claims.remove(&id);
            }
        }
        Ok(())
    }

    async fn put_call(
        &self,
        tenant: &TenantId,
        call: &str,
        session: &SessionId,
        now: Timestamp,
    ) -> DirectoryResult<()> {
        self.tables()?.calls.insert((tenant.clone(), call.to_owned()), (session.clone(), now));
        Ok(())
    }

    async fn session_of_call(&self, tenant: &TenantId, call: &str) -> DirectoryResult<Option<SessionId>> {
        let tables = self.tables()?;
        Ok(tables.calls.get(&(tenant.clone(), call.to_owned())).map(|(session, _)| session.clone()))
    }

    async fn secret(&self, name: &str, new: &str) -> DirectoryResult<String> {
        Ok(self.tables()?.secrets.entry(name.into()).or_insert_with(|| new.into()).clone())
    }

    /// Only the number of sessions: files and memory are in other tables.
    async fn storage(&self, tenant: &TenantId, user: Option<&UserId>) -> DirectoryResult<StorageUse> {
        let tables = self.tables()?;
        let own = tables.sessions.values().filter(|s| s.tenant == *tenant && s.parent.is_none());
        let own = own.filter(|s| user.is_none_or(|user| s.user == *user));
        Ok(StorageUse { sessions: own.count() as u64, ..StorageUse::default() })
    }

    async fn record_storage(&self, now: Timestamp) -> DirectoryResult<()> {
        let tenants: Vec<TenantId> = self.tables()?.tenants.keys().cloned().collect();
        for tenant in tenants {
            let used = self.storage(&tenant, None).await?;
            self.tables()?.storage_days.entry((tenant, Day::of(now))).or_insert(used);
        }
        Ok(())
    }

    async fn stored_by_day(
        &self,
        tenant: &TenantId,
        from: Day,
        to: Day,
    ) -> DirectoryResult<Vec<(Day, StorageUse)>> {
        let tables = self.tables()?;
        let days = tables.storage_days.range((tenant.clone(), from)..=(tenant.clone(), to));
        Ok(days.map(|((_, day), used)| (*day, *used)).collect())
    }

    async fn expire(&self, now: Timestamp) -> DirectoryResult<bool> {
        let mut tables = self.tables()?;
        tables.claims.retain(|_, row| now.since(row.at) < CLAIM_TTL);
        tables.calls.retain(|_, (_, at)| now.since(*at) < CLAIM_TTL);
        tables.keys.retain(|_, (key, _)| key.expires_at.is_none_or(|end| end > now));
        tables.audit.retain(|_, entry| now.since(entry.at) < AUDIT_TTL);
        Ok(false)
    }
}
