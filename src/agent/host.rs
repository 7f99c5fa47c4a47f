//! One session and the agent that answers in it: accepts messages, queues, steers, aborts, and
//! goes on after the machine went away.

mod compact;
mod copy;
mod erase;
mod errand;
mod follow_ups;
mod intervals;
pub mod parked;
mod queue;
mod subagents;
mod upkeep;

pub use copy::Snapshot;

use super::{
    HarnessAgent, RuntimeContext,
    finalizer::{self, Ending},
    judge,
};
use crate::fault::{self, Fault};
use crate::ports::{
    BlobStore, Clock, Directory, Entropy, Peers, SessionStore, Spawner, StoreError, directory::DirectoryError,
};
use crate::session::{
    Artifacts, Draft, Permit, Session, WriteError,
    artifacts::puts::Puts,
    hub::{Broadcast, Hub},
    window::Bounds,
};
use crate::turn::TurnMachine;
use crate::types::{
    Budget, BudgetPatch, ErrorCode, EventKind, Message, Part, PendingKind, Problem, Report, Role, Rules,
    SessionMeta, SessionState, SessionStatus, StopReason, TenantId, Timestamp, TurnError, TurnOptions,
    TurnStatus, id,
};
use errand::Reporting;
use follow_ups::Following;
use futures::{
    FutureExt,
    future::{AbortHandle, abortable},
};
use intervals::Beating;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    rc::{Rc, Weak},
};
use subagents::SentOut;

/// How often a running turn asks to be woken, in milliseconds.
const WATCHDOG_MS: u64 = 20_000;
/// How soon a turn that its store failed is tried again, in milliseconds.
const RETRY_MS: u64 = 1_000;
/// How long an erasure waits for what is being written, in milliseconds.
const SETTLE_MS: u64 = 10_000;
/// How stale the list of sessions may be, in milliseconds.
const LISTING_MS: u64 = 300_000;
/// Longest title made from a message, in characters.
const TITLE_CHARS: usize = 80;

/// What a host is told once.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// What a model is shown at most of the conversation, where nothing else bounds it.
    pub context: Bounds,
}

/// The ports of a host.
pub struct HostPorts {
    /// This session's storage.
    pub store: Rc<dyn SessionStore>,
    /// The list of sessions.
    pub directory: Rc<dyn Directory>,
    /// Large things.
    pub blobs: Rc<dyn BlobStore>,
    /// The time.
    pub clock: Rc<dyn Clock>,
    /// Chance.
    pub entropy: Rc<dyn Entropy>,
    /// Work that outlives requests.
    pub spawner: Rc<dyn Spawner>,
    /// Other sessions.
    pub peers: Rc<dyn Peers>,
    /// The platform's own listeners.
    pub broadcast: Option<Rc<dyn Broadcast>>,
}

/// What to do with a message while a turn runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBusy {
    /// It waits for its turn.
    #[default]
    Queue,
    /// It ends the running turn, empties the queue, and runs.
    Steer,
    /// It is refused.
    Reject,
}

/// A message to be answered.
#[derive(Clone, Debug)]
pub struct Post {
    /// The turn's id, made by the caller so that it may listen first.
    pub turn: String,
    /// What the user says.
    pub parts: Vec<Part>,
    /// Bounds of this turn.
    pub budget: BudgetPatch,
    /// What else the caller asks of this turn.
    pub options: TurnOptions,
    /// What to do while another turn runs.
    pub on_busy: OnBusy,
    /// A document to store in the same commit.
    pub document: Option<(String, String)>,
}

