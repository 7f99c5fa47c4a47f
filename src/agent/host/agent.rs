//! The agent of a session: a session keeps the version that it started with until a client moves it to another one.

use super::SessionHost;
use crate::agent::{HarnessAgent, versions::AgentVersions};
use crate::session::{self, OpenError, kernel::Schedule, window::Bounds};
use crate::types::{AgentId, AgentRef, AgentVersion, ErrorCode, Owner, Problem, TenantId, UserId};
use std::rc::Rc;

/// The agent that a host runs.
pub(super) struct Bound {
    pub agent: Rc<HarnessAgent>,
    /// Bounds of the context window.
    pub bounds: Bounds,
    /// Whose version it is; `None` for an agent without versions.
    of: Option<(TenantId, UserId, AgentRef)>,
    /// Whether the agent was deleted.
    is_gone: bool,
}

impl Bound {
    /// An agent without versions.
    pub fn fixed(agent: Rc<HarnessAgent>, bounds: Bounds) -> Self {
        Self { agent, bounds, of: None, is_gone: false }
    }
}

/// Returns what the kernel schedules of an agent.
pub(super) fn schedule(agent: &HarnessAgent) -> Schedule {
    Schedule {
        follow_ups: agent.follow_ups.iter().map(|follow_up| follow_up.name()).collect(),
        intervals: agent.intervals.iter().map(|interval| interval.name()).collect(),
    }
}

impl SessionHost {
    /// Returns the agent.
    pub fn agent(&self) -> Rc<HarnessAgent> {
        Rc::clone(&self.bound.borrow().agent)
    }

    /// Loads the agent of the stored session, if there is one. Every request, alarm and message of another session does
    /// this first. It waits only if this object does not have that version yet.
    ///
    /// # Errors
    /// The version cannot be loaded, or the store fails.
    pub async fn load_agent(&self) -> Result<(), Problem> {
        let Some(versions) = &self.ports.agents else { return Ok(()) };
        // The session may move to another version while one is loaded.
        while let Some((tenant, user, of)) = self.stored_agent()? {
            if self.is_bound(&tenant, &user, &of) && !versions.is_outdated(&tenant, &user, &of) {
                self.renew(versions, &tenant, &user, of);
                return Ok(());
            }
            let agent = versions.version_of_session(&tenant, &user, &of).await?;
            if self.stored_agent()?.is_some_and(|now| now == (tenant.clone(), user.clone(), of.clone())) {
                self.use_version(&tenant, &user, of, agent);
            }
        }
        Ok(())
    }

    /// Reads whether the session's agent was deleted. Each POST does this first. If it cannot be read, the last answer holds.
    pub async fn read_deletion(&self) {
        let Some(versions) = &self.ports.agents else { return };
        let Ok(Some((tenant, _, of))) = self.stored_agent() else { return };
        if let Ok(is_gone) = versions.is_gone(&tenant, &of.id).await {
            self.bound.borrow_mut().is_gone = is_gone;
        }
    }

    fn stored_agent(&self) -> Result<Option<(TenantId, UserId, AgentRef)>, Problem> {
        if let Some(session) = self.session.borrow().as_deref() {
            let meta = &session.state().meta;
            return Ok(Some((meta.tenant.clone(), meta.user.clone(), meta.agent_ref())));
        }
        Ok(session::agent(self.ports.store.as_ref()).map_err(OpenError::from)?)
    }

    /// Loads the agent of a user's session that does not exist yet, in the version that new sessions get.
    ///
    /// # Errors
    /// `unknown_agent`, or `agent_gone` for a deleted agent.
    pub async fn load_new_agent(
        &self,
        tenant: &TenantId,
        user: &UserId,
        agent: &AgentId,
    ) -> Result<(), Problem> {
        let Some(versions) = &self.ports.agents else { return Ok(()) };
        let version = versions.active(tenant, agent).await?;
        self.load(versions, tenant, user, AgentRef { id: agent.clone(), version }).await
    }

