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
//! | `outside` | the ledger of what really happened, and the trace |
//! | `invariants` | what must hold in the end |
//!
//! One run has one thread and nothing from outside: the same seed gives the same trace.

#![allow(dead_code, clippy::expect_used, clippy::unwrap_used, reason = "a test, used by two targets")]

pub mod aside;
pub mod client;
pub mod dice;
pub mod disk;
pub mod errands;
pub mod invariants;
pub mod model;
pub mod node;
pub mod outside;
pub mod people;
pub mod plan;
pub mod reader;
pub mod sched;
pub mod sweep;
pub mod tools;
pub mod world;

use outside::Finding;
use plan::Plan;
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
    pub sent: u64,
    /// Empty unless asked for.
    pub trace: Vec<String>,
}

/// Plays one seed.
pub fn play(seed: u64, traced: bool) -> Report {
    let plan = Plan::of(seed);
    let world = World::play(&plan, traced);
    invariants::check(&world);
    if plan.quiet && world.outside.findings.borrow().is_empty() {
        let reference = World::play(&plan.undisturbed(), false);
        invariants::same(&world, &reference);
        reference.dismantle();
    }
    world.dismantle();
    let outside = &world.outside;
    let (waits, restarts, sent) = (outside.waits.get(), outside.restarts.get(), outside.sent.get());
    Report { seed, findings: outside.findings.take(), waits, restarts, sent, trace: outside.trace() }
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