/// One session and its agent.
pub struct SessionHost {
    ports: HostPorts,
    blobs: Rc<Puts>,
    agent: Rc<HarnessAgent>,
    config: HostConfig,
    session: RefCell<Option<Rc<Session>>>,
    /// The tenant's rules, for a session that is not stored yet.
    rules: RefCell<Rules>,
    running: RefCell<Option<(Rc<RuntimeContext>, AbortHandle)>>,
    pinging: RefCell<Option<(Weak<Session>, AbortHandle)>>,
    following: RefCell<Option<Following>>,
    beating: RefCell<Vec<Beating>>,
    /// The subagents that were sent out by this machine, by their sessions.
    sent_out: RefCell<BTreeMap<String, SentOut>>,
    reporting: RefCell<Reporting>,
    /// Set while subagents are called back: none of them is sent out meanwhile.
    recalling: Cell<bool>,
    /// Set while the session is being erased: nothing goes on in it, and nothing follows it any more.
    erasing: Cell<bool>,
    wake_at: Cell<Timestamp>,
    /// Before this, a running turn is not kept from its work to look for what expired.
    purge_at: Cell<Timestamp>,
}

impl SessionHost {
    /// A host that has not looked at its storage yet.
    pub fn new(ports: HostPorts, agent: Rc<HarnessAgent>, config: HostConfig) -> Rc<Self> {
        let (blobs, spawner) = (Rc::clone(&ports.blobs), Rc::clone(&ports.spawner));
        let blobs = Rc::new(Puts::new(blobs, spawner, Rc::clone(&ports.clock)));
        Rc::new(Self {
            ports,
            blobs,
            agent,
            config,
            session: RefCell::new(None),
            rules: RefCell::default(),
            running: RefCell::new(None),
            pinging: RefCell::new(None),
            following: RefCell::new(None),
            beating: RefCell::default(),
            sent_out: RefCell::default(),
            reporting: RefCell::default(),
            recalling: Cell::new(false),
            erasing: Cell::new(false),
            wake_at: Cell::new(Timestamp(0)),
            purge_at: Cell::new(Timestamp(0)),
        })
    }

    /// The agent.
    pub fn agent(&self) -> &Rc<HarnessAgent> {
        &self.agent
    }

    /// Other sessions.
    pub fn peers(&self) -> &Rc<dyn Peers> {
        &self.ports.peers
    }

    /// The clock.
    pub fn clock(&self) -> &Rc<dyn Clock> {
        &self.ports.clock
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.ports.clock.now()
    }

    /// A new id.
    pub fn new_id(&self, prefix: &str) -> String {
        self.agent.new_id(prefix)
    }

    /// The session, if there is one. A turn that nobody runs any more goes on.
    ///
    /// # Errors
    /// When the store breaks.
    pub fn open(self: &Rc<Self>) -> Result<Option<Rc<Session>>, StoreError> {
        if self.session.borrow().is_none() {
            let opened = Session::open(Rc::clone(&self.ports.store), self.config.context, self.hub())?;
            if let Some(session) = opened.map(Rc::new) {
                self.adopt(&session);
            }
        }
        let session = self.session.borrow().clone();
        if let Some(session) = &session {
            self.recover(session)?;
        }
        Ok(session)
    }

    /// Makes the session.
    ///
    /// # Errors
    /// When the store breaks; there is no session then.
    pub fn create(self: &Rc<Self>, meta: SessionMeta) -> Result<Rc<Session>, StoreError> {
        let session = self.blank(meta);
        session.commit(self.now(), |draft| draft.created(None))?;
        self.adopt(&session);
        Ok(session)
    }

    fn hub(&self) -> Hub {
        Hub::new(self.ports.broadcast.clone())
    }

    /// Puts the session under its tenant's rules, as they are from now on.
    ///
    /// # Errors
    /// When they are others than before and cannot be stored: nothing should run then.
    pub fn govern(self: &Rc<Self>, tenant: &TenantId, rules: &Rules) -> Result<(), Problem> {
        let session = self.open().map_err(|error| Problem::internal(error.to_string()))?;
        if let Some(session) = session {
            let is_other = {
                let state = session.state();
                state.meta.tenant == *tenant && state.tenant_rules != *rules
            };
            if is_other {
                let change = |draft: &mut Draft| draft.state.tenant_rules = rules.clone();
                session.commit_from_outside(self.now(), change).map_err(Problem::from)?;
                self.send_out(&session);
            }
        }
        self.rules.replace(rules.clone());
        Ok(())
    }

