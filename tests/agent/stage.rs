//! A host with an in-memory environment, and the invariants of every log.

mod tools;

use super::others::Others;
use edge_harness::agent::{
    AgentVersions, Bounds, HarnessBuilder, HostConfig, OnBusy, Post, SessionHost, host::HostPorts,
    settings::SkillSettings,
};
use edge_harness::http::faces::a2a::PushSender;
use edge_harness::memory::{Flush, Memories, MemorySettings};
use edge_harness::model::{ModelRegistry, ModelSettings, one_shot::OneShotModel};
use edge_harness::platform::in_memory::{
    InMemoryCredentials, InMemoryDirectory, InMemoryInbox, InMemoryIndex, InMemoryLedger, InMemorySpaces,
    ManualClock, MemoryBlobs, MemoryFiles, MemoryLog, MemorySessionStore, ScriptedHttp, ScriptedModels,
    SeededEntropy, TaskPool,
    models::{ScriptedResponse, answer},
};
use edge_harness::ports::{AllowedHosts, Clock, Models, SessionStore, session_store::StoredRecord};
use edge_harness::session::{Session, SessionChange};
use edge_harness::standard::{ContextSettings, Standard, builder};
use edge_harness::types::{
    BackgroundTasks, BudgetPatch, Mode, ModelRequest, Owner, Part, Problem, SessionMeta, SessionPermissions,
    SessionStatus, SubagentKind, TenantLimits, Timestamp, TurnEnd, TurnId, TurnOptions, TurnStatus,
    WorkspaceKind,
};
use edge_harness::workspace::{Bundle, Stores, Workspaces};
use futures::executor::block_on;
use serde_json::{Value, json};
use std::time::Duration;
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};
use tools::{FailIt, ReadIt, WriteIt};

pub const NOW: Timestamp = Timestamp(1_795_176_000_000);

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

type Extend = Box<dyn Fn(HarnessBuilder) -> HarnessBuilder>;

/// The current instance of one session, and the disk that survives it.
pub struct Stage {
    pub store: Rc<MemorySessionStore>,
    pub directory: Rc<InMemoryDirectory>,
    pub ledger: Rc<InMemoryLedger>,
    pub inbox: Rc<InMemoryInbox>,
    /// The deployment's limits of later instances.
    pub default_limits: RefCell<TenantLimits>,
    pub credentials: Rc<InMemoryCredentials>,
    pub blobs: Rc<MemoryBlobs>,
    pub files: Rc<MemoryFiles>,
    pub clock: ManualClock,
    pub log: Rc<MemoryLog>,
    pub index: Rc<InMemoryIndex>,
    pub spaces: Rc<InMemorySpaces>,
    pub runs: Runs,
    pub context_messages: Cell<usize>,
    /// When later instances extract facts; never by default.
    pub flush: Cell<Flush>,
    /// Outputs over this many characters are evicted.
    pub evict_over: Cell<usize>,
    /// The versions of agents of later instances; without them, there is one agent.
    pub versions: RefCell<Option<Rc<dyn AgentVersions>>>,
    /// The context strategy of later instances.
    pub context: RefCell<ContextSettings>,
    /// The modes of later instances; none by default.
    pub modes: RefCell<Vec<Mode>>,
    /// The skills of later instances.
    pub skills: RefCell<SkillSettings>,
    /// Where the files of later instances are; on the server by default.
    pub workspace: Cell<WorkspaceKind>,
    /// How long later instances use the files in the prompt without reading them again.
    pub fresh: Cell<Duration>,
    /// The kinds of subagents of later instances; no subagents by default.
    pub subagents: RefCell<Option<Vec<SubagentKind>>>,
    /// Whether those work in the background.
    pub background: Cell<BackgroundTasks>,
    /// How many of them work at a time.
    pub max_subagents: Cell<usize>,
    pub others: Rc<Others>,
    /// The receivers of webhooks, below `example.com`.
    pub receivers: Rc<ScriptedHttp>,
    entropy: Rc<SeededEntropy>,
    models: Rc<dyn Models>,
    extend: Extend,
    machine: RefCell<(Rc<SessionHost>, Rc<TaskPool>)>,
}

/// Number of writes by key, across instances.
pub type Runs = Rc<RefCell<BTreeMap<String, u32>>>;

