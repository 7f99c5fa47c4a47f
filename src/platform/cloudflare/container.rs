//! Containers as runners: one for each tenant and agent, only with the feature `containers`.
//!
//! The container takes calls as any other runner does: `agentctl runner --agent` in it connects to the inbox. The object here
//! only decides when the container runs. It starts the container when a call for a runner has waited for [`GRACE`] and no
//! other runner has claimed it, and stops it when no call has waited for [`IDLE`].

#![allow(missing_docs, reason = "the platform's macros generate undocumented items")]

use super::{
    inbox::InboxObjects,
    messages::{self, send},
    runtime::{ConsoleLog, WorkerClock},
};
use crate::ports::{
    Clock, Inbox, Log,
    inbox::{InboxError, InboxResult},
};
use crate::types::{
    AgentId, InboxCall, InboxChanges, InboxFilter, InboxKind, InboxNotice, InboxPosition, TenantId,
    Timestamp, WorkspaceKind,
};
use async_trait::async_trait;
use js_sys::{Function, Object, Reflect};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{collections::BTreeMap, panic::AssertUnwindSafe, time::Duration};
use wasm_bindgen::JsCast;
use worker::{Container, DurableObject, Env, Error, Request, Response, Result, State, durable_object};

/// The binding of the objects.
const BINDING: &str = "RUNNER";
/// The secret with the [`Tenants`], as JSON.
const SECRET: &str = "RUNNER_CONTAINERS";
/// The variable with the address of the deployment.
const URL: &str = "PUBLIC_URL";
/// What the names of the tools of runners begin with.
const TOOLS: &str = "local_";
/// How long other runners have to claim a call before a container is started.
const GRACE: Duration = Duration::from_secs(5);
/// How often the object of a running container looks for calls.
const TICK: Duration = Duration::from_mins(1);
/// How long a container runs without a call.
const IDLE: Duration = Duration::from_mins(10);
/// How long a container has to end by itself.
const STOP: Duration = Duration::from_mins(2);
/// Maximum number of calls that are read from the inbox.
const MAX_CALLS: usize = 100;
const SIGTERM: i32 = 15;
/// The key of the object's only value, JSON of [`Served`].
const SERVED: &str = "served";

/// The tenants whose agents have containers.
type Tenants = BTreeMap<TenantId, Grant>;

/// What a tenant's containers serve.
#[derive(Deserialize)]
struct Grant {
    /// A key of the tenant with the scopes `chat` and `read`.
    key: String,
    /// The agents.
    agents: Vec<AgentId>,
}

/// What a container serves.
#[derive(Clone, Serialize, Deserialize)]
struct Served {
    tenant: TenantId,
    agent: AgentId,
    /// When a call last waited.
    used_at: Timestamp,
}

/// Returns the grant of a tenant for an agent.
///
/// # Errors
/// The secret is malformed.
fn granted(env: &Env, tenant: &TenantId, agent: &AgentId) -> Result<Option<Grant>> {
    let Ok(secret) = env.secret(SECRET) else { return Ok(None) };
    let mut tenants: Tenants = serde_json::from_str(&secret.to_string())
        .map_err(|error| Error::RustError(format!("{SECRET} is malformed: {error}")))?;
    Ok(tenants.remove(tenant).filter(|grant| grant.agents.contains(agent)))
}

/// Returns whether a call waits for a runner that has not claimed it.
fn is_free(call: &InboxCall) -> bool {
    is_local(call) && call.call.claim.is_none()
}

/// Returns whether a call is for a runner: it has a tool of runners, or is about the folder of one.
fn is_local(InboxCall { call, .. }: &InboxCall) -> bool {
    // The payload of a tool that a client brings is its arguments, so it never contains them.
    let is_about_folder =
        call.payload["workspace"] == json!(WorkspaceKind::Runner) && call.payload["args"] == call.args;
    call.kind == InboxKind::External && (call.name.starts_with(TOOLS) || is_about_folder)
}

/// The inbox of the tenants, whose calls wake containers.
pub struct WakingInbox {
    /// The inbox.
    pub inbox: InboxObjects,
    /// The bindings of the isolate.
    pub env: Env,
}

impl WakingInbox {
    /// Wakes the containers of agents for whose calls no runner is there yet.
    ///
    /// # Errors
    /// A container could not be woken. A malformed secret is only logged: the call may wait for another runner.
    async fn wake(&self, tenant: &TenantId, notice: &InboxNotice) -> InboxResult<()> {
        let mut agents: Vec<&AgentId> =
            notice.calls.iter().filter(|call| is_free(call)).map(|call| &call.agent).collect();
        agents.sort();
        agents.dedup();
        let mut woken = Ok(());
        for agent in agents {
            let grant = granted(&self.env, tenant, agent);
            if !grant.inspect_err(|error| failed(tenant, error)).is_ok_and(|grant| grant.is_some()) {
                continue;
            }
            // The ids contain no slash.
            let name = format!("{tenant}/{agent}");
            let served = Served { tenant: tenant.clone(), agent: agent.clone(), used_at: WorkerClock.now() };
            let sent = match self.env.durable_object(BINDING) {
                Ok(objects) => send::<()>(&objects, &name, &served).await,
                Err(error) => Err(error.to_string()),
            };
            if let Err(cause) = sent {
                failed(tenant, &Error::RustError(cause.clone()));
                woken = Err(InboxError(cause));
            }
        }
        woken
    }
}

