//! One session and its agent.
//!
//! The host is the shell around the [`SessionKernel`]: it commits messages, decisions and answers, and after
//! each commit performs the effects that the kernel returns, including the alarm. Only the kernel decides
//! when background work runs.

mod account;
mod agent;
mod background;
mod child;
mod children;
mod claims;
mod compact;
mod continuations;
mod copied;
mod delegation;
mod erase;
mod follow_ups;
mod import;
mod inbox;
mod jobs;
mod maintenance;
mod queue;
mod requests;
mod resolved;
mod streams;
pub mod suspensions;
mod ticks;
mod turns;
pub mod webhooks;

use super::{CancelToken, HarnessAgent, RuntimeContext, runtime_state::Prefetch, versions::AgentVersions};
use crate::ports::{
    BlobStore, Clock, Credentials, Directory, Entropy, Inbox, Ledger, Peers, SessionStore, Spawner,
    StoreError, directory::DirectoryError,
};
use crate::session::{
    Artifacts, Draft, OpenError, Session,
    artifacts::puts::Puts,
    hub::{Broadcast, Hub},
    idempotency::ResponseDocument,
    kernel::{Input, Job, SessionKernel},
    window::Bounds,
};
use crate::types::{
    BudgetPatch, CallId, GeneratedId, Part, Problem, SessionMeta, SessionState, StorageQuota, TenantId,
    TenantLimits, TenantPolicy, Timestamp, TurnId, TurnOptions,
    session::{Guidance, Webhook},
};
pub use account::Admittance;
use account::LedgerState;
use agent::Bound;
use futures::{
    FutureExt,
    future::{AbortHandle, LocalBoxFuture, WeakShared},
    lock::Mutex,
};
pub use requests::InFlight;
use std::time::Duration;
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::{Rc, Weak},
};
use webhooks::WebhookSender;

/// How long an erasure waits for writes that have begun.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The configuration of a host.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Bounds of the context window when no context strategy bounds it.
    pub context: Bounds,
    /// The limits of tenants that do not have their own.
    pub limits: TenantLimits,
}

/// The ports of a host.
pub struct HostPorts {
    /// This session's storage.
    pub store: Rc<dyn SessionStore>,
    /// The list of sessions.
    pub directory: Rc<dyn Directory>,
    /// The ledgers of the tenants.
    pub ledger: Rc<dyn Ledger>,
    /// The inboxes of the tenants.
    pub inbox: Rc<dyn Inbox>,
    /// Checks the credentials of streams.
    pub credentials: Rc<dyn Credentials>,
    /// The object store.
    pub blobs: Rc<dyn BlobStore>,
    /// The clock.
    pub clock: Rc<dyn Clock>,
    /// The source of random bytes.
    pub entropy: Rc<dyn Entropy>,
    /// Runs work that outlives requests.
    pub spawner: Rc<dyn Spawner>,
    /// Other sessions.
    pub peers: Rc<dyn Peers>,
    /// The versions of agents, if the platform stores any.
    pub agents: Option<Rc<dyn AgentVersions>>,
    /// Notifies webhooks, if the platform can.
    pub webhooks: Option<Rc<dyn WebhookSender>>,
    /// The platform's own listeners.
    pub broadcast: Option<Rc<dyn Broadcast>>,
}

/// What to do with a message while a turn runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnBusy {
    /// Queue it.
    #[default]
    Queue,
    /// Abort the running turn, clear the queue, and start a turn with it.
    Steer,
    /// Refuse it.
    Reject,
}

/// A message for the agent.
#[derive(Clone, Debug)]
pub struct Post {
    /// The turn's id, chosen by the caller so that it can subscribe before the turn starts.
    pub turn: TurnId,
    /// The content.
    pub parts: Vec<Part>,
    /// Changes to the budget of this turn.
    pub budget: BudgetPatch,
    /// The options of this turn.
    pub options: TurnOptions,
    /// What to do while another turn runs.
    pub on_busy: OnBusy,
    /// The webhook of this turn.
    pub webhook: Option<Webhook>,
    /// The response to store in the same commit, if the request has an Idempotency-Key.
    pub response: Option<ResponseDocument>,
    /// Until when the session holds the slot that it was admitted to; see [`SessionHost::admit`].
    pub slot_until: Option<Timestamp>,
}

