//! `make sim`: runs many seeds, or one seed with its trace.
//!
//! `--faults` shows which invariant finds each defect of `faults.toml`, and with which seed ·
//! `--seeds N` number of seeds · `--from S` first seed · `--jobs N` threads · `--seed S` one seed, with its
//! trace

use std::{io, process::ExitCode, time::Instant};

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
        return faults().unwrap_or_else(|error| {
            eprintln!("sim/faults.toml: {error}");
            ExitCode::FAILURE
        });
    }
    let (from, seeds) = (number("--from").unwrap_or(0), number("--seeds").unwrap_or(10_000));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = number("--jobs").and_then(|jobs| usize::try_from(jobs).ok()).unwrap_or(cores);
    let started = Instant::now();
    let swept = sim::sweep::sweep(from, seeds, jobs);
    let sim::sweep::SweepResult { failed, played, waited, restarted, spawned, tasks, runs } = swept;
    let seconds = started.elapsed().as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    let rate = played as f64 / seconds;
    match failed {
        None => {
            println!("{played} seeds from {from} on: no findings ({seconds:.1} s, {rate:.0} a second)");
            println!("turns waited for people in {waited} of them, in {restarted} of these across a restart");
            println!("subagents were spawned in {spawned} of them, in {tasks} for the background");
            println!("a run was played in {runs} of them");
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
fn faults() -> io::Result<ExitCode> {
    let simulator = sim::faults::build()?;
    let mut code = ExitCode::SUCCESS;
    for fault in sim::faults::all()? {
        let found = fault.find(&simulator)?;
        if found.is_none() {
            code = ExitCode::FAILURE;
        }
        let found: String = found.as_deref().unwrap_or("not found").chars().take(120).collect();
        println!("{:<20} {found}", fault.name);
    }
    Ok(code)
}
