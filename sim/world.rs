//! A simulated world: its objects and their environment.

mod accounts;
mod inboxes;
mod node;

use super::{
    dice::Dice,
    disk::Disk,
    inbox_reader::InboxReader,
    ledger::Ledger,
    model::{FALLBACK, SimModels},
    scenario::Scenario,
    sched::{Panicked, START, Sched, SimClock},
    tools,
    witness::Witness,
};
use edge_harness::agent::{HarnessAgent, Settings, Verify};
use edge_harness::memory::{Flush, Memories, MemorySettings};
use edge_harness::model::one_shot::OneShotModel;
use edge_harness::platform::in_memory::{
    InMemoryDirectory, InMemoryInbox, InMemoryLedger, InMemorySpaces, MemoryBlobs, MemoryFiles, MemoryLog,
    ScriptedHttp, SeededEntropy,
};
use edge_harness::ports::PeerError;
use edge_harness::standard::{Standard, builder};
use edge_harness::types::{Category, Policy, Rules, SessionId, TenantId, TenantLimits};
use edge_harness::workspace::{Bundle, Stores, Workspaces};
use std::time::Duration;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

pub use inboxes::LONGEST_TRAVEL_MS;
pub use node::{Node, Received};

pub struct World {
    pub sched: Rc<Sched>,
    pub ledger: Rc<Ledger>,
    pub directory: Rc<InMemoryDirectory>,
    /// The ledgers of the tenants, which are not [`World::ledger`].
    pub accounts: Rc<InMemoryLedger>,
    /// Number of their responses that were lost so far, or will be next.
    accounts_lost: Cell<u32>,
    pub inbox: Rc<InMemoryInbox>,
    /// When the inbox was last unreachable, or a response of it was lost; 0 if never.
    pub inbox_trouble_at: Cell<u64>,
    /// What the readers of the inbox have received.
    pub inbox_readers: RefCell<BTreeMap<TenantId, InboxReader>>,
    pub blobs: Rc<MemoryBlobs>,
    pub entropy: Rc<SeededEntropy>,
    /// The observations of clients, by node.
    pub witnesses: RefCell<Vec<Witness>>,
    /// Number of clients that are still active.
    pub busy: Cell<usize>,
    /// Set when no new work is started.
    pub closing: Cell<bool>,
    /// The dice for messages between sessions.
    chance: RefCell<Dice>,
    /// The dice for notices to the inbox, and for its readers.
    pub notices: RefCell<Dice>,
    /// The dice for the isolates that send requests.
    pub isolates: RefCell<Dice>,
    nodes: RefCell<Vec<Rc<Node>>>,
    agent: RefCell<Option<Rc<HarnessAgent>>>,
    workspaces: RefCell<Option<Rc<Workspaces>>>,
}

impl World {
    /// Creates a world with an object for each session of the scenario.
    pub fn new(scenario: &mut Scenario, traced: bool) -> Rc<Self> {
        let sched = Sched::new(scenario.dice.fork());
        let ledger = Ledger::new(Rc::clone(&sched), scenario.clone(), traced);
        let clock = Rc::new(SimClock(Rc::clone(&sched)));
        let accounts = Rc::new(InMemoryLedger::new(clock.clone()));
        let world = Rc::new(Self {
            sched,
            ledger,
            directory: Rc::default(),
            accounts,
            accounts_lost: Cell::new(0),
            inbox: Rc::new(InMemoryInbox::new(clock)),
            inbox_trouble_at: Cell::new(0),
            inbox_readers: RefCell::default(),
            blobs: Rc::default(),
            entropy: Rc::default(),
            witnesses: RefCell::default(),
            busy: Cell::new(0),
            closing: Cell::new(false),
            chance: RefCell::new(Dice::new(scenario.dice.clone().roll() ^ 1)),
            notices: RefCell::new(Dice::new(scenario.dice.clone().roll() ^ 3)),
            isolates: RefCell::new(Dice::new(scenario.dice.clone().roll() ^ 2)),
            nodes: RefCell::default(),
            agent: RefCell::default(),
            workspaces: RefCell::default(),
        });
        *world.agent.borrow_mut() = Some(Rc::new(world.build()));
        for (place, session) in scenario.sessions.iter().enumerate() {
            world.object(&session.tenant, &session.id, place);
        }
        world
    }

