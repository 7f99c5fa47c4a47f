//! The agents of a deployment and of its tenants: an agent of the deployment has its settings as first version; a tenant
//! adds versions and agents, which are stored.
//!
//! An isolate builds a version once. It reads which versions are active at most once a minute for each tenant, and only
//! when it needs to know: when a session is created, or a request names an agent that the deployment does not have.

use super::{
    DEFAULT_AGENT,
    definition::{self, Definition},
};
use crate::agent::{AgentVersions, HarnessAgent};
use crate::ports::{AgentStore, Clock};
use crate::types::{
    AgentEntry, AgentId, AgentRef, AgentVersion, ErrorCode, FieldError, Problem, StoredVersion, TenantId,
    expiring::Expiring,
};
use crate::workspace::Workspaces;
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::{cell::RefCell, collections::VecDeque, rc::Rc, time::Duration};

/// How long an isolate trusts what it knows about the agents of a tenant.
const ENTRIES_TTL: Duration = Duration::from_mins(1);
/// Maximum number of tenants whose agents an isolate knows.
const MAX_TENANTS: usize = 1_000;
/// Maximum number of versions that an isolate keeps built.
const MAX_BUILT: usize = 64;

/// A version of an agent that can run.
#[derive(Clone)]
pub struct BuiltAgent {
    /// The agent.
    pub agent: Rc<HarnessAgent>,
    /// The workspaces, with the agent's own files.
    pub files: Rc<Workspaces>,
}

/// Builds the agent of a definition, or that of the deployment's settings. Fails with an explanation for people.
pub type Build = Box<dyn Fn(Option<Definition>) -> Result<BuiltAgent, Problem>>;

/// Builds an agent without tools, each turn of which fails for this reason.
pub type BuildUnusable = Box<dyn Fn(String) -> Result<BuiltAgent, Problem>>;

/// What [`Agents`] needs of a deployment.
pub struct AgentParts {
    /// The store of definitions.
    pub store: Rc<dyn AgentStore>,
    /// The clock.
    pub clock: Rc<dyn Clock>,
    /// The deployment's agents besides `default`.
    pub of_deployment: Vec<AgentId>,
    /// Returns the deployment's settings as a definition.
    pub settings: Box<dyn Fn() -> Definition>,
    /// Builds agents.
    pub build: Build,
    /// Builds agents that cannot run.
    pub unusable: BuildUnusable,
}

/// The agents of a deployment and of its tenants.
pub struct Agents {
    parts: AgentParts,
    entries: Expiring<Rc<Vec<AgentEntry>>>,
    built: RefCell<VecDeque<((TenantId, AgentRef), BuiltAgent)>>,
}

impl Agents {
    /// Creates the agents of a deployment.
    pub fn new(parts: AgentParts) -> Self {
        Self { parts, entries: Expiring::new(MAX_TENANTS), built: RefCell::default() }
    }

    /// Returns the store.
    pub fn store(&self) -> &Rc<dyn AgentStore> {
        &self.parts.store
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
        match serde_json::to_value((self.parts.settings)()) {
            Ok(Value::Object(json)) => Ok(json),
            Ok(_) => Err(Problem::internal("a definition is not an object")),
            Err(error) => Err(Problem::internal(error.to_string())),
        }
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

    /// Forgets what is known about the agents of a tenant, after a change.
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

    /// Returns the faults of a definition.
    ///
    /// # Errors
    /// If the deployment's own agent does not build.
    pub fn faults(&self, definition: &Definition) -> Result<Vec<FieldError>, Problem> {
        let base = (self.parts.build)(None)?.agent;
        let faults = definition::check(definition, &base);
        if !faults.is_empty() {
            return Ok(faults);
        }
        // What the checks do not find, such as a mode that names a tool that the filter removes.
        Ok(match (self.parts.build)(Some(definition.clone())) {
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
        self.built(tenant, &of).await.map(Some)
    }

    /// Returns a version that can run. A version that is no longer stored is replaced by the active one.
    ///
    /// # Errors
    /// If the store fails, or the deployment's own agent does not build.
    pub async fn built(&self, tenant: &TenantId, of: &AgentRef) -> Result<BuiltAgent, Problem> {
        if of.version.is_first() && self.is_of_deployment(&of.id) {
            return (self.parts.build)(None);
        }
        let key = (tenant.clone(), of.clone());
        if let Some((_, built)) = self.built.borrow().iter().find(|(known, _)| *known == key) {
            return Ok(built.clone());
        }
        let AgentRef { id, version } = of;
        let stored = match self.parts.store.version(tenant, id, *version).await? {
            Some(stored) => Some(stored),
            None => match self.entries(tenant).await?.iter().find(|entry| entry.id == *id) {
                Some(entry) => self.parts.store.version(tenant, id, entry.active).await?,
                None => None,
            },
        };
        let built = match stored.map(|stored| self.build_stored(stored)) {
            Some(Ok(built)) => built,
            Some(Err(why)) => {
                let why = format!(
                    "version {version} of the agent {:?} cannot run in this deployment: {why}",
                    &**id
                );
                (self.parts.unusable)(why)?
            }
            None => (self.parts.unusable)(format!("the agent {:?} does not exist any more", &**id))?,
        };
        let mut all = self.built.borrow_mut();
        all.push_front((key, built.clone()));
        all.truncate(MAX_BUILT);
        Ok(built)
    }

    fn build_stored(&self, stored: StoredVersion) -> Result<BuiltAgent, String> {
        let all =
            |faults: Vec<FieldError>| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let definition = Definition::parse(stored.definition).map_err(all)?;
        (self.parts.build)(Some(definition)).map_err(|problem| problem.detail)
    }
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
        agent: &AgentId,
        version: AgentVersion,
    ) -> Result<Rc<HarnessAgent>, Problem> {
        let of = AgentRef { id: agent.clone(), version };
        self.built(tenant, &of).await.map(|built| built.agent)
    }
}
