//! The store of agents' definitions. A version is stored once and never changes; a tenant's row says which is active.

use super::directory::DirectoryResult;
use crate::types::{
    AgentEntry, AgentId, AgentSummary, AgentVersion, AuditEntry, StoredVersion, TenantId, Timestamp,
};
use async_trait::async_trait;

/// Number of versions of an agent that are kept.
pub const KEPT_VERSIONS: usize = 50;
/// Number of deleted agents of a tenant that are kept, with their active versions. The ones that were deleted first are
/// removed.
pub const KEPT_DELETED: usize = 100;

/// The store of agents' definitions. Each change adds its row of the audit trail in the same transaction.
///
/// ```
/// # use edge_harness::ports::{AgentStore, directory::DirectoryResult};
/// # use edge_harness::types::{AgentId, TenantId};
/// /// Returns the ids of the agents that a tenant has not deleted.
/// async fn ids(agents: &dyn AgentStore, tenant: &TenantId) -> DirectoryResult<Vec<AgentId>> {
///     let all = agents.list(tenant).await?.into_iter();
///     Ok(all.filter(|agent| agent.deleted_at.is_none()).map(|agent| agent.id).collect())
/// }
/// ```
#[async_trait(?Send)]
pub trait AgentStore {
    /// Lists the agents of a tenant that have a stored version, deleted ones included, in the order of their ids.
    async fn list(&self, tenant: &TenantId) -> DirectoryResult<Vec<AgentEntry>>;
    /// Lists the same agents as people see them. Reads each active definition.
    async fn summaries(&self, tenant: &TenantId) -> DirectoryResult<Vec<AgentSummary>>;
    /// Returns a version, also of a deleted agent.
    async fn version(
        &self,
        tenant: &TenantId,
        agent: &AgentId,
        version: AgentVersion,
    ) -> DirectoryResult<Option<StoredVersion>>;
    /// Lists the versions of an agent below `before`, newest first, without their definitions.
    async fn versions(
        &self,
        tenant: &TenantId,
        agent: &AgentId,
        before: Option<AgentVersion>,
        limit: usize,
    ) -> DirectoryResult<Vec<StoredVersion>>;
    /// Stores a version, makes it the active one, and deletes all but the newest [`KEPT_VERSIONS`]. Restores a deleted
    /// agent. Returns `false` if the agent is no longer as `read` (`None` for an agent without a stored version), or the
    /// tenant does not exist.
    async fn put(
        &self,
        agent: &AgentId,
        new: &StoredVersion,
        read: Option<&AgentEntry>,
        audit: &AuditEntry,
    ) -> DirectoryResult<bool>;
    /// Makes a version the active one. Returns `false` if the agent is no longer as `read`.
    async fn activate(
        &self,
        read: &AgentEntry,
        version: AgentVersion,
        audit: &AuditEntry,
    ) -> DirectoryResult<bool>;
    /// Marks an agent as deleted, and deletes its versions except the active one. Of the deleted agents, the newest
    /// [`KEPT_DELETED`] are kept. Returns `false` if the agent is no longer as `read`.
    async fn delete(&self, read: &AgentEntry, now: Timestamp, audit: &AuditEntry) -> DirectoryResult<bool>;
    /// Deletes all agents of a tenant with their versions.
    async fn erase(&self, tenant: &TenantId) -> DirectoryResult<()>;
}