    fn build(&self) -> HarnessAgent {
        let clock = || Rc::new(SimClock(Rc::clone(&self.sched)));
        let table = Rc::new(MemoryFiles::default());
        let stores = Stores::new(table, self.blobs.clone(), clock(), self.entropy.clone());
        let models = Rc::new(SimModels(Rc::clone(&self.ledger)));
        let (files, log) =
            (Rc::new(Workspaces::new(stores, Bundle::default())), Rc::new(MemoryLog::default()));
        *self.workspaces.borrow_mut() = Some(Rc::clone(&files));
        let spaces = Rc::new(InMemorySpaces::new(self.ledger.index.clone()));
        let aside = OneShotModel { models: models.clone(), clock: clock(), entropy: self.entropy.clone() };
        let flush =
            if self.ledger.scenario.context.flush { Flush::Every(Duration::ZERO) } else { Flush::Never };
        let settings = MemorySettings { flush, ..MemorySettings::default() };
        let memories =
            Memories::new(self.ledger.index.clone(), spaces, files.clone(), aside, settings, log.clone());
        let standard = Standard {
            models,
            clock: clock(),
            entropy: self.entropy.clone(),
            http: Rc::new(ScriptedHttp::default()),
            log,
            files,
            memories: Rc::new(memories),
            directory: self.directory.clone(),
            web_fetch_allow: String::new(),
            instructions: None,
            settings: self.settings(),
            context: self.ledger.scenario.context.settings.clone(),
        };
        let mut builder = tools::install(builder(standard), &self.ledger);
        if self.ledger.scenario.run.is_some() {
            builder = tools::runner::install(builder);
        }
        builder.build().expect("names that differ")
    }

    fn settings(&self) -> Settings {
        let (people, mut settings) = (&self.ledger.scenario.people, Settings::default());
        settings.permissions.tools.extend(people.rules.tools.clone());
        settings.permissions.categories.extend(people.rules.categories.clone());
        settings.approval_ttl = people.ttl_s.map_or(settings.approval_ttl, Duration::from_secs);
        if self.ledger.scenario.falls_back {
            settings.fallback_models.push(FALLBACK.to_owned());
        }
        settings.subagents = self.ledger.scenario.subagents.on.then(Vec::new);
        settings.background = self.ledger.scenario.subagents.background;
        if self.ledger.scenario.run.is_some() {
            settings.verify = Some(Verify { tool: tools::runner::VERIFY.into(), attempts: 3 });
            // The plan says what needs an approval.
            let categories = [Category::Execute, Category::Edit].map(|category| (category, Policy::Allow));
            settings.permissions.categories.extend(categories);
        }
        settings
    }

    /// Returns the limits of all tenants. In some worlds sessions hold slots: as many as they want, or one after the other.
    pub fn limits(&self) -> TenantLimits {
        let turns: usize = self.ledger.scenario.sessions.iter().map(|session| session.turns.len()).sum();
        let concurrent_turns = [Some(1), None, Some(1_000), None][turns % 4];
        TenantLimits { concurrent_turns, ..TenantLimits::default() }
    }

    pub fn agent(&self) -> Rc<HarnessAgent> {
        Rc::clone(self.agent.borrow().as_ref().expect("a world that plays"))
    }

    /// Returns the files of all users.
    pub fn workspaces(&self) -> Rc<Workspaces> {
        Rc::clone(self.workspaces.borrow().as_ref().expect("a world that plays"))
    }

    pub fn node(&self, place: usize) -> Rc<Node> {
        Rc::clone(&self.nodes.borrow()[place])
    }

    pub fn nodes(&self) -> Vec<Rc<Node>> {
        self.nodes.borrow().clone()
    }

    /// Returns whether a condition holds for all nodes.
    pub fn all_nodes(&self, holds: impl Fn(&Node) -> bool) -> bool {
        self.nodes.borrow().iter().all(|node| holds(node))
    }

