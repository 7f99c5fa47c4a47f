//! The agents of tenants (`migrations/0022_agents.sql`), in the root database. Each change is one batch with its row of the
//! audit trail; the second statement returns a row if the change was made.

use super::{
    Rows, Sql, Statement, Value,
    audit::{RECORDED, recorded, with_change},
    json, read,
};
use crate::ports::{
    AgentStore,
    agents::{KEPT_DELETED, KEPT_VERSIONS},
    directory::{DirectoryError, DirectoryResult},
};
use crate::types::{
    AgentEntry, AgentId, AgentSummary, AgentVersion, AuditEntry, FieldError, StoredVersion, TenantId,
    Timestamp, json,
};
use async_trait::async_trait;
use serde::Deserialize;

/// The store of agents' definitions in the root database.
pub struct SqlAgents<S>(pub S);

impl<S: Sql> SqlAgents<S> {
    async fn batch(&self, statements: &[Statement<'_>]) -> DirectoryResult<Vec<S::Rows>> {
        Ok(self.0.batch(statements).await?)
    }

    /// Makes a change. Returns whether it was made.
    async fn change(&self, batch: Vec<Statement<'_>>) -> DirectoryResult<bool> {
        #[derive(Deserialize)]
        struct Done {}
        let results = self.batch(&batch).await?;
        results.get(1).map_or(Ok(false), |rows| Ok(!rows.read::<Done>()?.is_empty()))
    }
}

/// The condition that an agent is as it was read, and its parameters, which start at `?2`. A tenant that is being deleted
/// gets no agents; the tenant of development has no row.
fn unchanged<'a>(
    tenant: &'a TenantId,
    agent: &'a AgentId,
    read: Option<&AgentEntry>,
) -> (&'static str, Vec<Value<'a>>) {
    let mut args: Vec<Value<'a>> = vec![tenant.as_str().into(), agent.as_str().into()];
    let Some(read) = read else {
        let is_new = "NOT EXISTS (SELECT 1 FROM agents WHERE tenant = ?2 AND id = ?3) \
                      AND NOT EXISTS (SELECT 1 FROM tenants WHERE id = ?2 AND deleted_at IS NOT NULL)";
        return (is_new, args);
    };
    args.extend([u64::from(read.active.0).into(), u64::from(read.newest.0).into()]);
    args.push(read.deleted_at.map_or(Value::Null, Value::from));
    let is_same = "EXISTS (SELECT 1 FROM agents WHERE tenant = ?2 AND id = ?3 AND active = ?4 AND newest = ?5 \
                   AND deleted_at IS ?6) \
                   AND NOT EXISTS (SELECT 1 FROM tenants WHERE id = ?2 AND deleted_at IS NOT NULL)";
    (is_same, args)
}

#[derive(Deserialize)]
struct EntryRow {
    id: AgentId,
    active: f64,
    newest: f64,
    deleted_at: Option<f64>,
}

#[derive(Deserialize)]
struct SummaryRow {
    #[serde(flatten)]
    entry: EntryRow,
    bytes: Option<f64>,
    name: Option<String>,
    description: Option<String>,
}

impl From<EntryRow> for AgentEntry {
    fn from(row: EntryRow) -> Self {
        let EntryRow { id, active, newest, deleted_at } = row;
        Self { id, active: version(active), newest: version(newest), deleted_at: deleted_at.map(time) }
    }
}

#[derive(Deserialize)]
struct VersionRow {
    version: f64,
    definition: String,
    created_at: f64,
    created_by: String,
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small whole number")]
fn version(number: f64) -> AgentVersion {
    AgentVersion(number as u32)
}

fn time(number: f64) -> Timestamp {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number below 2^53")]
    Timestamp(number as u64)
}

impl VersionRow {
    fn read(self) -> DirectoryResult<StoredVersion> {
        let broken = |error: FieldError| DirectoryError(format!("a stored version is not JSON: {error}"));
        Ok(StoredVersion {
            version: version(self.version),
            definition: json::from_str(&self.definition).map_err(broken)?,
            created_at: time(self.created_at),
            created_by: json::from_str(&self.created_by).map_err(broken)?,
        })
    }
}

#[async_trait(?Send)]
impl<S: Sql> AgentStore for SqlAgents<S> {
    async fn list(&self, tenant: &TenantId) -> DirectoryResult<Vec<AgentEntry>> {
        let sql = "SELECT id, active, newest, deleted_at FROM agents WHERE tenant = ?1 ORDER BY id";
        let rows = self.batch(&[Statement::new(sql, [tenant.as_str().into()])]).await?;
        Ok(read::<EntryRow>(&rows, 0)?.into_iter().map(AgentEntry::from).collect())
    }

    async fn summaries(&self, tenant: &TenantId) -> DirectoryResult<Vec<AgentSummary>> {
        let sql = "SELECT id, active, newest, deleted_at, definition ->> 'name' AS name, \
                   definition ->> 'description' AS description, (SELECT sum(own.bytes) FROM agent_versions AS own \
                   WHERE own.tenant = agents.tenant AND own.agent = agents.id) AS bytes \
                   FROM agents LEFT JOIN agent_versions AS v ON v.tenant = agents.tenant AND v.agent = agents.id \
                   AND v.version = agents.active WHERE agents.tenant = ?1 ORDER BY id";
        let rows = self.batch(&[Statement::new(sql, [tenant.as_str().into()])]).await?;
        let summary = |row: SummaryRow| AgentSummary {
            entry: row.entry.into(),
            name: row.name,
            description: row.description,
            bytes: time(row.bytes.unwrap_or_default()).0,
        };
        Ok(read::<SummaryRow>(&rows, 0)?.into_iter().map(summary).collect())
    }

