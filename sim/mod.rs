//! The simulator: the real core, driven through the requests of its clients, in a world where time,
//! chance, models, tools, disks and crashes follow from one number.
//!
//! | file | what it is |
//! |---|---|
//! | `plan` | a seed becomes a plan: who says what and when, what breaks |
//! | `world` | plays a plan to its end |
//! | `sched` | virtual time, and which task runs next |
//! | `node`, `disk` | a session's object: a machine that comes and goes, a disk that stays |
//! | `client`, `reader` | who talks to it, and what they saw |
//! | `people` | who is asked about calls, and what they say |
//! | `errands` | what subagents are sent out for, and what comes between sessions |
//! | `model`, `aside`, `tools` | what the core talks to |
//! | `ledger` | the ledger of what really happened, and the trace |
//! | `invariants` | what must hold in the end |
//!
//! One run has one thread and nothing from ledger: the same seed gives the same trace.

#![allow(dead_code, clippy::expect_used, clippy::unwrap_used, reason = "a test, used by two targets")]

pub mod client;
pub mod dice;
pub mod disk;
pub mod invariants;
pub mod ledger;
pub mod model;
pub mod node;
pub mod one_shot;
pub mod people;
pub mod reader;
pub mod scenario;
pub mod sched;
pub mod subagents;
pub mod sweep;
pub mod tools;
pub mod world;

use ledger::Finding;
use scenario::Scenario;
use world::World;

/// What a run found, and how it came to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub seed: u64,
    pub findings: Vec<Finding>,
    /// How often a turn had to wait for a person.
    pub waits: u64,
    /// How often its machine went away meanwhile.
    pub restarts: u64,
    /// How many subagents were sent out.
    pub spawned: u64,
    /// Empty unless asked for.
    pub trace: Vec<String>,
}

/// Plays one seed.
pub fn play(seed: u64, traced: bool) -> Report {
    let scenario = Scenario::of(seed);
    let world = World::play(&scenario, traced);
    invariants::check(&world);
    if scenario.quiet && world.ledger.findings.borrow().is_empty() {
        let reference = World::play(&scenario.undisturbed(), false);
        invariants::same(&world, &reference);
        reference.dismantle();
    }
    world.dismantle();
    let ledger = &world.ledger;
    let (waits, restarts, spawned) = (ledger.waits.get(), ledger.restarts.get(), ledger.spawned.get());
    Report { seed, findings: ledger.findings.take(), waits, restarts, spawned, trace: ledger.trace() }
}

impl Report {
    /// What to print of a seed that failed.
    pub fn print(&self) -> String {
        let mut out = self.trace.join("\n");
        for Finding { invariant, evidence } in &self.findings {
            out.push_str(&format!("\nseed {}: invariant {invariant} is broken: {evidence}", self.seed));
        }
        out
    }
}