impl Stage {
    /// Creates a stage with the built-in demo model.
    pub fn demo() -> Self {
        let clock = ManualClock::at(NOW);
        let http = Rc::new(ScriptedHttp::default());
        let models = ModelRegistry::new(ModelSettings::default(), http, None, Rc::new(clock.clone()));
        Self::with(clock, Rc::new(models), |builder| builder)
    }

    /// Creates a stage whose model's response is a function of the request.
    pub fn scripted(
        script: impl Fn(&ModelRequest) -> ScriptedResponse + 'static,
        extend: impl Fn(HarnessBuilder) -> HarnessBuilder + 'static,
    ) -> (Self, Rc<ScriptedModels>) {
        let models = Rc::new(ScriptedModels::new(script));
        (Self::with(ManualClock::at(NOW), models.clone(), extend), models)
    }

    pub fn with(
        clock: ManualClock,
        models: Rc<dyn Models>,
        extend: impl Fn(HarnessBuilder) -> HarnessBuilder + 'static,
    ) -> Self {
        let index = Rc::new(InMemoryIndex::default());
        let mut stage = Self {
            spaces: Rc::new(InMemorySpaces::new(index.clone())),
            index,
            store: Rc::default(),
            directory: Rc::default(),
            ledger: Rc::new(InMemoryLedger::new(Rc::new(clock.clone()))),
            inbox: Rc::new(InMemoryInbox::new(Rc::new(clock.clone()))),
            default_limits: RefCell::default(),
            credentials: Rc::default(),
            blobs: Rc::default(),
            files: Rc::default(),
            clock,
            log: Rc::default(),
            runs: Rc::default(),
            context_messages: Cell::new(100),
            flush: Cell::new(Flush::Never),
            evict_over: Cell::new(80_000),
            versions: RefCell::default(),
            context: RefCell::default(),
            modes: RefCell::default(),
            subagents: RefCell::default(),
            background: Cell::default(),
            max_subagents: Cell::new(8),
            skills: RefCell::default(),
            workspace: Cell::default(),
            fresh: Cell::new(ms(1_000)),
            others: Rc::default(),
            receivers: Rc::default(),
            entropy: Rc::default(),
            models,
            extend: Box::new(extend),
            machine: RefCell::new((placeholder(), Rc::default())),
        };
        let machine = stage.machine();
        stage.machine = RefCell::new(machine);
        stage
    }

    fn machine(&self) -> (Rc<SessionHost>, Rc<TaskPool>) {
        let tasks = Rc::new(TaskPool::default());
        let mut standard = standard(Rc::clone(&self.models), &self.clock, &self.entropy, &self.log);
        standard.files = self.workspaces();
        standard.settings.evict_over = Some(self.evict_over.get());
        standard.memories =
            self.memories(MemorySettings { flush: self.flush.get(), ..MemorySettings::default() });
        standard.directory = self.directory.clone();
        standard.context = self.context.borrow().clone();
        standard.settings.modes = self.modes.borrow().clone();
        standard.settings.skills = self.skills.borrow().clone();
        standard.settings.workspace = self.workspace.get();
        standard.settings.context.fresh = self.fresh.get();
        standard.settings.subagents = self.subagents.borrow().clone();
        standard.settings.background = self.background.get();
        standard.settings.max_subagents = self.max_subagents.get();
        let built = (self.extend)(builder(standard))
            .tool(ReadIt)
            .tool(WriteIt(Rc::clone(&self.runs)))
            .tool(FailIt)
            .build()
            .expect("an agent");
        let (directory, blobs) = (self.directory.clone(), self.blobs.clone());
        let (clock, entropy) = (Rc::new(self.clock.clone()), self.entropy.clone());
        let (receivers, versions) = (self.receivers.clone(), self.versions.borrow().clone());
        let (built, spawner, others) = (Rc::new(built), tasks.clone(), self.others.clone());
        let config = HostConfig {
            context: Bounds::messages(self.context_messages.get()),
            limits: self.default_limits.borrow().clone(),
        };
        let (store, credentials, ledger, inbox) =
            (self.store.clone(), self.credentials.clone(), self.ledger.clone(), self.inbox.clone());
        self.others.clock.replace(Some(self.clock.clone()));
        self.others.restart(Box::new(move |session, disk| {
            let ports = HostPorts {
                store: if session == "s" { store.clone() } else { disk },
                directory: directory.clone(),
                ledger: ledger.clone(),
                inbox: inbox.clone(),
                credentials: credentials.clone(),
                blobs: blobs.clone(),
                clock: clock.clone(),
                entropy: entropy.clone(),
                spawner: spawner.clone(),
                peers: others.clone(),
                agents: versions.clone(),
                webhooks: Some(Rc::new(PushSender {
                    http: receivers.clone(),
                    allowed: AllowedHosts::parse("*.example.com"),
                })),
                broadcast: None,
            };
            SessionHost::new(ports, built.clone(), config.clone())
        }));
        (self.others.host("s"), tasks)
    }

