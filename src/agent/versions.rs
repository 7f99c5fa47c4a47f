//! Where sessions get the versions of their agents from.

use super::HarnessAgent;
use crate::types::{AgentId, AgentVersion, Problem, TenantId};
use async_trait::async_trait;
use std::rc::Rc;

/// The versions of all agents. A version never changes, except the first version of an agent of the deployment: it has
/// the deployment's settings.
#[async_trait(?Send)]
pub trait AgentVersions {
    /// Returns the version that new sessions of the tenant get.
    ///
    /// # Errors
    /// `unknown_agent`, `agent_gone` for a deleted agent, or a failed store.
    async fn active(&self, tenant: &TenantId, agent: &AgentId) -> Result<AgentVersion, Problem>;

    /// Returns whether an agent was deleted.
    ///
    /// # Errors
    /// A failed store.
    async fn is_gone(&self, tenant: &TenantId, agent: &AgentId) -> Result<bool, Problem>;

    /// Returns a version of an agent, which may be deleted.
    ///
    /// # Errors
    /// `not_found` for a version that does not exist, or a failed store.
    async fn version(
        &self,
        tenant: &TenantId,
        agent: &AgentId,
        version: AgentVersion,
    ) -> Result<Rc<HarnessAgent>, Problem>;
}
