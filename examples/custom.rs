//! Adds a custom tool and a custom hook to the standard agent and runs one turn natively:
//!
//! ```sh
//! cargo run --no-default-features --example custom
//! ```
//!
//! To use them in the Worker, make the same two calls in `worker/src/lib.rs`.

#![allow(clippy::expect_used)]

use edge_harness::agent::{
    ActDecision, Bounds, Hook, HostConfig, OnBusy, Post, RuntimeContext, SessionHost, Settings, Tool,
    ToolContext, ToolError,
    hook::{HookEvent, PreActing},
    host::HostPorts,
};
use edge_harness::memory::{Memories, MemorySettings};
use edge_harness::model::{ModelRegistry, ModelSettings, one_shot::OneShotModel};
use edge_harness::platform::in_memory::{
    InMemoryDirectory, InMemoryIndex, InMemorySpaces, ManualClock, MemoryBlobs, MemoryFiles, MemoryLog,
    MemorySessionStore, NoPeers, ScriptedHttp, SeededEntropy, TaskPool,
};
use edge_harness::standard::{Standard, builder};
use edge_harness::types::{Category, Effect, Owner, Part, SessionMeta, Timestamp};
use edge_harness::workspace::{Bundle, Stores, Workspaces};
use std::rc::Rc;

/// Rolls dice.
struct Dice;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Roll {
    /// Number of sides of each die.
    sides: u64,
    /// Number of dice to roll.
    count: u64,
}

impl Tool for Dice {
    type Args = Roll;
    type Output = Vec<u64>;
    const NAME: &'static str = "dice";
    const DESCRIPTION: &'static str = "Rolls dice.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    async fn run(&self, roll: Roll, cx: ToolContext) -> Result<Vec<u64>, ToolError> {
        if roll.sides == 0 || roll.count > 100 {
            return Err(ToolError::new("`sides` must be at least 1 and `count` at most 100"));
        }
        let seed = cx.clock.now().0;
        Ok((1..=roll.count).map(|die| seed.wrapping_mul(die * 2_654_435_761) % roll.sides + 1).collect())
    }
}

/// Denies the dice at night.
struct Curfew;

#[async_trait::async_trait(?Send)]
impl Hook for Curfew {
    fn name(&self) -> &'static str {
        "curfew"
    }

    fn events(&self) -> &'static [HookEvent] {
        &[HookEvent::PreActing]
    }

    async fn pre_acting(&self, event: &mut PreActing<'_>, cx: &RuntimeContext) -> ActDecision {
        let hour = cx.clock.now().0 / 3_600_000 % 24;
        match event.spec.map(|spec| spec.name.as_str()) {
            Some("dice") if hour < 6 => ActDecision::Deny("no games before 06:00 UTC".into()),
            _ => ActDecision::Continue,
        }
    }
}

fn main() {
    for hour in [3, 12] {
        println!("{hour:02}:00  {}", turn(hour, "/tool dice {\"sides\": 6, \"count\": 3}"));
    }
}

/// Runs a turn at this hour and returns the reply.
fn turn(hour: u64, said: &str) -> String {
    let clock = Rc::new(ManualClock::at(Timestamp(hour * 3_600_000)));
    let (entropy, http) = (Rc::new(SeededEntropy::default()), Rc::new(ScriptedHttp::default()));
    let blobs = Rc::new(MemoryBlobs::default());
    let stores = Stores {
        table: Rc::new(MemoryFiles::default()),
        blobs: blobs.clone(),
        clock: clock.clone(),
        entropy: entropy.clone(),
    };
    let models = Rc::new(ModelRegistry::new(ModelSettings::default(), http.clone(), None, clock.clone()));
    let (files, log) = (Rc::new(Workspaces::new(stores, Bundle::default())), Rc::new(MemoryLog::default()));
    let index = Rc::new(InMemoryIndex::default());
    let memories = Memories::new(
        index.clone(),
        Rc::new(InMemorySpaces::new(index)),
        files.clone(),
        OneShotModel { models: models.clone(), clock: clock.clone(), entropy: entropy.clone() },
        MemorySettings::default(),
        log.clone(),
    );
    let agent = builder(Standard {
        models,
        clock: clock.clone(),
        entropy: entropy.clone(),
        http,
        log,
        files,
        memories: Rc::new(memories),
        directory: Rc::new(InMemoryDirectory::default()),
        web_fetch_allow: String::new(),
        instructions: None,
        settings: Settings::default(),
        context: Default::default(),
    })
    .tool(Dice)
    .hook(Curfew)
    .build()
    .expect("unique names");

    let tasks = Rc::new(TaskPool::default());
    let ports = HostPorts {
        store: Rc::new(MemorySessionStore::default()),
        directory: Rc::new(InMemoryDirectory::default()),
        blobs,
        clock,
        entropy,
        spawner: tasks.clone(),
        peers: Rc::new(NoPeers),
        broadcast: None,
    };
    let host = SessionHost::new(ports, Rc::new(agent), HostConfig { context: Bounds::messages(100) });
    let owner = Owner { tenant: "local".into(), agent: "default".into(), user: "default".into() };
    let session = host.blank(SessionMeta::new("example", owner, host.now()));
    let (turn, parts) = ("trn_1".to_owned(), vec![Part::text(said)]);
    let post = Post {
        turn,
        parts,
        budget: Default::default(),
        options: Default::default(),
        on_busy: OnBusy::Queue,
        document: None,
    };
    host.post(&session, post).expect("an idle session accepts a message");
    tasks.run();
    let end = session.turn_ended("trn_1").expect("a working store").expect("a finished turn");
    end.reply.map(|reply| reply.text).unwrap_or_default()
}

#[test]
fn games_are_for_the_day() {
    let roll = "/tool dice {\"sides\": 6, \"count\": 3}";
    assert!(turn(3, roll).contains("no games before 06:00 UTC"));
    assert!(turn(12, roll).starts_with("dice → ["));
}