    /// Returns the object of a session, created on first use. It contains texts of session `origin`.
    pub fn object(&self, tenant: &TenantId, session: &SessionId, origin: usize) -> Rc<Node> {
        let mut nodes = self.nodes.borrow_mut();
        if let Some(node) = nodes.iter().find(|node| node.tenant == *tenant && node.session == *session) {
            return Rc::clone(node);
        }
        let place = nodes.len();
        let scenario = &self.ledger.scenario;
        let (refusals, crashes) = match scenario.sessions.get(place) {
            Some(scenario) => (Some(&scenario.refusals), Some(&scenario.crashes)),
            None => {
                let number = place - scenario.sessions.len();
                (scenario.subagents.refusals.get(number), scenario.subagents.crashes.get(number))
            }
        };
        let (refusals, crashes) =
            (refusals.cloned().unwrap_or_default(), crashes.cloned().unwrap_or_default());
        let name = format!("{tenant}/{session}");
        let disk = Disk::new(name, refusals, Rc::clone(&self.ledger));
        let node = Node::new(place, tenant, session, origin, disk, crashes);
        nodes.push(Rc::clone(&node));
        self.witnesses.borrow_mut().push(Witness::default());
        node
    }

    /// Returns the policies of a tenant; none if they are never set.
    pub fn policies(&self, tenant: &TenantId) -> &[(u64, Rules)] {
        self.ledger.scenario.people.tenants.get(tenant).map(Vec::as_slice).unwrap_or_default()
    }

    /// Transmits one message between sessions. Returns whether its response will arrive.
    ///
    /// # Errors
    /// If the network is down.
    pub async fn transmit(&self) -> Result<bool, PeerError> {
        let scenario = &self.ledger.scenario.subagents;
        let place = self.ledger.messages.replace(self.ledger.messages.get() + 1);
        let ms = if scenario.pace > 0 { self.chance.borrow_mut().below(scenario.pace + 1) } else { 0 };
        if ms > 0 {
            self.sched.sleep(ms).await;
        }
        if self.within(scenario.outage) {
            return Err(PeerError("unreachable".into()));
        }
        Ok(!scenario.unanswered.contains(&place))
    }

    /// Runs until `done` holds at a moment when no task can run, or for at most `ms` milliseconds.
    pub fn run(self: &Rc<Self>, ms: u64, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.sched.now() + ms;
        loop {
            if let Some((task, owner)) = self.sched.pick() {
                if owner.is_some_and(|place| self.crashes_now(place)) {
                    continue;
                }
                if let Err(Panicked) = self.sched.poll(task) {
                    self.ledger.find(3, "a task panicked");
                }
                continue;
            }
            if done(self) {
                return true;
            }
            let alarms = self.nodes.borrow().iter().filter_map(|node| node.alarm.get()).min();
            let next = [self.sched.next_timer(), alarms].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { return done(self) };
            self.sched.advance_to(next);
            self.apply_outages();
            for node in self.nodes() {
                if node.alarm.get().is_some_and(|due| due <= self.sched.now()) {
                    node.ring(self);
                }
            }
        }
    }

    fn crashes_now(&self, place: usize) -> bool {
        let node = self.node(place);
        node.polls.set(node.polls.get() + 1);
        let crashes = !self.closing.get() && node.crashes.contains(&node.polls.get());
        if crashes {
            node.crash(self);
        }
        crashes
    }

    /// Applies the outages that are due.
    fn apply_outages(&self) {
        self.directory.down.set(self.within(self.ledger.scenario.directory_down));
        self.blobs.down.set(self.within(self.ledger.scenario.blobs_down));
        let scenario = &self.ledger.scenario;
        let ledger_down = self.within(scenario.ledger_down);
        let ms = self.sched.now() - START;
        let lost = scenario.ledger_unanswered.iter().filter(|at| **at <= ms).count();
        let lost = u32::try_from(lost).unwrap_or_default();
        let more = lost - self.accounts_lost.replace(lost);
        self.inbox.down.set(ledger_down);
        self.inbox.unanswered.set(self.inbox.unanswered.get() + more);
        if ledger_down || self.inbox.unanswered.get() > 0 {
            self.inbox_trouble_at.set(self.sched.now());
        }
        if self.limits().quota().is_empty() {
            self.accounts.down.set(ledger_down);
            self.accounts.unanswered.set(self.accounts.unanswered.get() + more);
        }
    }

    fn within(&self, outage: Option<(u64, u64)>) -> bool {
        let ms = self.sched.now() - START;
        outage.is_some_and(|(from, to)| (from..to).contains(&ms))
    }

    /// Drops the parts of the world, which reference each other.
    pub fn dismantle(&self) {
        self.nodes().iter().for_each(|node| node.crash(self));
        self.sched.clear();
        self.nodes.take();
        self.agent.take();
        self.workspaces.take();
        self.ledger.runs.take();
    }
}