/// A running background job.
struct Running {
    /// Weak, because the job holds the host. The spawner keeps the job alive.
    work: WeakShared<LocalBoxFuture<'static, ()>>,
    cancel: CancelToken,
}

/// One session and its agent.
pub struct SessionHost {
    ports: HostPorts,
    blobs: Rc<Puts>,
    bound: RefCell<Bound>,
    config: HostConfig,
    session: RefCell<Option<Rc<Session>>>,
    /// The tenant's policy, for a session that is not stored yet.
    policy: RefCell<TenantPolicy>,
    kernel: RefCell<SessionKernel>,
    /// The turn that runs in this process.
    turn: RefCell<Option<(Rc<RuntimeContext>, AbortHandle)>>,
    /// The reads that hooks have started for the turn whose start is being stored.
    prefetch: RefCell<Option<Prefetch>>,
    jobs: RefCell<BTreeMap<Job, Running>>,
    /// The messages to the tenant's ledger.
    ledger: LedgerState,
    /// When the last notice of this process to the inbox was sent.
    inbox_sent_at: Cell<Timestamp>,
    /// The calls whose children ask to continue, and have sent no other status since.
    asks: RefCell<BTreeSet<CallId>>,
    /// The task that serves the streams of a session.
    streams: RefCell<Option<(Weak<Session>, AbortHandle)>>,
    /// Held while the session is erased.
    erasure: Mutex<()>,
    /// Number of requests of clients in flight.
    in_flight: Rc<Cell<usize>>,
}

impl SessionHost {
    /// Creates a host that has not read its store yet.
    pub fn new(ports: HostPorts, agent: Rc<HarnessAgent>, config: HostConfig) -> Rc<Self> {
        let (blobs, spawner) = (Rc::clone(&ports.blobs), Rc::clone(&ports.spawner));
        let blobs = Rc::new(Puts::new(blobs, spawner, Rc::clone(&ports.clock)));
        Rc::new(Self {
            ports,
            blobs,
            bound: RefCell::new(Bound::fixed(Rc::clone(&agent), config.context)),
            config,
            session: RefCell::new(None),
            policy: RefCell::default(),
            kernel: RefCell::new(SessionKernel::new(agent::schedule(&agent))),
            turn: RefCell::new(None),
            prefetch: RefCell::new(None),
            jobs: RefCell::default(),
            ledger: LedgerState::default(),
            inbox_sent_at: Cell::default(),
            asks: RefCell::default(),
            streams: RefCell::new(None),
            erasure: Mutex::default(),
            in_flight: Rc::default(),
        })
    }

    /// Returns the session's storage.
    pub fn store(&self) -> &Rc<dyn SessionStore> {
        &self.ports.store
    }

    /// Other sessions.
    pub fn peers(&self) -> &Rc<dyn Peers> {
        &self.ports.peers
    }

    /// Returns the clock.
    pub fn clock(&self) -> &Rc<dyn Clock> {
        &self.ports.clock
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        self.ports.clock.now()
    }

    /// Creates an id.
    pub fn new_id<I: GeneratedId>(&self) -> I {
        self.agent().new_id()
    }

    /// Returns the session, or `None` when none is stored. Reads the store once. Starts no work, unlike
    /// [`SessionHost::recover`].
    ///
    /// # Errors
    /// When a newer version has written the session, or the store fails.
    pub fn open(self: &Rc<Self>) -> Result<Option<Rc<Session>>, OpenError> {
        if self.session.borrow().is_none() {
            let opened = Session::open(Rc::clone(&self.ports.store), self.bound.borrow().bounds, self.hub())?;
            if let Some(session) = opened.map(Rc::new) {
                self.adopt(&session);
            }
        }
        Ok(self.session.borrow().clone())
    }

    /// Opens the session, recovers an evicted turn, starts due background jobs, and arms the alarm. Every
    /// request, alarm and message of another session enters here.
    ///
    /// # Errors
    /// When a newer version has written the session, or the store fails.
    pub fn recover(self: &Rc<Self>) -> Result<Option<Rc<Session>>, OpenError> {
        let session = self.open()?;
        if let Some(session) = &session {
            // A caller must not see a turn that nothing runs.
            self.recover_turn(session)?;
        }
        self.enter(Input::Arrived);
        Ok(session)
    }

