//! A session's object: instances that are evicted, and a disk and an alarm that survive.

use super::{World, accounts::Accounts, inboxes::Inboxes};
use crate::{
    disk::{Disk, DiskHandle},
    sched::SimClock,
};
use async_trait::async_trait;
use edge_harness::agent::{Bounds, HostConfig, SessionHost, host::HostPorts};
use edge_harness::platform::in_memory::InMemoryCredentials;
use edge_harness::ports::{
    PeerError, PeerRequest, PeerResponse, Peers, ReaderRequest, SessionEraser, SessionReader,
    SessionResponse, Spawner,
};
use edge_harness::standard::ContextSettings;
use edge_harness::types::{
    Acknowledgement, CallId, ChildStatus, Imported, Parent, Principal, Problem, SessionId,
    SessionPermissions, Snapshot, TenantId, Timestamp, time::millis,
};
use futures::{channel::oneshot, future::LocalBoxFuture};
use serde_json::Value;
use std::time::Duration;
use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    task::Waker,
};

/// Delay after which the platform retries a failed alarm, in milliseconds.
const ALARM_RETRY_MS: u64 = 2_000;
/// Maximum number of messages that a model is shown.
const CONTEXT_MESSAGES: usize = 100;

/// A policy or the permissions of a parent, sent to an object.
pub struct Received {
    /// The version of the policy.
    pub version: u64,
    /// The permissions of the parent's session, and when it read them.
    pub parents: Option<(Timestamp, SessionPermissions)>,
    /// When it was sent.
    pub sent: u64,
    /// When a response said that it has arrived.
    pub arrived: Cell<Option<u64>>,
}

/// A session's object.
pub struct Node {
    /// Its index in the world, which is also the index of its session in the scenario, if there is one.
    pub place: usize,
    pub tenant: TenantId,
    pub session: SessionId,
    /// The index of the session whose texts it contains: a fork contains those of its origin.
    pub origin: usize,
    pub disk: Rc<Disk>,
    /// Number of instances so far.
    pub generation: Cell<u64>,
    /// Time of the last eviction.
    pub crashed_at: Cell<u64>,
    pub polls: Cell<u64>,
    /// The polls at which its instance is evicted.
    pub crashes: Vec<u64>,
    pub alarm: Cell<Option<u64>>,
    /// Whether an alarm is being handled.
    in_alarm: Cell<bool>,
    /// The policies and rules sent to it, in this order.
    pub received: RefCell<Vec<Rc<Received>>>,
    machine: RefCell<Option<(Rc<SessionHost>, Rc<DiskHandle>)>>,
    /// Clients connected to this instance.
    lines: RefCell<Vec<Waker>>,
}

impl Node {
    pub fn new(
        place: usize,
        tenant: &TenantId,
        session: &SessionId,
        origin: usize,
        disk: Rc<Disk>,
        crashes: Vec<u64>,
    ) -> Rc<Self> {
        Rc::new(Self {
            place,
            tenant: tenant.clone(),
            session: session.clone(),
            origin,
            disk,
            generation: Cell::new(0),
            crashed_at: Cell::new(0),
            polls: Cell::new(0),
            crashes,
            alarm: Cell::new(None),
            in_alarm: Cell::new(false),
            received: RefCell::default(),
            machine: RefCell::default(),
            lines: RefCell::default(),
        })
    }

    /// Records that a policy is sent to the object.
    pub fn receive(
        &self,
        version: u64,
        parents: Option<(Timestamp, SessionPermissions)>,
        sent: u64,
    ) -> Rc<Received> {
        let received = Rc::new(Received { version, parents, sent, arrived: Cell::new(None) });
        self.received.borrow_mut().push(Rc::clone(&received));
        received
    }

    /// Returns the turn of the first task, if this is a subagent. Further tasks have later turns.
    pub fn first_task(&self) -> Option<String> {
        self.parent().map(|_| self.session.replacen("ses_", "trn_", 1))
    }

    /// Returns the parent and the newest task, if this is a subagent.
    pub fn parent(&self) -> Option<Parent> {
        serde_json::from_value(self.meta()["parent"].take()).ok()
    }

