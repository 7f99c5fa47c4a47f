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

use crate::agent::{
    HarnessBuilder, HostConfig, OnBusy, Post, SessionHost,
    host::{
        HostPorts,
        suspensions::{ApprovalDecision, CallAnswer},
    },
};
use crate::memory::{Memories, MemorySettings};
use crate::model::{ModelRegistry, ModelSettings, one_shot::OneShotModel};
use crate::platform::in_memory::{
    InMemoryCredentials, InMemoryDirectory, InMemoryInbox, InMemoryIndex, InMemoryLedger, InMemorySpaces,
    ManualClock, MemoryBlobs, MemoryFiles, MemoryLog, MemorySessionStore, NoPeers, ScriptedHttp,
    ScriptedModels, SeededEntropy, TaskPool, models::ScriptedResponse,
};
use crate::ports::Models;
use crate::session::{Session, window::Bounds};
use crate::standard::{Config, Standard, builder};
use crate::types::{
    CallId, Decision, ModelRequest, Owner, Part, Pending, ResolvedBy, Rules, SessionMeta, TenantPolicy,
    TurnEnd, TurnId,
};
use crate::workspace::{Bundle, Stores, Workspaces};
use serde_json::Value;
use std::rc::Rc;
use std::time::Duration;

/// Step by which the clock advances while a turn waits.
const STEP: Duration = Duration::from_millis(100);
/// Maximum duration of a turn on that clock.
const MAX_TURN: Duration = Duration::from_hours(1);

/// What a turn has come to.
#[derive(Debug)]
pub enum Progress {
    /// It ended.
    Ended(Box<TurnEnd>),
    /// It waits for an approval of, or an answer to, each of these calls.
    Waiting(Vec<Pending>),
}

impl Progress {
    /// Returns the end of the turn. Panics when the turn waits.
    #[track_caller]
    pub fn ended(self) -> TurnEnd {
        match self {
            Self::Ended(end) => *end,
            Self::Waiting(calls) => panic!("the turn waits for an approval or an answer: {calls:?}"),
        }
    }

    /// Returns the calls that the turn waits for. Panics when the turn ended.
    #[track_caller]
    pub fn waiting(self) -> Vec<Pending> {
        match self {
            Self::Waiting(calls) => calls,
            Self::Ended(end) => panic!("the turn ended: {end:?}"),
        }
    }
}

/// The session's tenant.
const TENANT: &str = "test";

