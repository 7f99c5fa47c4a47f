//! `make sim`: runs many seeds, or one seed with its trace.
//!
//! `--faults` shows which invariant finds each defect of `src/fault.rs`, and with which seed ·
//! `--seeds N` number of seeds · `--from S` first seed · `--jobs N` threads · `--seed S` one seed, with its
//! trace

use edge_harness::fault::{Fault, activate};
use std::{process::ExitCode, time::Instant};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str| {
        let place = words.iter().position(|word| word == name)?;
        words.get(place + 1)?.parse::<u64>().ok()
    };
    if let Some(seed) = number("--seed") {
        let report = sim::play(seed, true);
        println!("{}", report.print());
        return if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if words.iter().any(|word| word == "--faults") {
        return faults();
    }
    let (from, seeds) = (number("--from").unwrap_or(0), number("--seeds").unwrap_or(10_000));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = number("--jobs").and_then(|jobs| usize::try_from(jobs).ok()).unwrap_or(cores);
    let started = Instant::now();
    let swept = sim::sweep::sweep(from, seeds, jobs, || {});
    let sim::sweep::SweepResult { failed, played, waited, restarted, spawned } = swept;
    let seconds = started.elapsed().as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    let rate = played as f64 / seconds;
    match failed {
        None => {
            println!("{played} seeds from {from} on: no findings ({seconds:.1} s, {rate:.0} a second)");
            println!("turns waited for people in {waited} of them, in {restarted} of these across a restart");
            println!("subagents were spawned in {spawned} of them");
            ExitCode::SUCCESS
        }
        Some(report) => {
            println!("{}", report.print());
            println!("after {played} seeds; repeat with: make sim SEED={}", report.seed);
            ExitCode::FAILURE
        }
    }
}

/// Shows for each defect the first seed and invariant that find it.
fn faults() -> ExitCode {
    let mut missed = 0;
    for fault in Fault::ALL {
        let failed = sim::sweep::sweep(1_000, 1_000, 1, || activate(Some(*fault))).failed;
        let found = failed.map(|report| {
            let finding = &report.findings[0];
            let evidence: String = finding.evidence.chars().take(90).collect();
            format!("invariant {:>2} by seed {:>3}: {evidence}", finding.invariant, report.seed)
        });
        missed += u32::from(found.is_none());
        println!("{:<20} {}", format!("{fault:?}"), found.as_deref().unwrap_or("not found"));
    }
    activate(None);
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