    /// The workspaces, as seen from outside the session.
    pub fn workspaces(&self) -> Rc<Workspaces> {
        let files = workspaces(&self.files, &self.blobs, &self.clock, &self.entropy);
        let layer = Memories::layer(self.index.clone(), Rc::new(self.clock.clone()), self.log.clone());
        Rc::new(files.with_layer(layer))
    }

    /// The memories, as seen from outside the session.
    pub fn memories(&self, settings: MemorySettings) -> Rc<Memories> {
        let clock = Rc::new(self.clock.clone());
        let model = OneShotModel { models: self.models.clone(), clock, entropy: self.entropy.clone() };
        let (index, spaces) = (self.index.clone(), self.spaces.clone());
        let memories = Memories::new(index, spaces, self.workspaces(), model, settings, self.log.clone());
        Rc::new(memories.with_ledger(self.ledger.clone()))
    }

    /// Sets the modes of later instances.
    pub fn with_modes(self, modes: Vec<Mode>) -> Self {
        self.modes.replace(modes);
        self.crash();
        self
    }

    pub fn host(&self) -> Rc<SessionHost> {
        self.machine.borrow().0.clone()
    }

    /// The session of the current instance; created in memory if there is none.
    pub fn session(&self) -> Rc<Session> {
        let host = self.host();
        host.open().expect("a store that works").unwrap_or_else(|| host.blank(meta(host.now())))
    }

    /// Evicts the session and starts a new instance, which has not opened it yet.
    pub fn crash(&self) {
        let new = self.machine();
        let (_, evicted, ..) = self.machine.replace(new);
        evicted.evict();
    }

    pub fn wake(&self) {
        block_on(self.host().wake()).expect("a store that works");
        self.run();
    }

    /// Takes the wake-up that was requested last.
    pub fn take_wake_up(&self) -> Option<Duration> {
        self.machine.borrow().1.take_wake_up()
    }

    pub fn post(&self, turn: &str, said: &str) -> TurnStatus {
        self.try_post(turn, said, OnBusy::Queue, BudgetPatch::default()).expect("accepted")
    }

    pub fn try_post(
        &self,
        turn: &str,
        said: &str,
        on_busy: OnBusy,
        budget: BudgetPatch,
    ) -> Result<TurnStatus, Problem> {
        self.send(turn, said, on_busy, budget, TurnOptions::default())
    }

    pub fn post_with(&self, turn: &str, said: &str, budget: BudgetPatch, options: TurnOptions) {
        self.send(turn, said, OnBusy::Queue, budget, options).expect("accepted");
    }

    fn send(
        &self,
        turn: &str,
        said: &str,
        on_busy: OnBusy,
        budget: BudgetPatch,
        options: TurnOptions,
    ) -> Result<TurnStatus, Problem> {
        let (turn, parts) = (turn.into(), vec![Part::text(said)]);
        let post =
            Post { turn, parts, budget, options, on_busy, webhook: None, response: None, slot_until: None };
        self.host().post(&self.session(), post)
    }

    /// The outcomes of the turn's calls: `result`, or `denied` and the reason.
    pub fn outcomes(&self, turn: &str) -> Vec<String> {
        let own = self.records().into_iter().filter(|r| r["type"] == "tool.completed" && r["turn"] == turn);
        own.map(|r| r["denied"].as_str().or(r["outcome"].as_str()).unwrap().to_owned()).collect()
    }

    /// Runs all tasks until none can progress without time advancing.
    pub fn run(&self) {
        let tasks = self.machine.borrow().1.clone();
        tasks.run();
    }

