//! The agents of a deployment and of its tenants: an agent of the deployment has its settings as first version; a tenant
//! adds versions and agents, which are stored.
//!
//! An isolate builds a version once. It reads which versions are active at most once a minute for each tenant: when a
//! session is created, or a request names an agent that the deployment does not have.

mod built;

use self::built::{Built, BuiltVersions, Servers, consenting};
use super::{
    DEFAULT_AGENT, DEFAULT_USER,
    definition::{self, Definition, Hosts},
    shared_servers::SharedServers,
};
use crate::agent::{AgentVersions, HarnessAgent};
use crate::mcp::{Listings, McpServers};
use crate::ports::{AgentStore, AllowedHosts, Clock};
use crate::types::{
    AgentEntry, AgentId, AgentRef, AgentVersion, ErrorCode, FieldError, Problem, StoredVersion, TenantId,
    TenantLimits, Timestamp, UserId, expiring::Expiring,
};
use crate::workspace::{Layer, Workspaces};
use async_trait::async_trait;
use futures::{FutureExt, future::LocalBoxFuture};
use serde::Serialize;
use serde_json::{Map, Value};
use std::{rc::Rc, time::Duration};

/// How long an isolate caches which agents a tenant has.
const ENTRIES_TTL: Duration = Duration::from_mins(1);
/// Maximum number of tenants whose agents an isolate caches.
const MAX_TENANTS: usize = 1_000;
/// How long an isolate uses what it has read of an agent's shared files.
const SHARED_TTL: Duration = Duration::from_mins(1);
/// How long servers of MCP are not asked again after a refresh has begun, which may be lost with the request that runs it.
const REFRESH_PACE: Duration = Duration::from_mins(1);

/// A version of an agent that can run.
#[derive(Clone)]
pub struct BuiltAgent {
    /// The agent.
    pub agent: Rc<HarnessAgent>,
    /// The workspaces, with the agent's own files.
    pub files: Rc<Workspaces>,
}

/// Builds the agent of a definition with the tools that its servers of MCP have listed, or the agent of the deployment's
/// settings. Fails with an explanation for people.
pub type Build = Box<dyn Fn(Option<Definition>, &Listings) -> Result<BuiltAgent, Problem>>;

/// Builds an agent that fails each turn for this reason; see [`unusable`](super::unusable).
pub type BuildUnusable = Box<dyn Fn(String) -> Result<BuiltAgent, Problem>>;

/// What [`Agents`] needs of a deployment.
pub struct AgentParts {
    /// The store of definitions.
    pub store: Rc<dyn AgentStore>,
    /// The clock.
    pub clock: Rc<dyn Clock>,
    /// The deployment's agents besides `default`.
    pub of_deployment: Vec<AgentId>,
    /// Where HTTP tools may send requests to.
    pub http_tools_allow: AllowedHosts,
    /// The hosts on which kinds of subagents may name remote agents.
    pub remote_agents_allow: AllowedHosts,
    /// Returns the deployment's settings as a definition.
    pub settings: Box<dyn Fn() -> Definition>,
    /// The client of MCP.
    pub mcp: McpServers,
    /// Builds agents.
    pub build: Build,
    /// Builds agents that cannot run.
    pub unusable: BuildUnusable,
}

/// The agents of a deployment and of its tenants.
pub struct Agents {
    parts: AgentParts,
    entries: Expiring<Rc<Vec<AgentEntry>>>,
    built: BuiltVersions,
}

impl Agents {
    /// Creates the agents of a deployment.
    pub fn new(parts: AgentParts) -> Self {
        Self { parts, entries: Expiring::new(MAX_TENANTS), built: BuiltVersions::default() }
    }

    /// Returns the store.
    pub fn store(&self) -> &Rc<dyn AgentStore> {
        &self.parts.store
    }

    /// Returns the client of MCP.
    pub fn mcp(&self) -> &McpServers {
        &self.parts.mcp
    }

    /// Returns the ids of the deployment's agents.
    pub fn of_deployment(&self) -> impl Iterator<Item = AgentId> {
        std::iter::once(DEFAULT_AGENT.into()).chain(self.parts.of_deployment.iter().cloned())
    }

    /// Returns the definition of the deployment's agents: its settings.
    ///
    /// # Errors
    /// If it cannot be written as JSON.
    pub fn deployments_definition(&self) -> Result<Map<String, Value>, Problem> {
        (self.parts.settings)().to_json()
    }

    /// Returns whether the deployment has an agent.
    pub fn is_of_deployment(&self, agent: &AgentId) -> bool {
        **agent == *DEFAULT_AGENT || self.parts.of_deployment.contains(agent)
    }