    async fn version(
        &self,
        tenant: &TenantId,
        agent: &AgentId,
        version: AgentVersion,
    ) -> DirectoryResult<Option<StoredVersion>> {
        let sql = "SELECT version, definition, created_at, created_by FROM agent_versions \
                   WHERE tenant = ?1 AND agent = ?2 AND version = ?3";
        let args = [tenant.as_str().into(), agent.as_str().into(), u64::from(version.0).into()];
        let rows = self.batch(&[Statement::new(sql, args)]).await?;
        read::<VersionRow>(&rows, 0)?.into_iter().next().map(VersionRow::read).transpose()
    }

    async fn versions(
        &self,
        tenant: &TenantId,
        agent: &AgentId,
        before: Option<AgentVersion>,
        limit: usize,
    ) -> DirectoryResult<Vec<StoredVersion>> {
        let sql = format!(
            "SELECT version, '{{}}' AS definition, created_at, created_by FROM agent_versions \
             WHERE tenant = ?1 AND agent = ?2 AND version < ?3 ORDER BY version DESC LIMIT {limit}"
        );
        let before = u64::from(before.map_or(u32::MAX, |version| version.0));
        let args = [tenant.as_str().into(), agent.as_str().into(), before.into()];
        let rows = self.batch(&[Statement::new(sql, args)]).await?;
        read::<VersionRow>(&rows, 0)?.into_iter().map(VersionRow::read).collect()
    }

    async fn put(
        &self,
        agent: &AgentId,
        new: &StoredVersion,
        read: Option<&AgentEntry>,
        audit: &AuditEntry,
    ) -> DirectoryResult<bool> {
        let (id, number) = (Value::from(agent.as_str()), Value::from(u64::from(new.version.0)));
        let definition = json(&new.definition)?;
        let bytes = definition.len() as u64;
        let entry = format!(
            "INSERT INTO agents (tenant, id, active, newest, deleted_at) SELECT ?1, ?3, ?4, ?4, NULL WHERE {RECORDED} \
             ON CONFLICT (tenant, id) DO UPDATE SET active = excluded.active, newest = excluded.newest, deleted_at = NULL \
             RETURNING 1 AS done"
        );
        let row = format!(
            "INSERT INTO agent_versions (tenant, agent, version, definition, bytes, created_at, created_by) \
             SELECT ?1, ?3, ?4, ?5, ?6, ?7, ?8 WHERE {RECORDED}"
        );
        let created_by = json(&new.created_by)?.into();
        let args = vec![
            id.clone(),
            number.clone(),
            definition.into(),
            bytes.into(),
            new.created_at.into(),
            created_by,
        ];
        let old = format!(
            "DELETE FROM agent_versions WHERE tenant = ?1 AND agent = ?3 AND {RECORDED} AND version NOT IN \
             (SELECT version FROM agent_versions WHERE tenant = ?1 AND agent = ?3 ORDER BY version DESC LIMIT {KEPT_VERSIONS})"
        );
        let condition = unchanged(&audit.tenant, agent, read);
        let mut batch = with_change(audit, condition, (entry, vec![id.clone(), number]))?;
        batch.extend([recorded(audit, row, args), recorded(audit, old, vec![id])]);
        self.change(batch).await
    }

    async fn activate(
        &self,
        read: &AgentEntry,
        version: AgentVersion,
        audit: &AuditEntry,
    ) -> DirectoryResult<bool> {
        let sql = format!(
            "UPDATE agents SET active = ?4 WHERE tenant = ?1 AND id = ?3 AND {RECORDED} RETURNING 1 AS done"
        );
        let args = vec![read.id.as_str().into(), u64::from(version.0).into()];
        let condition = unchanged(&audit.tenant, &read.id, Some(read));
        self.change(with_change(audit, condition, (sql, args))?).await
    }

    async fn delete(&self, read: &AgentEntry, now: Timestamp, audit: &AuditEntry) -> DirectoryResult<bool> {
        let id = Value::from(read.id.as_str());
        let sql = format!(
            "UPDATE agents SET deleted_at = ?4 WHERE tenant = ?1 AND id = ?3 AND {RECORDED} RETURNING 1 AS done"
        );
        let old = format!(
            "DELETE FROM agent_versions WHERE tenant = ?1 AND agent = ?3 AND {RECORDED} AND version <> ?4"
        );
        let condition = unchanged(&audit.tenant, &read.id, Some(read));
        let mut batch = with_change(audit, condition, (sql, vec![id.clone(), now.into()]))?;
        batch.push(recorded(audit, old, vec![id, u64::from(read.active.0).into()]));
        let kept = format!(
            "DELETE FROM agents WHERE tenant = ?1 AND {RECORDED} AND deleted_at IS NOT NULL AND id NOT IN (SELECT id \
             FROM agents WHERE tenant = ?1 AND deleted_at IS NOT NULL ORDER BY deleted_at DESC, id DESC LIMIT {KEPT_DELETED})"
        );
        let orphans = format!(
            "DELETE FROM agent_versions WHERE tenant = ?1 AND {RECORDED} \
             AND agent NOT IN (SELECT id FROM agents WHERE tenant = ?1)"
        );
        batch.extend([kept, orphans].map(|sql| recorded(audit, sql, vec![])));
        self.change(batch).await
    }

    async fn erase(&self, tenant: &TenantId) -> DirectoryResult<()> {
        let tables = ["agents", "agent_versions"];
        let erase = |table| {
            Statement::new(format!("DELETE FROM {table} WHERE tenant = ?1"), [tenant.as_str().into()])
        };
        self.batch(&tables.map(erase)).await.map(drop)
    }
}
