//! The versions of agents that a process has built.

use super::BuiltAgent;
use crate::mcp::{Listings, McpServer};
use crate::standard::{definition::Definition, shared_servers::SharedServers};
use crate::types::{AgentRef, TenantId, Timestamp, UserId};
use std::{cell::RefCell, collections::VecDeque, rc::Rc};

/// Maximum number of versions that an isolate caches.
const MAX_BUILT: usize = 64;
/// Maximum size of the definitions of cached versions, in bytes (8 MiB). A built agent has a few copies of its definition.
const MAX_BUILT_BYTES: u64 = 8 << 20;

/// A version that this process has built.
#[derive(Clone)]
pub(super) struct Built {
    pub of: (TenantId, AgentRef),
    /// The user whose consent its servers of MCP need, if one of them needs it.
    pub user: Option<UserId>,
    pub agent: BuiltAgent,
    /// The size of its definition.
    pub bytes: u64,
    pub servers: Option<Servers>,
}

/// The servers of MCP of a version, and of the agent's shared files.
#[derive(Clone)]
pub(super) struct Servers {
    /// As it was stored.
    pub definition: Rc<Definition>,
    pub shared: Rc<SharedServers>,
    /// When the shared files were read.
    pub read_at: Timestamp,
    /// What the servers have listed; `None` before the first session needs it.
    pub listings: Option<Listings>,
    /// When the last refresh has begun.
    pub asked_at: Timestamp,
}

impl Built {
    /// Returns whether sessions of a user run it.
    fn is(&self, tenant: &TenantId, user: &UserId, of: &AgentRef) -> bool {
        self.of.0 == *tenant && self.of.1 == *of && self.user.as_ref().is_none_or(|own| own == user)
    }
}

/// Returns the user if a server of the definition needs consent.
pub(super) fn consenting(definition: &Definition, user: &UserId) -> Option<UserId> {
    let asks = definition.mcp_servers.values().any(McpServer::asks_for_consent);
    asks.then(|| user.clone())
}

/// The newest versions.
#[derive(Default)]
pub(super) struct BuiltVersions(RefCell<VecDeque<Built>>);

impl BuiltVersions {
    /// Returns a version that this process has built.
    pub fn get(&self, tenant: &TenantId, user: &UserId, of: &AgentRef) -> Option<Built> {
        self.read((tenant, user, of), |built| Some(built.clone()))
    }

    /// Reads from a version that this process has built.
    pub fn read<T>(
        &self,
        (tenant, user, of): (&TenantId, &UserId, &AgentRef),
        read: impl FnOnce(&Built) -> Option<T>,
    ) -> Option<T> {
        read(self.0.borrow().iter().find(|built| built.is(tenant, user, of))?)
    }

    /// Keeps a version, in place of an earlier build: also of one for all users, if it is now for each user, and of those for
    /// each user, if it is now for all.
    pub fn keep(&self, built: Built) {
        let mut all = self.0.borrow_mut();
        let is_of_another =
            |known: &Built| known.user.is_some() && built.user.is_some() && known.user != built.user;
        all.retain(|known| known.of != built.of || is_of_another(known));
        all.push_front(built);
        let mut bytes = 0;
        let fits = |built: &&Built| {
            bytes += built.bytes;
            bytes <= MAX_BUILT_BYTES
        };
        let kept = all.iter().take_while(fits).count().clamp(1, MAX_BUILT);
        all.truncate(kept);
    }

    /// Changes a version that this process has built.
    pub fn change<T>(
        &self,
        (tenant, user, of): (&TenantId, &UserId, &AgentRef),
        change: impl FnOnce(&mut Built) -> Option<T>,
    ) -> Option<T> {
        change(self.0.borrow_mut().iter_mut().find(|built| built.is(tenant, user, of))?)
    }
}