    /// Advances the clock and runs the tasks that become due.
    pub fn tick(&self, span: Duration) {
        self.clock.advance(span);
        self.run();
    }

    /// Advances the clock by `span` in small steps, waking the session whenever it requested it.
    pub fn live(&self, span: Duration) {
        let end = self.clock.now() + span;
        let mut alarm = None;
        self.run();
        while self.clock.now() < end {
            if let Some(wait) = self.take_wake_up() {
                alarm = Some(self.clock.now() + wait);
            }
            self.tick(ms(100).min(end.since(self.clock.now())));
            if alarm.take_if(|alarm| *alarm <= self.clock.now()).is_some() {
                self.wake();
            }
        }
    }

    /// Lets the follow-ups of the last turn run.
    pub fn follow_up(&self) {
        self.tick(ms(2_000));
    }

    /// Runs until no turn is running or waiting.
    pub fn settle(&self) {
        self.run();
        for _ in 0..3_000 {
            if self.is_idle() {
                return;
            }
            self.tick(ms(100));
        }
        panic!("no end: {:#?}", self.kinds());
    }

    /// Runs until the turn waits for a person.
    pub fn settle_waiting(&self) {
        self.run();
        for _ in 0..100 {
            if self.session().state().status() == SessionStatus::Waiting {
                return;
            }
            self.tick(ms(100));
        }
        panic!("the turn does not wait: {:#?}", self.kinds());
    }

    /// Changes the permissions of the session, as a client does.
    pub fn permit(&self, change: impl FnOnce(&mut SessionPermissions)) {
        let session = self.session();
        let mut permissions = session.state().meta.permissions.clone();
        change(&mut permissions);
        let change = SessionChange { permissions: Some(permissions), ..SessionChange::default() };
        session.commit(self.host().now(), |draft| draft.update(change)).unwrap();
    }

    fn is_idle(&self) -> bool {
        let Some(state) = self.store.get("state/activity").unwrap() else { return true };
        let state: Value = serde_json::from_str(&state).unwrap();
        state.get("turn").is_none() && state.get("queue").is_none()
    }

    pub fn records(&self) -> Vec<Value> {
        self.store.log().iter().map(parse).collect()
    }

    /// All records as clients read them: the end of a turn has its reply, of which the log has only the message.
    pub fn sent_records(&self) -> Vec<Value> {
        let stored = self.records();
        let text = |parts: &Value| {
            let parts = parts.as_array().unwrap().iter();
            parts
                .filter_map(|part| part["text"].as_str().filter(|_| part["type"] == "text"))
                .collect::<String>()
        };
        let sent = stored.iter().cloned().map(|mut record| {
            if let Some(reply) = record.as_object_mut().unwrap().remove("reply_ref") {
                let is_reply = |other: &&Value| other["message"]["id"] == reply["message"];
                let parts =
                    &stored.iter().find(is_reply).expect("the message of the reply")["message"]["parts"];
                record["reply"] = json!({"id": reply["message"], "text": text(parts), "parts": parts});
                if let Some(output) = reply.get("output") {
                    record["reply"]["output"] = output.clone();
                }
            }
            record
        });
        sent.collect()
    }

    /// The types of the log's records.
    pub fn kinds(&self) -> Vec<String> {
        self.store.log().into_iter().map(|record| record.kind).collect()
    }

    pub fn end(&self, turn: &str) -> TurnEnd {
        let end = self.session().turn_ended(&turn.into()).unwrap();
        end.unwrap_or_else(|| panic!("{turn} has no end: {:#?}", self.kinds()))
    }

    /// Checks the invariants of the log of an idle session.
    #[track_caller]
    pub fn check(&self) {
        check(&self.store.log());
    }
}

fn parse(stored: &StoredRecord) -> Value {
    serde_json::from_str(&stored.json).unwrap()
}