#[async_trait(?Send)]
impl Inbox for WakingInbox {
    async fn notify(&self, tenant: &TenantId, notice: &InboxNotice) -> InboxResult<Option<Timestamp>> {
        let newest = self.inbox.notify(tenant, notice).await?;
        if newest.is_none() {
            // The session notifies again.
            self.wake(tenant, notice).await?;
        }
        Ok(newest)
    }

    async fn list(
        &self,
        tenant: &TenantId,
        filter: &InboxFilter,
        after: u64,
        limit: usize,
    ) -> InboxResult<Vec<(u64, InboxCall)>> {
        self.inbox.list(tenant, filter, after, limit).await
    }

    async fn changes(
        &self,
        tenant: &TenantId,
        filter: &InboxFilter,
        position: InboxPosition,
        wait: Duration,
    ) -> InboxResult<InboxChanges> {
        self.inbox.changes(tenant, filter, position, wait).await
    }

    async fn erase(&self, tenant: &TenantId) -> InboxResult<()> {
        self.inbox.erase(tenant).await
    }
}

/// The Durable Object of a container.
#[durable_object]
pub struct RunnerContainer {
    inner: AssertUnwindSafe<Inner>,
}

struct Inner {
    state: State,
    env: Env,
}

impl DurableObject for RunnerContainer {
    fn new(state: State, env: Env) -> Self {
        Self { inner: AssertUnwindSafe(Inner { state, env }) }
    }

    /// Notes that a call waits. The alarm then decides.
    async fn fetch(&self, mut request: Request) -> Result<Response> {
        let Inner { state, .. } = &*self.inner;
        let storage = state.storage();
        storage.put(SERVED, request.text().await?).await?;
        let soon = WorkerClock.now() + GRACE;
        if storage.get_alarm().await?.is_none_or(|at| at > soon.0 as i64) {
            storage.set_alarm(GRACE).await?;
        }
        Response::ok("null")
    }

    async fn alarm(&self) -> Result<Response> {
        let Inner { state, .. } = &*self.inner;
        let storage = state.storage();
        let Some(text) = storage.get::<String>(SERVED).await? else { return Response::empty() };
        let served: Served = messages::of_json(&text)?;
        let goes_on = self.inner.tend(&served).await.unwrap_or_else(|error| {
            failed(&served.tenant, &error);
            true
        });
        // A call that has come since has set the next alarm.
        let is_set = storage.get_alarm().await?.is_some();
        if goes_on && !is_set {
            storage.set_alarm(TICK).await?;
        } else if !is_set {
            // Nothing of the tenant stays here.
            storage.delete(SERVED).await?;
        }
        Response::empty()
    }
}

impl Inner {
    /// Starts or stops the container, as the inbox demands. Returns whether to look again.
    async fn tend(&self, served: &Served) -> Result<bool> {
        let Served { tenant, agent, used_at } = served;
        let container = self.state.container().ok_or_else(|| {
            Error::RustError(
                "the object has no container; see the section `containers` of wrangler.toml".into(),
            )
        })?;
        let Some(grant) = granted(&self.env, tenant, agent)? else {
            if container.running() {
                container.destroy(None).await?;
            }
            return Ok(false);
        };
        let calls = self.calls(tenant, agent).await?;
        let now = WorkerClock.now();
        if !calls.is_empty() {
            let served = Served { used_at: now, ..served.clone() };
            self.state.storage().put(SERVED, serde_json::to_string(&served)?).await?;
        }
        if !container.running() {
            if calls.iter().any(is_free) {
                self.start(&container, agent, &grant)?;
                return Ok(true);
            }
            // The claim of another runner may end.
            return Ok(!calls.is_empty());
        }
        if calls.is_empty() && *used_at + IDLE + STOP <= now {
            container.destroy(None).await?;
        } else if calls.is_empty() && *used_at + IDLE <= now {
            container.signal(SIGTERM)?;
        }
        Ok(true)
    }

    /// Returns the calls that wait for a runner, or for the result of one.
    async fn calls(&self, tenant: &TenantId, agent: &AgentId) -> Result<Vec<InboxCall>> {
        let kind = Some(InboxKind::External);
        let filter = InboxFilter { agent: Some(agent.clone()), kind, ..InboxFilter::default() };
        let inbox = InboxObjects(self.env.durable_object("TENANT")?);
        let listed = inbox.list(tenant, &filter, 0, MAX_CALLS).await;
        let listed = listed.map_err(|error| Error::RustError(error.to_string()))?;
        Ok(listed.into_iter().map(|(_, call)| call).filter(is_local).collect())
    }

    fn start(&self, container: &Container, agent: &AgentId, grant: &Grant) -> Result<()> {
        let url = self.env.var(URL)?.to_string();
        let variables = Object::new();
        for (name, value) in
            [("EDGE_HARNESS_URL", url.as_str()), ("EDGE_HARNESS_KEY", &grant.key), ("RUNNER_AGENT", agent)]
        {
            Reflect::set(&variables, &name.into(), &value.into())?;
        }
        let options = Object::new();
        Reflect::set(&options, &"env".into(), &variables)?;
        Reflect::set(&options, &"enableInternet".into(), &true.into())?;
        // `Container::start` of the crate passes the variables as a `Map`, whose entries the platform does not read.
        let start: Function = Reflect::get(container.as_ref(), &"start".into())?.dyn_into()?;
        start.call1(container.as_ref(), &options)?;
        Ok(())
    }
}

fn failed(tenant: &TenantId, error: &Error) {
    ConsoleLog
        .error(&json!({ "event": "runner_container.failed", "tenant": tenant, "cause": error.to_string() }));
}