    /// A session that is not stored yet: its first message stores it.
    pub fn blank(&self, meta: SessionMeta) -> Rc<Session> {
        let state = SessionState { tenant_rules: self.rules.borrow().clone(), ..SessionState::new(meta) };
        Rc::new(Session::create(Rc::clone(&self.ports.store), state, self.config.context, self.hub()))
    }

    /// Makes a stored session this host's own.
    pub fn adopt(self: &Rc<Self>, session: &Rc<Session>) {
        *self.session.borrow_mut() = Some(Rc::clone(session));
        self.beat(session);
    }

    /// Accepts a message: its turn starts at once, or waits.
    ///
    /// # Errors
    /// `session_busy`, `queue_full`, or a broken store; nothing is stored then.
    pub fn post(self: &Rc<Self>, session: &Rc<Session>, post: Post) -> Result<TurnStatus, Problem> {
        let busy = session.state().turn.is_some() || !session.state().queue.is_empty();
        if !busy {
            return self.start(session, post);
        }
        match post.on_busy {
            OnBusy::Reject => Err(Problem::new(
                ErrorCode::SessionBusy,
                "a turn is running; wait for it, or use on_busy `queue` or `steer`",
            )),
            // What a message finds waiting for a person it passes over.
            OnBusy::Queue if session.state().status() == SessionStatus::Waiting => {
                let message = self.to_wait(session, post)?;
                // In this order: a message that its store refuses is not there, whatever became of the turn.
                self.interrupt(session)?;
                let status = self.enqueue(session, message);
                self.after_turn(session);
                status
            }
            OnBusy::Queue => self.enqueue(session, self.to_wait(session, post)?),
            OnBusy::Steer => {
                self.clear_queue(session)?;
                self.interrupt(session)?;
                self.start(session, post)
            }
        }
    }

    fn start(self: &Rc<Self>, session: &Rc<Session>, post: Post) -> Result<TurnStatus, Problem> {
        let new = session.last_seq() == 0;
        let message = self.user_message(&post.turn, post.parts);
        let budget = session.state().meta.budget.patched(&post.budget);
        let titled = session.commit(self.now(), |draft| {
            if new {
                draft.created(None);
            }
            if let Some((key, json)) = post.document.filter(|_| !fault::active(Fault::ForgetKey)) {
                draft.put(key, json);
            }
            self.draft_start(draft, post.turn, budget, post.options, Rc::clone(&message))
        })?;
        if new {
            self.adopt(session);
        }
        if new || titled {
            self.list_later(session);
        }
        self.run(session, message);
        Ok(TurnStatus::Running)
    }

    fn user_message(&self, turn: &str, parts: Vec<Part>) -> Rc<Message> {
        Rc::new(Message {
            id: self.new_id(id::MESSAGE),
            seq: 0,
            role: Role::User,
            parts,
            created_at: self.now(),
            turn: turn.to_owned(),
            interrupted: false,
        })
    }

    /// Drafts a turn's start. Returns whether the session has its title from it.
    fn draft_start(
        &self,
        draft: &mut Draft,
        turn: String,
        budget: Budget,
        options: TurnOptions,
        message: Rc<Message>,
    ) -> bool {
        let meta = &mut draft.state.meta;
        let titled = meta.title.is_none() && !meta.title_pinned;
        if titled {
            meta.title = Some(title_from(&message.text()));
        }
        draft.record(Some(&turn), EventKind::TurnStarted { message });
        draft.state.meta.turns += 1;
        draft.state.turn = Some(TurnMachine::start(turn, self.now(), budget, options));
        titled
    }

    /// Runs the session's turn from where its journal stands, in this process.
    fn run(self: &Rc<Self>, session: &Rc<Session>, message: Rc<Message>) {
        let Some(permit) = Permit::of(session) else { return };
        self.wake_soon();
        let cx = self.context(session, permit);
        let (host, own) = (Rc::clone(self), Rc::clone(&cx));
        let (work, handle) = abortable(async move { host.drive(own, message).await });
        *self.running.borrow_mut() = Some((cx, handle));
        self.ports.spawner.spawn(work.map(drop).boxed_local());
    }

