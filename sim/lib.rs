//! The simulator: runs the real core, driven by its clients' requests, in a world where time, randomness,
//! models, tools, disks and crashes are all derived from one seed.
//!
//! | file | contents |
//! |---|---|
//! | `scenario` | derives a scenario from a seed: messages, responses, and failures |
//! | … `people`, `operator`, `subagents` | the rules that people and the operator set, the tasks of subagents |
//! | `run` | plays a scenario to its end |
//! | `world` | the objects of the sessions, and the network between them |
//! | … `node` | a session's object: instances that are evicted |
//! | `disk` | its disk, which survives |
//! | `sched` | virtual time, and the choice of the task that runs next |
//! | `client`, `reader` | the clients |
//! | … `people`, `gateway` | decisions on suspended calls, and the principal of each request |
//! | `witness`, `caller` | what clients observe, and their credentials |
//! | `model`, `tools` | the simulated model and tools |
//! | … `one_shot` | the model's calls outside of turns |
//! | `ledger` | the actual runs and requests, and the trace |
//! | … `planner`, `runner` | the model of a run, and the tools of its runners |
//! | `runs` | worlds whose session is a run, with clients and invariants of their own |
//! | `invariants` | the conditions that must hold |
//! | `faults` | planted defects, which the invariants must find |
//!
//! A run is single-threaded and uses nothing from outside: the same seed gives the same trace.

pub mod caller;
pub mod client;
pub mod dice;
pub mod disk;
pub mod faults;
pub mod inbox_reader;
pub mod invariants;
pub mod ledger;
pub mod model;
pub mod reader;
pub mod run;
pub mod runs;
pub mod scenario;
pub mod sched;
pub mod sweep;
pub mod tools;
pub mod witness;
pub mod world;

use ledger::Finding;
use run::run;
use scenario::Scenario;

/// A quarter of the time is spent on allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The result of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub seed: u64,
    pub findings: Vec<Finding>,
    /// Number of times a turn waited for a person.
    pub waits: u64,
    /// Number of evictions while a turn was waiting.
    pub restarts: u64,
    /// Number of spawned subagents.
    pub spawned: u64,
    /// Number of background tasks.
    pub tasks: u64,
    /// Whether there was a world with a run.
    pub has_run: bool,
    /// The trace, if it was requested.
    pub trace: Vec<String>,
}

/// Plays one seed.
pub fn play(seed: u64, traced: bool) -> Report {
    let scenario = Scenario::of(seed);
    let world = run(&scenario, traced);
    invariants::check(&world);
    if scenario.quiet && world.ledger.findings.borrow().is_empty() {
        let reference = run(&scenario.undisturbed(), false);
        invariants::same(&world, &reference);
        reference.dismantle();
    }
    world.dismantle();
    let ledger = &world.ledger;
    let (waits, restarts, spawned) = (ledger.waits.get(), ledger.restarts.get(), ledger.spawned.get());
    let (tasks, mut findings, mut trace) = (ledger.tasks.get(), ledger.findings.take(), ledger.trace());
    let run = runs::play(seed, traced);
    if let Some(ledger) = &run {
        findings.extend(ledger.findings.take());
        trace.extend(ledger.trace());
    }
    Report { seed, findings, waits, restarts, spawned, tasks, has_run: run.is_some(), trace }
}

impl Report {
    /// Formats the trace and the findings.
    pub fn print(&self) -> String {
        let mut out = self.trace.join("\n");
        for Finding { invariant, evidence } in &self.findings {
            out.push_str(&format!("\nseed {}: invariant {invariant} is violated: {evidence}", self.seed));
        }
        out
    }
}