    /// Returns the agents of a tenant that have stored versions, deleted ones included; up to a minute old.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn entries(&self, tenant: &TenantId) -> Result<Rc<Vec<AgentEntry>>, Problem> {
        let now = self.parts.clock.now();
        if let Some(entries) = self.entries.get(tenant, now) {
            return Ok(entries);
        }
        let entries = Rc::new(self.parts.store.list(tenant).await?);
        self.entries.put(tenant.to_string(), Rc::clone(&entries), now + ENTRIES_TTL, now);
        Ok(entries)
    }

    /// Drops the cached list of a tenant's agents, after a change.
    pub fn forget(&self, tenant: &TenantId) {
        self.entries.remove(tenant);
    }

    /// Lists the agents of a tenant that are not deleted, in the order of their ids, with the versions of new sessions.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn list(&self, tenant: &TenantId) -> Result<Vec<AgentRef>, Problem> {
        let entries = self.entries(tenant).await?;
        let is_stored = |agent: &AgentId| entries.iter().any(|entry| entry.id == *agent);
        let of_deployment = self.of_deployment().filter(|agent| !is_stored(agent));
        let of_deployment = of_deployment.map(|id| AgentRef { id, version: AgentVersion::FIRST });
        let stored = entries.iter().filter(|entry| entry.deleted_at.is_none());
        let stored = stored.map(|entry| AgentRef { id: entry.id.clone(), version: entry.active });
        let mut all: Vec<AgentRef> = of_deployment.chain(stored).collect();
        all.sort();
        all.dedup();
        Ok(all)
    }

    /// Checks that an agent exists and is not deleted. Reads nothing for an agent of the deployment.
    ///
    /// # Errors
    /// As for [`AgentVersions::active`].
    pub async fn check(&self, tenant: &TenantId, agent: &AgentId) -> Result<(), Problem> {
        match self.is_of_deployment(agent) {
            true => Ok(()),
            false => self.active(tenant, agent).await.map(drop),
        }
    }

    /// Returns the faults of a definition for a tenant with these limits.
    ///
    /// # Errors
    /// If the deployment's own agent does not build.
    pub fn faults(&self, definition: &Definition, limits: &TenantLimits) -> Result<Vec<FieldError>, Problem> {
        let base = self.base()?.agent;
        let AgentParts { mcp, http_tools_allow, remote_agents_allow, .. } = &self.parts;
        let hosts =
            Hosts { mcp: mcp.hosts(), http_tools: http_tools_allow, remote_agents: remote_agents_allow };
        let faults = definition::check(definition, &base, limits, &hosts);
        if !faults.is_empty() {
            return Ok(faults);
        }
        // What the checks do not find, such as a mode that names a tool that the filter removes.
        Ok(match (self.parts.build)(Some(definition.clone()), &Listings::default()) {
            Ok(_) => Vec::new(),
            Err(problem) => vec![FieldError { pointer: String::new(), detail: problem.detail }],
        })
    }

    /// Returns the active version of an agent; `None` if the agent has no stored version.
    ///
    /// # Errors
    /// As for [`Agents::built`].
    pub async fn active_built(
        &self,
        tenant: &TenantId,
        agent: &AgentId,
    ) -> Result<Option<BuiltAgent>, Problem> {
        let entries = self.entries(tenant).await?;
        let Some(entry) = entries.iter().find(|entry| entry.id == *agent) else { return Ok(None) };
        let of = AgentRef { id: agent.clone(), version: entry.active };
        // Only its files and settings are used, which are those of all users.
        self.found(tenant, &DEFAULT_USER.into(), &of).await.map(|built| Some(built.agent))
    }

    /// Returns the agent that new sessions get, which may lack the tools of its servers.
    ///
    /// # Errors
    /// As for [`AgentVersions::active`] and [`Agents::built`].
    pub async fn active_agent(
        &self,
        tenant: &TenantId,
        agent: &AgentId,
    ) -> Result<Rc<HarnessAgent>, Problem> {
        let of = AgentRef { id: agent.clone(), version: self.active(tenant, agent).await? };
        self.found(tenant, &DEFAULT_USER.into(), &of).await.map(|built| built.agent.agent)
    }

    /// Returns the version that a session runs: its own, or the active one if its own is no longer stored; see
    /// [`AgentVersions::version_of_session`]. If it has servers of MCP and this process has no lists of their tools, it asks
    /// them first; one that does not list its tools costs at most 10 seconds.
    ///
    /// # Errors
    /// If the store fails, or the deployment's own agent does not build.
    pub async fn built(
        &self,
        tenant: &TenantId,
        user: &UserId,
        of: &AgentRef,
    ) -> Result<BuiltAgent, Problem> {
        let found = self.found(tenant, user, of).await?;
        self.with_tools(tenant, user, found).await
    }

    async fn with_tools(
        &self,
        tenant: &TenantId,
        user: &UserId,
        found: Built,
    ) -> Result<BuiltAgent, Problem> {
        match &found.servers {
            Some(servers) if servers.listings.as_ref().is_none_or(Listings::is_outdated) => {
                self.list_tools(tenant, user, &found, servers).await
            }
            _ => Ok(found.agent),
        }
    }

    /// Asks the servers of a version and of the shared files for their tools, and builds the version with them.
    async fn list_tools(
        &self,
        tenant: &TenantId,
        user: &UserId,
        built: &Built,
        servers: &Servers,
    ) -> Result<BuiltAgent, Problem> {
        let Servers { definition, listings: known, .. } = servers;
        let (of, none) = (&built.of.1, Listings::default());
        let known = known.as_ref().unwrap_or(&none);
        let read = match servers.read_at + SHARED_TTL <= self.parts.clock.now() {
            true => self.shared_servers(tenant, user, of, &built.agent).await,
            false => None,
        };
        // If they cannot be read, the last known ones count.
        let (shared, read_at) = read.unwrap_or_else(|| (Rc::clone(&servers.shared), servers.read_at));
        let mut whole = Definition::clone(definition);
        let left_out = shared.add_to(&mut whole);
        let listings = self.parts.mcp.list((tenant, user), of, &whole.mcp_servers, known).await;
        let listings = listings.with_left_out(left_out);
        let consenting = consenting(&whole, user);
        let agent = match known.is_same(&listings) {
            true => built.agent.clone(),
            false => (self.parts.build)(Some(whole), &listings)?,
        };
        let (definition, asked_at) = (Rc::clone(definition), self.parts.clock.now());
        let servers = Servers { definition, shared, read_at, listings: Some(listings), asked_at };
        self.built.keep(Built {
            of: built.of.clone(),
            user: consenting,
            agent: agent.clone(),
            bytes: built.bytes,
            servers: Some(servers),
        });
        Ok(agent)
    }

    /// Reads the servers of the shared files. Returns the time, too; `None` if they cannot be read.
    async fn shared_servers(
        &self,
        tenant: &TenantId,
        user: &UserId,
        of: &AgentRef,
        agent: &BuiltAgent,
    ) -> Option<(Rc<SharedServers>, Timestamp)> {
        let now = self.parts.clock.now();
        let workspace = agent.files.open(tenant, &of.id, user, None);
        let shared = workspace.layer(Layer::Shared).as_ref();
        let read = SharedServers::read(shared, self.parts.mcp.hosts()).await;
        read.ok().map(|read| (Rc::new(read), now))
    }

    /// Builds the deployment's own agent.
    fn base(&self) -> Result<BuiltAgent, Problem> {
        (self.parts.build)(None, &Listings::default())
    }

    /// Returns the version that a session runs, which may lack the tools of its servers.
    async fn found(&self, tenant: &TenantId, user: &UserId, of: &AgentRef) -> Result<Built, Problem> {
        if let Some(built) = self.stored(tenant, user, of).await? {
            return Ok(built);
        }
        let entries = self.entries(tenant).await?;
        if let Some(entry) = entries.iter().find(|entry| entry.id == of.id) {
            let active = AgentRef { id: of.id.clone(), version: entry.active };
            if let Some(built) = self.stored(tenant, user, &active).await? {
                return Ok(built);
            }
        }
        let why = format!("the agent {:?} does not exist any more", &*of.id);
        let agent = (self.parts.unusable)(why)?;
        Ok(Built { of: (tenant.clone(), of.clone()), user: None, agent, bytes: 0, servers: None })
    }

    /// Returns a version, which may lack the tools of its servers; `None` if it is not stored.
    async fn stored(
        &self,
        tenant: &TenantId,
        user: &UserId,
        of: &AgentRef,
    ) -> Result<Option<Built>, Problem> {
        let key = (tenant.clone(), of.clone());
        if of.version.is_first() && self.is_of_deployment(&of.id) {
            return Ok(Some(Built { of: key, user: None, agent: self.base()?, bytes: 0, servers: None }));
        }
        if let Some(built) = self.built.get(tenant, user, of) {
            return Ok(Some(built));
        }
        let AgentRef { id, version } = of;
        let Some(stored) = self.parts.store.version(tenant, id, *version).await? else { return Ok(None) };
        let bytes = size(&stored.definition);
        let built = match self.build_stored(stored) {
            Ok((agent, definition)) => {
                let read = self.shared_servers(tenant, user, of, &agent).await;
                let (shared, read_at) = read.unwrap_or_default();
                let mut whole = Definition::clone(&definition);
                shared.add_to(&mut whole);
                let user = consenting(&whole, user);
                let asked_at = Timestamp(0);
                let servers = Servers { definition, shared, read_at, listings: None, asked_at };
                Built { of: key, user, agent, bytes, servers: Some(servers) }
            }
            Err(why) => {
                let why = format!(
                    "version {version} of the agent {:?} cannot run in this deployment: {why}",
                    &**id
                );
                Built { of: key, user: None, agent: (self.parts.unusable)(why)?, bytes, servers: None }
            }
        };
        self.built.keep(built.clone());
        Ok(Some(built))
    }

    fn build_stored(&self, stored: StoredVersion) -> Result<(BuiltAgent, Rc<Definition>), String> {
        let all =
            |faults: Vec<FieldError>| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let definition = Definition::parse(stored.definition).map_err(all)?;
        let agent = (self.parts.build)(Some(definition.clone()), &Listings::default());
        Ok((agent.map_err(|problem| problem.detail)?, Rc::new(definition)))
    }
}

