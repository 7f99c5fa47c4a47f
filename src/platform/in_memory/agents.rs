//! The store of agents' definitions in memory.

use super::InMemoryDirectory;
use crate::ports::{
    AgentStore, Directory,
    agents::{KEPT_DELETED, KEPT_VERSIONS},
    directory::{DirectoryError, DirectoryResult},
};
use crate::types::{
    AgentEntry, AgentId, AgentSummary, AgentVersion, AuditEntry, StoredVersion, TenantId, Timestamp,
};
use async_trait::async_trait;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

/// The store of agents' definitions in memory.
pub struct InMemoryAgents {
    /// While set, every call fails.
    pub down: Cell<bool>,
    /// Number of calls so far.
    pub calls: Cell<usize>,
    /// Has the audit trail.
    directory: Rc<InMemoryDirectory>,
    agents: RefCell<Agents>,
}

type Agents = BTreeMap<(TenantId, AgentId), (AgentEntry, Vec<StoredVersion>)>;

impl InMemoryAgents {
    /// Creates an empty store that adds rows to the audit trail of this directory.
    pub fn new(directory: Rc<InMemoryDirectory>) -> Self {
        Self { down: Cell::default(), calls: Cell::default(), directory, agents: RefCell::default() }
    }

    fn agents(&self) -> DirectoryResult<std::cell::RefMut<'_, Agents>> {
        self.calls.set(self.calls.get() + 1);
        match self.down.get() {
            true => Err(DirectoryError("switched off".into())),
            false => Ok(self.agents.borrow_mut()),
        }
    }

    /// Changes an agent that is as it was read, and adds the row of the audit trail.
    async fn change(
        &self,
        agent: &AgentId,
        read: Option<&AgentEntry>,
        audit: &AuditEntry,
        change: impl FnOnce(&mut AgentEntry, &mut Vec<StoredVersion>),
    ) -> DirectoryResult<bool> {
        let key = (audit.tenant.clone(), agent.clone());
        {
            let mut agents = self.agents()?;
            if agents.get(&key).map(|(entry, _)| entry) != read {
                return Ok(false);
            }
            let (entry, versions) = agents.entry(key).or_insert_with(|| {
                let (id, first) = (agent.clone(), AgentVersion::FIRST);
                (AgentEntry { id, active: first, newest: first, deleted_at: None }, Vec::new())
            });
            change(entry, versions);
        }
        self.directory.append_audit(std::slice::from_ref(audit)).await?;
        Ok(true)
    }
}

fn summary(entry: &AgentEntry, versions: &[StoredVersion]) -> AgentSummary {
    let size = |stored: &StoredVersion| {
        serde_json::to_string(&stored.definition).map_or(0, |json| json.len() as u64)
    };
    let active = versions.iter().find(|stored| stored.version == entry.active);
    let text = |name| active.and_then(|own| Some(own.definition.get(name)?.as_str()?.to_owned()));
    AgentSummary {
        entry: entry.clone(),
        name: text("name"),
        description: text("description"),
        bytes: versions.iter().map(size).sum(),
    }
}

#[async_trait(?Send)]
impl AgentStore for InMemoryAgents {
    async fn list(&self, tenant: &TenantId) -> DirectoryResult<Vec<AgentEntry>> {
        let agents = self.agents()?;
        let own = agents.iter().filter(|((of, _), _)| of == tenant);
        Ok(own.map(|(_, (entry, _))| entry.clone()).collect())
    }

    async fn summaries(&self, tenant: &TenantId) -> DirectoryResult<Vec<AgentSummary>> {
        let agents = self.agents()?;
        let own = agents.iter().filter(|((of, _), _)| of == tenant);
        Ok(own.map(|(_, (entry, versions))| summary(entry, versions)).collect())
    }

    async fn version(
        &self,
        tenant: &TenantId,
        agent: &AgentId,
        version: AgentVersion,
    ) -> DirectoryResult<Option<StoredVersion>> {
        let agents = self.agents()?;
        let found = agents.get(&(tenant.clone(), agent.clone()));
        Ok(found.and_then(|(_, all)| all.iter().find(|stored| stored.version == version).cloned()))
    }

    async fn versions(
        &self,
        tenant: &TenantId,
        agent: &AgentId,
        before: Option<AgentVersion>,
        limit: usize,
    ) -> DirectoryResult<Vec<StoredVersion>> {
        let agents = self.agents()?;
        let found = agents.get(&(tenant.clone(), agent.clone()));
        let is_listed = |stored: &&StoredVersion| before.is_none_or(|before| stored.version < before);
        let all = found.into_iter().flat_map(|(_, all)| all.iter().rev()).filter(is_listed).take(limit);
        Ok(all.map(|stored| StoredVersion { definition: Default::default(), ..stored.clone() }).collect())
    }

    async fn put(
        &self,
        agent: &AgentId,
        new: &StoredVersion,
        read: Option<&AgentEntry>,
        audit: &AuditEntry,
    ) -> DirectoryResult<bool> {
        self.change(agent, read, audit, |entry, versions| {
            (entry.active, entry.newest, entry.deleted_at) = (new.version, new.version, None);
            versions.push(new.clone());
            versions.drain(..versions.len().saturating_sub(KEPT_VERSIONS));
        })
        .await
    }

    async fn activate(
        &self,
        read: &AgentEntry,
        version: AgentVersion,
        audit: &AuditEntry,
    ) -> DirectoryResult<bool> {
        self.change(&read.id, Some(read), audit, |entry, _| entry.active = version).await
    }

    async fn delete(&self, read: &AgentEntry, now: Timestamp, audit: &AuditEntry) -> DirectoryResult<bool> {
        let delete = |entry: &mut AgentEntry, versions: &mut Vec<StoredVersion>| {
            entry.deleted_at = Some(now);
            versions.retain(|stored| stored.version == entry.active);
        };
        let is_deleted = self.change(&read.id, Some(read), audit, delete).await?;
        let mut agents = self.agents.borrow_mut();
        let deleted = agents.iter().filter(|((tenant, _), _)| *tenant == audit.tenant);
        let mut deleted: Vec<_> =
            deleted.filter_map(|(key, (entry, _))| Some((entry.deleted_at?, key.clone()))).collect();
        deleted.sort();
        deleted.truncate(deleted.len().saturating_sub(KEPT_DELETED));
        deleted.iter().for_each(|(_, key)| drop(agents.remove(key)));
        Ok(is_deleted)
    }

    async fn erase(&self, tenant: &TenantId) -> DirectoryResult<()> {
        self.agents()?.retain(|(of, _), _| of != tenant);
        Ok(())
    }
}