/// Sequence numbers are contiguous; each turn has one start and one end with nothing after it; each call has
/// one outcome, in the order of the calls.
#[track_caller]
pub fn check(log: &[StoredRecord]) {
    let numbers: Vec<u64> = log.iter().map(|record| record.seq).collect();
    assert_eq!(numbers, (1..=log.len() as u64).collect::<Vec<_>>());
    let mut ended = BTreeSet::new();
    let mut started: BTreeMap<TurnId, (usize, Vec<String>, Vec<String>)> = BTreeMap::new();
    for stored in log {
        let record = parse(stored);
        assert_eq!(
            (record["seq"].as_u64(), &record["type"]),
            (Some(stored.seq), &stored.kind.clone().into())
        );
        let Some(turn) = stored.turn.clone() else { continue };
        let follows = ["tool.late_result", "judge.completed", "usage.other", "turn.sub_step_failed"];
        if follows.contains(&stored.kind.as_str()) {
            continue;
        }
        assert!(!ended.contains(&turn), "{} after the end of {turn}", stored.kind);
        let (starts, calls, outcomes) = started.entry(turn.clone()).or_default();
        let id = || record["call_id"].as_str().unwrap().to_owned();
        match stored.kind.as_str() {
            "turn.started" => *starts += 1,
            "tool.started" => calls.push(id()),
            "tool.completed" => outcomes.push(id()),
            "turn.completed" | "turn.failed" | "turn.canceled" => {
                assert!(*starts <= 1);
                assert_eq!(calls, outcomes, "each call has one outcome, in order");
                assert_eq!(calls.iter().collect::<BTreeSet<_>>().len(), calls.len(), "ids are unique");
                ended.insert(turn);
            }
            _ => {}
        }
    }
    let open: Vec<_> = started.keys().filter(|turn| !ended.contains(*turn)).collect();
    assert!(open.is_empty(), "turns without an end: {open:?}");
}

pub fn standard(
    models: Rc<dyn Models>,
    clock: &ManualClock,
    entropy: &Rc<SeededEntropy>,
    log: &Rc<MemoryLog>,
) -> Standard {
    let files = Rc::new(workspaces(&Rc::default(), &Rc::default(), clock, entropy));
    let index = Rc::new(InMemoryIndex::default());
    let spaces = Rc::new(InMemorySpaces::new(index.clone()));
    let model =
        OneShotModel { models: models.clone(), clock: Rc::new(clock.clone()), entropy: entropy.clone() };
    let settings = MemorySettings::default();
    Standard {
        models,
        clock: Rc::new(clock.clone()),
        entropy: entropy.clone(),
        http: Rc::new(ScriptedHttp::default()),
        log: log.clone(),
        memories: Rc::new(Memories::new(index, spaces, files.clone(), model, settings, log.clone())),
        directory: Rc::new(InMemoryDirectory::default()),
        files,
        web_fetch_allow: String::new(),
        instructions: None,
        settings: Default::default(),
        context: Default::default(),
    }
}

fn workspaces(
    files: &Rc<MemoryFiles>,
    blobs: &Rc<MemoryBlobs>,
    clock: &ManualClock,
    entropy: &Rc<SeededEntropy>,
) -> Workspaces {
    let clock = Rc::new(clock.clone());
    Workspaces::new(Stores::new(files.clone(), blobs.clone(), clock, entropy.clone()), Bundle::default())
}

/// A placeholder while a stage creates its first instance from itself.
fn placeholder() -> Rc<SessionHost> {
    let clock = ManualClock::at(NOW);
    let models = Rc::new(ScriptedModels::new(|_| answer(Vec::new())));
    let agent = builder(standard(models, &clock, &Rc::default(), &Rc::default())).build().unwrap();
    let ports = HostPorts {
        store: Rc::new(MemorySessionStore::default()),
        directory: Rc::new(InMemoryDirectory::default()),
        ledger: Rc::new(InMemoryLedger::new(Rc::new(clock.clone()))),
        inbox: Rc::new(InMemoryInbox::new(Rc::new(clock.clone()))),
        credentials: Rc::<InMemoryCredentials>::default(),
        blobs: Rc::new(MemoryBlobs::default()),
        clock: Rc::new(clock),
        entropy: Rc::new(SeededEntropy::default()),
        spawner: Rc::new(TaskPool::default()),
        peers: Rc::new(Others::default()),
        agents: None,
        webhooks: None,
        broadcast: None,
    };
    SessionHost::new(
        ports,
        Rc::new(agent),
        HostConfig { context: Bounds::messages(4), limits: TenantLimits::default() },
    )
}

pub fn meta(now: Timestamp) -> SessionMeta {
    let owner = Owner { tenant: "t".into(), agent: "default".into(), user: "u".into() };
    SessionMeta::new("s".into(), owner, now)
}