    async fn drive(self: Rc<Self>, cx: Rc<RuntimeContext>, message: Rc<Message>) {
        let session = &cx.session;
        let call = AssertUnwindSafe(self.agent.call(message, Rc::clone(&cx))).catch_unwind().await;
        // A panic is our defect: it costs this turn, and nobody else's.
        let result = call.unwrap_or_else(|_| {
            let error = TurnError {
                code: "internal".into(),
                message: "the turn broke (a defect of ours)".into(),
                retryable: true,
            };
            finalizer::seal(&self.agent, &cx, Ending::failed(error))
        });
        if !self.is_running(&cx.permit) {
            return;
        }
        self.running.borrow_mut().take();
        if let Err(WriteError::Store(_)) = result {
            // The journal stands where it stood: give up here, and go on from it soon. Whoever waits
            // for another turn of this copy, such as a queued one, holds the copy and would wait for ever.
            session.hub().leave();
            session.retire();
            self.stop_pings();
            self.session.borrow_mut().take();
            self.wake_after(RETRY_MS);
            return;
        }
        if session.is_waiting() {
            self.wake_for_expiry(session);
            self.send_out(session);
        }
        self.after_turn(session);
        judge::grade_reply(&self, &cx);
    }

    /// What may happen once a turn is over: the next one first of all.
    fn after_turn(self: &Rc<Self>, session: &Rc<Session>) {
        if self.start_queued(session).is_err() {
            self.wake_after(RETRY_MS);
        }
        self.follow_up(session);
        self.report(session);
        if !session.hub().has_listeners() {
            self.stop_pings();
        }
        let listed_at = session.state().listed_at;
        if listed_at.0 > 0 && self.now().since(listed_at) > LISTING_MS {
            self.list_later(session);
        }
    }

    /// Goes on with a turn that nobody runs: its machine went away.
    fn recover(self: &Rc<Self>, session: &Rc<Session>) -> Result<(), StoreError> {
        if self.running.borrow().is_some() || self.erasing.get() {
            return Ok(());
        }
        let Some(turn) = session.state().turn.as_ref().map(|turn| turn.id.clone()) else {
            return self.start_queued(session);
        };
        if session.is_waiting() && !fault::active(Fault::RestartWaiting) {
            self.send_out(session);
            return Ok(());
        }
        session.commit(self.now(), |draft| {
            if let Some(state) = &mut draft.state.turn {
                TurnMachine(state).resume();
                let epoch = state.epoch;
                draft.close_message();
                if !fault::active(Fault::UnrecordedRestart) {
                    draft.record(Some(&turn), EventKind::TurnResumed { epoch, reason: "restart".into() });
                }
            }
        })?;
        self.run_on(session)
    }

    /// Runs the turn that stands in the session from where its journal stands.
    fn run_on(self: &Rc<Self>, session: &Rc<Session>) -> Result<(), StoreError> {
        let Some(Permit { turn, .. }) = Permit::of(session) else { return Ok(()) };
        let own = session.messages().into_iter().find(|m| m.role == Role::User && m.turn == turn);
        match own {
            Some(message) => self.run(session, session.whole(&message)?),
            // Never with a log that is whole. A turn that cannot go on must not stand in the way of others.
            None => self.give_up(session, "the log lacks the message of this turn")?,
        }
        Ok(())
    }

    /// Ends the turn that stands in the session as failed.
    fn give_up(self: &Rc<Self>, session: &Rc<Session>, why: &str) -> Result<(), StoreError> {
        let Some(permit) = Permit::of(session) else { return Ok(()) };
        let error = TurnError { code: "internal".into(), message: why.into(), retryable: true };
        match finalizer::seal(&self.agent, &self.context(session, permit), Ending::failed(error)) {
            Err(WriteError::Store(error)) => Err(error),
            Ok(()) | Err(WriteError::Stale) => self.start_queued(session),
        }
    }

