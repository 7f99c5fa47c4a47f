//! Where sessions get the versions of their agents from.

use super::HarnessAgent;
use crate::types::{AgentId, AgentRef, AgentVersion, Problem, TenantId, UserId};
use async_trait::async_trait;
use futures::future::LocalBoxFuture;
use std::rc::Rc;

/// The versions of all agents, as sessions of a user run them. A version never changes, with two exceptions. The first version of an agent of the
/// deployment has the deployment's settings. And servers of MCP may change their tools.
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
    /// `not_found` for a version that is not stored, or a failed store.
    async fn version(
        &self,
        tenant: &TenantId,
        user: &UserId,
        of: &AgentRef,
    ) -> Result<Rc<HarnessAgent>, Problem>;

    /// Returns the version that a session runs: its own, or the active one if its own is no longer stored. If the agent does
    /// not exist any more, it fails each turn.
    ///
    /// # Errors
    /// A failed store.
    async fn version_of_session(
        &self,
        tenant: &TenantId,
        user: &UserId,
        of: &AgentRef,
    ) -> Result<Rc<HarnessAgent>, Problem>;

    /// Returns a version as it is built now, if this process has built it and its tools can change.
    fn current(&self, _tenant: &TenantId, _user: &UserId, _of: &AgentRef) -> Option<Rc<HarnessAgent>> {
        None
    }

    /// Returns whether a version has to be loaded again before the next turn, because the user has just connected a server, or
    /// a server has said that its tools have changed.
    fn is_outdated(&self, _tenant: &TenantId, _user: &UserId, _of: &AgentRef) -> bool {
        false
    }

    /// Returns the work that brings the tools of a version up to date, if they may be out of date. The caller runs it,
    /// without waiting for it.
    fn refresh(
        self: Rc<Self>,
        _tenant: &TenantId,
        _user: &UserId,
        _of: &AgentRef,
    ) -> Option<LocalBoxFuture<'static, ()>> {
        None
    }
}