    /// Returns the user of the session that its clients have.
    pub fn user(&self, world: &World) -> String {
        let scenario = world.ledger.scenario.sessions.get(self.origin);
        scenario.map(|scenario| scenario.user.to_string()).unwrap_or_default()
    }

    /// Returns the metadata on the disk.
    pub fn meta(&self) -> Value {
        self.document("state")["meta"].take()
    }

    /// Returns a document on the disk.
    pub fn document(&self, key: &str) -> Value {
        let documents = self.disk.documents.borrow();
        documents.get(key).and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default()
    }

    /// Returns the host of the instance; starts an instance if there is none.
    pub fn host(&self, world: &Rc<World>) -> Rc<SessionHost> {
        if let Some((host, _)) = &*self.machine.borrow() {
            return Rc::clone(host);
        }
        let plug = Rc::new(DiskHandle { disk: Rc::clone(&self.disk), alive: Cell::new(true) });
        let spawner =
            NodePorts { world: Rc::downgrade(world), place: self.place, generation: self.generation.get() };
        let ports = HostPorts {
            store: plug.clone(),
            directory: world.directory.clone(),
            ledger: Rc::new(Accounts { world: Rc::downgrade(world), place: self.place }),
            inbox: Rc::new(Inboxes(Rc::downgrade(world))),
            credentials: Rc::<InMemoryCredentials>::default(),
            blobs: world.blobs.clone(),
            clock: Rc::new(SimClock(Rc::clone(&world.sched))),
            entropy: world.entropy.clone(),
            spawner: Rc::new(spawner.clone()),
            peers: Rc::new(spawner.clone()),
            agents: None,
            webhooks: None,
            broadcast: None,
        };
        let kept = world.ledger.scenario.context.settings != ContextSettings::None;
        let bounds = if kept { Bounds::wide() } else { Bounds::messages(CONTEXT_MESSAGES) };
        let host =
            SessionHost::new(ports, world.agent(), HostConfig { context: bounds, limits: world.limits() });
        *self.machine.borrow_mut() = Some((Rc::clone(&host), plug));
        host
    }

    /// Evicts the instance between two polls.
    pub fn crash(&self, world: &World) {
        world.ledger.say(&self.disk.name, || "evicted".into());
        if let Some((host, plug)) = self.machine.borrow_mut().take() {
            plug.alive.set(false);
            self.generation.set(self.generation.get() + 1);
            world.sched.kill(Some(self.place));
            let restarts = &world.ledger.restarts;
            restarts.set(restarts.get() + u64::from(self.disk.waits.get()));
            drop(host);
        }
        if !world.closing.get() {
            self.crashed_at.set(world.sched.now());
        }
        if self.in_alarm.take() {
            self.alarm.set(Some(world.sched.now() + ALARM_RETRY_MS));
        }
        self.lines.take().into_iter().for_each(Waker::wake);
    }

    /// Registers a waker for the eviction of the instance.
    pub fn listen(&self, waker: &Waker) {
        let mut lines = self.lines.borrow_mut();
        if !lines.iter().any(|known| known.will_wake(waker)) {
            lines.push(waker.clone());
        }
    }

    /// Handles an alarm that is due; the platform repeats it until it succeeds.
    pub fn ring(self: &Rc<Self>, world: &Rc<World>) {
        self.alarm.set(None);
        self.in_alarm.set(true);
        let (node, world, host) = (Rc::clone(self), Rc::clone(world), self.host(world));
        let sched = Rc::clone(&world.sched);
        let work = async move {
            world.ledger.say(&node.disk.name, || "alarm".into());
            let done = host.wake().await;
            node.in_alarm.set(false);
            if done.is_err() && node.alarm.get().is_none() {
                node.alarm.set(Some(world.sched.now() + ALARM_RETRY_MS));
            }
        };
        sched.spawn(Some(self.place), Box::pin(work));
    }
}

/// The ports of one instance.
#[derive(Clone)]
struct NodePorts {
    world: Weak<World>,
    place: usize,
    generation: u64,
}

impl NodePorts {
    /// Returns the object, as long as this is its current instance.
    fn node(&self) -> Option<(Rc<World>, Rc<Node>)> {
        let world = self.world.upgrade()?;
        let node = world.node(self.place);
        (node.generation.get() == self.generation).then_some((world, node))
    }
}