    /// Ends the running turn at the caller's wish; false if none runs. The next in the queue starts. `reports` is what
    /// its subagents have said to that.
    ///
    /// # Errors
    /// When the store breaks; the turn goes on then.
    pub fn abort(self: &Rc<Self>, session: &Rc<Session>, reports: Vec<Report>) -> Result<bool, Problem> {
        let ended =
            self.end_with(session, Ending { child_reports: reports, ..Ending::new(StopReason::Canceled) })?;
        self.after_turn(session);
        Ok(ended)
    }

    /// Ends the turn that stands in the session, whether it runs or waits; false if there is none.
    fn end_with(self: &Rc<Self>, session: &Rc<Session>, ending: Ending) -> Result<bool, Problem> {
        let Some(permit) = Permit::of(session) else { return Ok(false) };
        let own = self.running.borrow().as_ref().map(|(cx, _)| Rc::clone(cx));
        let own = own.filter(|cx| cx.permit == permit);
        let cx = own.unwrap_or_else(|| self.context(session, permit));
        // Best effort: what cannot be read back is missing from the end's counts.
        let _ = self.agent.restore_state(&cx);
        let waiting = session.pending().unwrap_or_default();
        let mut ending = ending;
        ending.child_reports.extend(subagents::heard(session));
        for pending in waiting.iter().filter(|pending| pending.kind == PendingKind::Subagent) {
            let report = ending.child_reports.iter().find(|report| report.call_id == pending.call_id);
            // One that was done when it was called back has not been canceled.
            let status = report.map_or(TurnStatus::Canceled, |report| report.status);
            ending.resolutions.push(subagents::ended(pending, status, report));
        }
        finalizer::seal(&self.agent, &cx, ending).map_err(|error| Problem::internal(error.to_string()))?;
        self.recall_later(session, &waiting);
        // Dropping the work closes its connections; whatever it still does is refused by the seal.
        if let Some((_, handle)) = self.running.borrow_mut().take()
            && !fault::active(Fault::AbortKeepsRunning)
        {
            handle.abort();
        }
        Ok(true)
    }

    fn context(&self, session: &Rc<Session>, permit: Permit) -> Rc<RuntimeContext> {
        let state = session.state();
        Rc::new(RuntimeContext {
            tenant: state.meta.tenant.clone(),
            user: state.meta.user.clone(),
            agent: state.meta.agent.clone(),
            session: Rc::clone(session),
            permit,
            clock: Rc::clone(&self.ports.clock),
            spawner: Rc::clone(&self.ports.spawner),
            artifacts: self.artifacts(session),
            modes: Rc::clone(self.agent.modes()),
            state_rules: Rc::clone(&self.agent.state),
            state: Rc::default(),
        })
    }

    /// The session's large things.
    pub fn artifacts(&self, session: &Rc<Session>) -> Rc<Artifacts> {
        let blobs = Rc::clone(&self.blobs);
        Rc::new(Artifacts::new(Rc::clone(session), blobs, Rc::clone(&self.ports.clock)))
    }

    /// Runs `work` to its end, whoever leaves.
    pub fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        self.ports.spawner.spawn(work.boxed_local());
    }

    /// Whether a call of the running turn was handed to its tool by this machine.
    pub fn has_begun(&self, call_id: &str) -> bool {
        self.running.borrow().as_ref().is_some_and(|(cx, _)| cx.state.has_begun(call_id))
    }

    fn is_running(&self, permit: &Permit) -> bool {
        self.running.borrow().as_ref().is_some_and(|(running, _)| running.permit == *permit)
    }
}

/// The first line of what was said, cut to a title.
fn title_from(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("New session");
    let mut title: String = line.chars().take(TITLE_CHARS).collect();
    if title.len() < line.len() {
        title.push('…');
    }
    title
}

fn directory_down(error: DirectoryError) -> Problem {
    Problem::unavailable("the directory does not answer; try again", error.to_string())
}