    /// Loads the agent of a session that is copied to this object.
    ///
    /// # Errors
    /// The version cannot be loaded.
    pub async fn load_copied_agent(
        &self,
        tenant: &TenantId,
        user: &UserId,
        of: AgentRef,
    ) -> Result<(), Problem> {
        match &self.ports.agents {
            Some(versions) => self.load(versions, tenant, user, of).await,
            None => Ok(()),
        }
    }

    /// Refuses a message to a session whose agent was deleted.
    ///
    /// # Errors
    /// `agent_gone`.
    pub(super) fn check_agent(&self) -> Result<(), Problem> {
        match self.bound.borrow().is_gone {
            true => Err(Problem::new(ErrorCode::AgentGone, "the agent of this session was deleted")),
            false => Ok(()),
        }
    }

    /// Returns a version of the session's agent; `None` is the version of new sessions.
    ///
    /// # Errors
    /// `not_found` for a version that does not exist; `agent_gone`, or a failed store.
    pub async fn find_version(
        &self,
        tenant: &TenantId,
        user: &UserId,
        agent: &AgentId,
        version: Option<AgentVersion>,
    ) -> Result<(AgentVersion, Rc<HarnessAgent>), Problem> {
        let Some(versions) = &self.ports.agents else { return Ok((AgentVersion::FIRST, self.agent())) };
        let version = match version {
            Some(version) => version,
            None => versions.active(tenant, agent).await?,
        };
        let of = AgentRef { id: agent.clone(), version };
        Ok((version, versions.version(tenant, user, &of).await?))
    }

    /// Runs this version of the session's agent from now on. The session must store it in the same step.
    pub fn use_version(&self, tenant: &TenantId, user: &UserId, of: AgentRef, agent: Rc<HarnessAgent>) {
        let (bounds, is_gone) = (agent.bounds(), self.bound.borrow().is_gone);
        self.kernel.borrow_mut().reschedule(schedule(&agent));
        let of = Some((tenant.clone(), user.clone(), of));
        *self.bound.borrow_mut() = Bound { agent, bounds, of, is_gone };
    }

    /// Returns the version of the loaded agent, for a new session of this owner.
    ///
    /// # Errors
    /// The agent of another owner is loaded, because a concurrent request has asked for it. It may have the tools of servers
    /// that only its user may see.
    pub fn loaded_version(&self, owner: &Owner) -> Result<AgentVersion, Problem> {
        match &self.bound.borrow().of {
            None => Ok(AgentVersion::FIRST),
            Some((tenant, user, of))
                if (tenant, user, &of.id) == (&owner.tenant, &owner.user, &owner.agent) =>
            {
                Ok(of.version)
            }
            Some(_) => {
                let detail = "another request is creating this session with another user or agent; try again";
                Err(Problem::unavailable(detail, "the loaded agent is another one"))
            }
        }
    }

    fn is_bound(&self, tenant: &TenantId, user: &UserId, of: &AgentRef) -> bool {
        let bound = self.bound.borrow();
        bound.of.as_ref().is_some_and(|own| own.0 == *tenant && own.1 == *user && own.2 == *of)
    }

    async fn load(
        &self,
        versions: &Rc<dyn AgentVersions>,
        tenant: &TenantId,
        user: &UserId,
        of: AgentRef,
    ) -> Result<(), Problem> {
        if !self.is_bound(tenant, user, &of) {
            let agent = versions.version_of_session(tenant, user, &of).await?;
            self.use_version(tenant, user, of.clone(), agent);
        }
        self.renew(versions, tenant, user, of);
        Ok(())
    }

    /// Uses the newest tools of the loaded version. A running turn keeps those with which it has started.
    fn renew(&self, versions: &Rc<dyn AgentVersions>, tenant: &TenantId, user: &UserId, of: AgentRef) {
        if let Some(work) = Rc::clone(versions).refresh(tenant, user, &of) {
            self.ports.spawner.spawn(work);
        }
        match versions.current(tenant, user, &of) {
            Some(newer) if !Rc::ptr_eq(&newer, &self.agent()) => self.use_version(tenant, user, of, newer),
            _ => {}
        }
    }
}