/// Returns the size of a definition as JSON, in bytes.
fn size(definition: &impl Serialize) -> u64 {
    serde_json::to_string(definition).map_or(0, |json| json.len() as u64)
}

#[async_trait(?Send)]
impl AgentVersions for Agents {
    async fn active(&self, tenant: &TenantId, agent: &AgentId) -> Result<AgentVersion, Problem> {
        match self.entries(tenant).await?.iter().find(|entry| entry.id == *agent) {
            Some(AgentEntry { deleted_at: Some(_), .. }) => {
                Err(Problem::new(ErrorCode::AgentGone, format!("the agent {:?} was deleted", &**agent)))
            }
            Some(entry) => Ok(entry.active),
            None if self.is_of_deployment(agent) => Ok(AgentVersion::FIRST),
            None => {
                let detail = format!("there is no agent {:?}", &**agent);
                Err(Problem::new(ErrorCode::UnknownAgent, detail))
            }
        }
    }

    async fn is_gone(&self, tenant: &TenantId, agent: &AgentId) -> Result<bool, Problem> {
        match self.check(tenant, agent).await {
            Err(problem) if matches!(problem.code, ErrorCode::AgentGone | ErrorCode::UnknownAgent) => {
                Ok(true)
            }
            checked => checked.map(|()| false),
        }
    }