    /// Creates and stores the session.
    ///
    /// # Errors
    /// When the store fails. No session was created then.
    pub fn create(self: &Rc<Self>, meta: SessionMeta) -> Result<Rc<Session>, StoreError> {
        let session = self.blank(meta);
        session.commit(self.now(), |draft| draft.created(None))?;
        self.adopt_new(&session);
        Ok(session)
    }

    fn hub(&self) -> Hub {
        Hub::new(self.ports.broadcast.clone())
    }

    /// Applies the policy of the session's tenant that a request carries, unless the session has a newer one.
    ///
    /// # Errors
    /// When a changed policy cannot be stored. The caller must then start nothing.
    pub fn apply_tenant_policy(
        self: &Rc<Self>,
        tenant: &TenantId,
        policy: &TenantPolicy,
    ) -> Result<(), Problem> {
        if let Some(session) = self.open()? {
            let changed = {
                let state = session.state();
                state.meta.tenant == *tenant && state.guidance.tenant_policy.is_replaced_by(policy)
            };
            if changed {
                let change = |draft: &mut Draft| draft.set_tenant_policy(policy.clone());
                session.commit_from_outside(self.now(), change).map_err(Problem::from)?;
            }
        }
        let mut own = self.policy.borrow_mut();
        if own.is_replaced_by(policy) {
            own.clone_from(policy);
        }
        Ok(())
    }

    /// Returns the limits of the tenant, those of the stored session or else those of the newest request, and of the agent.
    pub fn tenant_limits(&self) -> TenantLimits {
        match self.session.borrow().as_deref() {
            Some(session) => self.limits_of(session),
            None => {
                let limits = self.policy.borrow().limits.clone().or(&self.config.limits);
                limits.lowered(&self.agent().settings.ceilings)
            }
        }
    }

    /// Returns the limits of the session's tenant and agent.
    fn limits_of(&self, session: &Session) -> TenantLimits {
        let limits = session.state().guidance.tenant_policy.limits.clone().or(&self.config.limits);
        limits.lowered(&self.agent().settings.ceilings)
    }

    /// Checks that the tenant may have one more session, before anything of it is stored. Concurrent new sessions may
    /// exceed the limit by their number.
    ///
    /// # Errors
    /// `quota_exceeded`, or a failed directory.
    pub async fn check_new_session(&self, tenant: &TenantId, limits: &TenantLimits) -> Result<(), Problem> {
        let Some(limit) = limits.sessions.or(self.agent().settings.max_sessions) else { return Ok(()) };
        let used = self.ports.directory.storage(tenant, None).await.map_err(directory_down)?;
        match used.sessions < limit {
            true => Ok(()),
            false => Err(Problem::over_quota(StorageQuota::Sessions)),
        }
    }

    /// Creates a session in memory. Its first commit stores it.
    pub fn blank(&self, meta: SessionMeta) -> Rc<Session> {
        let store = Rc::clone(&self.ports.store);
        Rc::new(Session::create(store, self.blank_state(meta), self.bound.borrow().bounds, self.hub()))
    }

    fn blank_state(&self, meta: SessionMeta) -> SessionState {
        let guidance = Guidance { tenant_policy: self.policy.borrow().clone(), ..Guidance::default() };
        SessionState { guidance: Rc::new(guidance), ..SessionState::new(meta) }
    }

    /// Makes this host serve a stored session.
    fn adopt(self: &Rc<Self>, session: &Rc<Session>) {
        let host = Rc::downgrade(self);
        session.on_commit(move || {
            if let Some(host) = host.upgrade() {
                host.run_due();
            }
        });
        self.kernel.borrow_mut().opened(session);
        *self.session.borrow_mut() = Some(Rc::clone(session));
    }

    /// Returns whether the host serves this copy of the session.
    fn serves(&self, session: &Session) -> bool {
        self.session.borrow().as_ref().is_some_and(|own| std::ptr::eq(own.as_ref(), session))
    }

    /// Returns the session's artifacts and attachments.
    pub fn artifacts(&self, session: &Rc<Session>) -> Rc<Artifacts> {
        let blobs = Rc::clone(&self.blobs);
        Rc::new(Artifacts::new(Rc::clone(session), blobs, Rc::clone(&self.ports.clock)))
    }

    /// Runs `work` to completion, independently of any request.
    pub fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        self.ports.spawner.spawn(work.boxed_local());
    }
}

fn directory_down(error: DirectoryError) -> Problem {
    Problem::unavailable("the directory is unavailable; try again", error.to_string())
}