impl Spawner for NodePorts {
    fn spawn(&self, work: LocalBoxFuture<'static, ()>) {
        if let Some((world, _)) = self.node() {
            world.sched.spawn(Some(self.place), work);
        }
    }

    fn wake_after(&self, delay: Duration) {
        if let Some((world, node)) = self.node() {
            node.alarm.set(Some(world.sched.now() + millis(delay)));
        }
    }

    fn let_sleep(&self) {
        if let Some((_, node)) = self.node() {
            node.alarm.set(None);
        }
    }
}

impl NodePorts {
    /// Calls another session's object. The request and the response may each be lost.
    async fn ask<T: 'static>(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        work: impl AsyncFnOnce(Rc<SessionHost>) -> Result<T, Problem> + 'static,
    ) -> Result<T, PeerError> {
        let (world, node) = self.node().ok_or(PeerError("the instance was evicted".into()))?;
        let other = world.object(tenant, session, node.origin);
        let is_answered = world.transmit().await?;
        let (sender, answer) = oneshot::channel();
        let host = other.host(&world);
        let work = async move {
            let _ = sender.send(work(host).await);
        };
        world.sched.spawn(Some(other.place), Box::pin(work));
        let answer = answer.await.map_err(|_| PeerError("the connection was lost".into()))?;
        world.transmit().await?;
        if !is_answered {
            return Err(PeerError("the connection was lost".into()));
        }
        answer.map_err(|problem| PeerError(problem.to_string()))
    }
}

#[async_trait(?Send)]
impl Peers for NodePorts {
    async fn copy(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        snapshot: Snapshot,
    ) -> Result<(), PeerError> {
        self.ask(tenant, session, async move |host: Rc<SessionHost>| host.copy(&snapshot)).await
    }

    async fn import(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        snapshot: Snapshot,
    ) -> Result<Imported, PeerError> {
        let received = self.node().filter(|_| snapshot.task.is_some()).map(|(world, node)| {
            let meta = &snapshot.meta;
            let parents = Some((meta.totals.updated_at, meta.meta.permissions.clone()));
            let child = world.object(tenant, session, node.origin);
            (child.receive(snapshot.tenant_policy.version, parents, world.sched.now()), world)
        });
        let import = async move |host: Rc<SessionHost>| {
            let imported = host.import(snapshot).await;
            if let (Ok(Imported::Session(_)), Some((received, world))) = (&imported, received) {
                received.arrived.set(Some(world.sched.now()));
            }
            imported
        };
        self.ask(tenant, session, import).await
    }

    async fn cancel(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        call_id: &CallId,
    ) -> Result<ChildStatus, PeerError> {
        let (id, call_id) = (session.clone(), call_id.clone());
        let (name, call, world) = (format!("{tenant}/{session}"), call_id.clone(), self.world.clone());
        let cancel = async move |host: Rc<SessionHost>| {
            let status = host.cancel_task(&id, &call_id)?;
            if let Some(world) = world.upgrade() {
                world.ledger.canceled.borrow_mut().push((name, call, world.ledger.moment()));
            }
            Ok(status)
        };
        self.ask(tenant, session, cancel).await
    }

    async fn notify(
        &self,
        tenant: &TenantId,
        session: &SessionId,
        status: ChildStatus,
    ) -> Result<Acknowledgement, PeerError> {
        self.ask(tenant, session, async move |host: Rc<SessionHost>| host.child_status(status).await).await
    }

    async fn post(&self, _: &SessionId, _: PeerRequest) -> Result<PeerResponse, PeerError> {
        Err(PeerError("clients decide on the calls of a child in its own session here".into()))
    }
}

#[async_trait(?Send)]
impl SessionReader for NodePorts {
    async fn send(
        &self,
        _: &Principal,
        _: &SessionId,
        _: ReaderRequest<'_>,
    ) -> Result<SessionResponse, PeerError> {
        Err(PeerError("no client asks for the events of subagents here".into()))
    }
}

#[async_trait(?Send)]
impl SessionEraser for NodePorts {
    async fn erase(&self, tenant: &TenantId, session: &SessionId) -> Result<(), PeerError> {
        let (of, id) = (tenant.clone(), session.clone());
        self.ask(tenant, session, async move |host: Rc<SessionHost>| host.erase(&of, &id).await).await
    }
}
