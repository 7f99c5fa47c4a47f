//! Sessions in memory, for tests of your own tools and hooks:
//!
//! ```
//! use edge_harness::testkit::TestSession;
//!
//! // With a tool of your own: `|agent| agent.tool(Dice)`.
//! let session = TestSession::new(|agent| agent);
//! assert_eq!(session.ask("/tool echo {\"text\": \"hi\"}"), "echo → hi");
//! ```

#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by a panic")]

use crate::agent::{HarnessBuilder, HostConfig, OnBusy, Post, SessionHost, host::HostPorts};
use crate::memory::{Memories, MemorySettings};
use crate::model::{ModelRegistry, ModelSettings, one_shot::OneShotModel};
use crate::platform::in_memory::{
    InMemoryDirectory, InMemoryIndex, InMemorySpaces, ManualClock, MemoryBlobs, MemoryFiles, MemoryLog,
    MemorySessionStore, NoPeers, ScriptedHttp, ScriptedModels, SeededEntropy, TaskPool,
    models::ScriptedResponse,
};
use crate::ports::Models;
use crate::session::{Session, window::Bounds};
use crate::standard::{Config, Standard, builder};
use crate::types::{ModelRequest, Owner, Part, SessionMeta, TurnEnd, TurnId};
use crate::workspace::{Bundle, Stores, Workspaces};
use std::rc::Rc;
use std::time::Duration;

/// Step by which the clock advances while a turn waits.
const STEP: Duration = Duration::from_millis(100);
/// Maximum duration of a turn on that clock.
const MAX_TURN: Duration = Duration::from_hours(1);

/// One session of the standard agent, with every port in memory.
pub struct TestSession {
    /// The time. It starts at midnight UTC, and moves only while a turn waits or when you move it.
    pub clock: ManualClock,
    /// The network of the built-in tools and providers. It is offline until you queue responses.
    pub http: Rc<ScriptedHttp>,
    /// What the agent logged.
    pub log: Rc<MemoryLog>,
    host: Rc<SessionHost>,
    tasks: Rc<TaskPool>,
}

impl TestSession {
    /// Creates a session with the model `demo/echo`: it calls a tool when the user writes
    /// `/tool NAME {arguments}`. `customize` adds your tools and hooks to the agent.
    pub fn new(customize: impl FnOnce(HarnessBuilder) -> HarnessBuilder) -> Self {
        let (clock, http) = (ManualClock::default(), Rc::<ScriptedHttp>::default());
        let models = ModelRegistry::new(ModelSettings::default(), http.clone(), None, Rc::new(clock.clone()));
        Self::with(clock, http, Rc::new(models), customize)
    }

    /// Creates a session whose model responds to each request with `script`.
    pub fn scripted(
        script: impl Fn(&ModelRequest) -> ScriptedResponse + 'static,
        customize: impl FnOnce(HarnessBuilder) -> HarnessBuilder,
    ) -> Self {
        let models = Rc::new(ScriptedModels::new(script));
        Self::with(ManualClock::default(), Rc::default(), models, customize)
    }

    fn with(
        clock: ManualClock,
        http: Rc<ScriptedHttp>,
        models: Rc<dyn Models>,
        customize: impl FnOnce(HarnessBuilder) -> HarnessBuilder,
    ) -> Self {
        let (time, entropy) = (Rc::new(clock.clone()), Rc::new(SeededEntropy::default()));
        let (blobs, log) = (Rc::new(MemoryBlobs::default()), Rc::new(MemoryLog::default()));
        let (index, directory) = (Rc::<InMemoryIndex>::default(), Rc::<InMemoryDirectory>::default());
        let stores = Stores {
            table: Rc::new(MemoryFiles::default()),
            blobs: blobs.clone(),
            clock: time.clone(),
            entropy: entropy.clone(),
        };
        let files = Rc::new(Workspaces::new(stores, Bundle::default()));
        let one_shot = OneShotModel { models: models.clone(), clock: time.clone(), entropy: entropy.clone() };
        let spaces = Rc::new(InMemorySpaces::new(index.clone()));
        let memory = MemorySettings::default();
        let memories = Memories::new(index, spaces, files.clone(), one_shot, memory, log.clone());
        let config = Config::default();
        let standard = Standard {
            models,
            clock: time.clone(),
            entropy: entropy.clone(),
            http: http.clone(),
            log: log.clone(),
            files,
            memories: Rc::new(memories),
            directory: directory.clone(),
            context: config.context(),
            web_fetch_allow: config.web_fetch_allow,
            instructions: config.instructions,
            settings: config.agent,
        };
        let agent = customize(builder(standard)).build().expect("an agent that builds");
        let tasks = Rc::new(TaskPool::default());
        let ports = HostPorts {
            store: Rc::new(MemorySessionStore::default()),
            directory,
            blobs,
            clock: time,
            entropy,
            spawner: tasks.clone(),
            peers: Rc::new(NoPeers),
            broadcast: None,
        };
        let host = SessionHost::new(ports, Rc::new(agent), HostConfig { context: Bounds::wide() });
        Self { clock, http, log, host, tasks }
    }

    /// Sends a message and returns the text of the reply, which is empty when the turn ended without one.
    #[track_caller]
    pub fn ask(&self, message: &str) -> String {
        self.turn(message).reply.map(|reply| reply.text).unwrap_or_default()
    }

    /// Sends a message and returns the end of its turn. Panics when the turn does not end within an hour of
    /// [`TestSession::clock`], for example because it waits for an approval.
    #[track_caller]
    pub fn turn(&self, message: &str) -> TurnEnd {
        let session = self.session();
        let turn = self.host.new_id::<TurnId>();
        let post = Post {
            turn: turn.clone(),
            parts: vec![Part::text(message)],
            budget: Default::default(),
            options: Default::default(),
            on_busy: OnBusy::Queue,
            response: None,
        };
        self.host.post(&session, post).expect("a session that takes messages");
        let latest = self.host.now() + MAX_TURN;
        while self.host.now() < latest {
            self.tasks.run();
            if let Some(end) = session.turn_ended(&turn).expect("a store that works") {
                return end;
            }
            self.clock.advance(STEP);
        }
        panic!("the turn did not end: it may wait for an approval or an answer");
    }

    /// Returns the session itself, for assertions about its log and state.
    pub fn session(&self) -> Rc<Session> {
        let open = self.host.open().expect("a store that works");
        open.unwrap_or_else(|| {
            let owner = Owner { tenant: "test".into(), agent: "default".into(), user: "test".into() };
            self.host.blank(SessionMeta::new("test".into(), owner, self.host.now()))
        })
    }
}