    async fn version(
        &self,
        tenant: &TenantId,
        user: &UserId,
        of: &AgentRef,
    ) -> Result<Rc<HarnessAgent>, Problem> {
        let found = self.stored(tenant, user, of).await?.ok_or_else(|| Problem::not_found("version"))?;
        self.with_tools(tenant, user, found).await.map(|built| built.agent)
    }

    async fn version_of_session(
        &self,
        tenant: &TenantId,
        user: &UserId,
        of: &AgentRef,
    ) -> Result<Rc<HarnessAgent>, Problem> {
        self.built(tenant, user, of).await.map(|built| built.agent)
    }

    fn is_outdated(&self, tenant: &TenantId, user: &UserId, of: &AgentRef) -> bool {
        let is_outdated = |own: &Built| Some(own.servers.as_ref()?.listings.as_ref()?.is_outdated());
        self.built.read((tenant, user, of), is_outdated).unwrap_or(false)
    }

    fn current(&self, tenant: &TenantId, user: &UserId, of: &AgentRef) -> Option<Rc<HarnessAgent>> {
        self.built.read((tenant, user, of), |own| {
            own.servers.as_ref()?.listings.as_ref().map(|_| Rc::clone(&own.agent.agent))
        })
    }

    fn refresh(
        self: Rc<Self>,
        tenant: &TenantId,
        user: &UserId,
        of: &AgentRef,
    ) -> Option<LocalBoxFuture<'static, ()>> {
        let now = self.parts.clock.now();
        if self.built.read((tenant, user, of), |_| Some(())).is_none() {
            // Others have taken its place, or it is now one for each user.
            let is_settings = of.version.is_first() && self.is_of_deployment(&of.id);
            let (tenant, user, of) = (tenant.clone(), user.clone(), of.clone());
            let build = async move { self.built(&tenant, &user, &of).await.map_or((), drop) };
            return (!is_settings).then(|| build.boxed_local());
        }
        let (built, servers) = self.built.change((tenant, user, of), |own| {
            let servers = own.servers.as_mut()?;
            let is_stale = servers.read_at + SHARED_TTL <= now
                || servers.listings.as_ref().is_none_or(|listings| listings.is_stale(now));
            if !is_stale || servers.asked_at + REFRESH_PACE > now {
                return None;
            }
            servers.asked_at = now;
            let servers = servers.clone();
            Some((own.clone(), servers))
        })?;
        let (tenant, user) = (tenant.clone(), user.clone());
        // If the version cannot be built with the new tools, it keeps the old ones.
        Some(
            async move { self.list_tools(&tenant, &user, &built, &servers).await.map_or((), drop) }
                .boxed_local(),
        )
    }
}