/// One session of the standard agent, with every port in memory.
pub struct TestSession {
    /// The time. It starts at midnight UTC, and moves only while a turn runs or when you move it.
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
        let table = Rc::new(MemoryFiles::default());
        let stores = Stores::new(table, blobs.clone(), time.clone(), entropy.clone());
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
            ledger: Rc::new(InMemoryLedger::new(time.clone())),
            inbox: Rc::new(InMemoryInbox::new(time.clone())),
            credentials: Rc::<InMemoryCredentials>::default(),
            blobs,
            clock: time,
            entropy,
            spawner: tasks.clone(),
            peers: Rc::new(NoPeers),
            agents: None,
            webhooks: None,
            broadcast: None,
        };
        let host = SessionHost::new(
            ports,
            Rc::new(agent),
            HostConfig { context: Bounds::wide(), limits: config.limits },
        );
        Self { clock, http, log, host, tasks }
    }

    /// Sends a message and returns the text of the reply, which is empty when the turn ended without one.
    #[track_caller]
    pub fn ask(&self, message: &str) -> String {
        self.turn(message).reply.map(|reply| reply.text).unwrap_or_default()
    }

    /// Sends a message and returns the end of its turn. Panics when the turn waits for an approval or an
    /// answer: use [`TestSession::send`] for such turns.
    #[track_caller]
    pub fn turn(&self, message: &str) -> TurnEnd {
        self.send(message).ended()
    }

    /// Sends a message and runs its turn until it ends or waits. Panics when it does neither within an hour of
    /// [`TestSession::clock`].
    #[track_caller]
    pub fn send(&self, message: &str) -> Progress {
        let turn = self.host.new_id::<TurnId>();
        let post = Post {
            turn: turn.clone(),
            parts: vec![Part::text(message)],
            budget: Default::default(),
            options: Default::default(),
            on_busy: OnBusy::Queue,
            webhook: None,
            response: None,
            slot_until: None,
        };
        self.host.post(&self.session(), post).expect("a session that takes messages");
        self.run(&turn)
    }

    /// Sets the permission rules of the session's tenant. Without rules, every call runs without an approval.
    pub fn permit(&self, rules: Rules) {
        let limits = self.host.tenant_limits();
        let policy = TenantPolicy { rules, limits, version: self.host.now().0 };
        self.host.apply_tenant_policy(&TENANT.into(), &policy).expect("a store that works");
    }

    /// Approves a suspended call and continues its turn.
    #[track_caller]
    pub fn approve(&self, call: &CallId) -> Progress {
        self.decide(call, Decision::Approve, None)
    }

    /// Declines a suspended call, for a reason that the model reads, and continues its turn.
    #[track_caller]
    pub fn decline(&self, call: &CallId, reason: &str) -> Progress {
        self.decide(call, Decision::Decline, Some(reason.to_owned()))
    }

    /// Answers a suspended call and continues its turn.
    #[track_caller]
    pub fn answer(&self, call: &CallId, answer: Value) -> Progress {
        let turn = self.current_turn();
        let answered =
            self.host.answer(&self.session(), call, CallAnswer::Answer(answer), ResolvedBy::default());
        answered.expect("a call that waits for this answer");
        self.run(&turn)
    }

    #[track_caller]
    fn decide(&self, call: &CallId, decision: Decision, reason: Option<String>) -> Progress {
        let turn = self.current_turn();
        let decision = ApprovalDecision { decision, reason, args: None, args_hash: None, is_approver: true };
        let decided = self.host.decide(&self.session(), call, decision, ResolvedBy::default());
        decided.expect("a call that waits for an approval");
        self.run(&turn)
    }

    #[track_caller]
    fn current_turn(&self) -> TurnId {
        let session = self.session();
        session.state().activity.turn.as_ref().expect("a turn that waits").id.clone()
    }

    #[track_caller]
    fn run(&self, turn: &TurnId) -> Progress {
        let session = self.session();
        let latest = self.host.now() + MAX_TURN;
        while self.host.now() < latest {
            self.tasks.run();
            if let Some(end) = session.turn_ended(turn).expect("a store that works") {
                return Progress::Ended(Box::new(end));
            }
            let pending = session.pending().expect("a store that works");
            if !pending.is_empty() {
                return Progress::Waiting(pending);
            }
            self.clock.advance(STEP);
        }
        panic!("the turn neither ended nor waited within an hour");
    }

    /// Returns the session itself, for assertions about its log and state.
    pub fn session(&self) -> Rc<Session> {
        let open = self.host.open().expect("a store that works");
        open.unwrap_or_else(|| {
            let owner = Owner { tenant: TENANT.into(), agent: "default".into(), user: "test".into() };
            self.host.blank(SessionMeta::new("test".into(), owner, self.host.now()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::TestSession;
    use crate::types::{Policy, Rules};
    use serde_json::json;
    use std::collections::BTreeMap;

    const ECHO: &str = "/tool echo {\"text\": \"hi\"}";

    /// A session in which every call of `echo` needs an approval.
    fn careful() -> TestSession {
        let session = TestSession::new(|agent| agent);
        let tools = BTreeMap::from([("echo".to_owned(), Policy::Ask)]);
        session.permit(Rules { tools, ..Rules::default() });
        session
    }
    const QUESTION: &str = r#"/tool ask_user {"question": "Which color?"}"#;

    #[test]
    fn an_approved_call_runs_and_a_declined_one_does_not() {
        let session = careful();
        let calls = session.send(ECHO).waiting();
        let reply = session.decline(&calls[0].call_id, "not today").ended().reply.unwrap();
        assert!(reply.text.contains("not today"), "{}", reply.text);
        let calls = session.send(ECHO).waiting();
        let reply = session.approve(&calls[0].call_id).ended().reply.unwrap();
        assert!(reply.text.starts_with("echo → hi"), "{}", reply.text);
    }

    #[test]
    fn an_answer_continues_the_turn() {
        let session = TestSession::new(|agent| agent);
        let calls = session.send(QUESTION).waiting();
        let reply = session.answer(&calls[0].call_id, json!("green")).ended().reply.unwrap();
        assert!(reply.text.contains("green"), "{}", reply.text);
    }

    #[test]
    #[should_panic(expected = "the turn waits for an approval or an answer")]
    fn a_turn_that_waits_has_no_end() {
        careful().turn(ECHO);
    }
}
