//! Runs many seeds on several threads.

use super::{Report, play};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

/// The result of many seeds.
pub struct SweepResult {
    /// The report of the lowest seed that has failed so far, with its trace.
    pub failed: Option<Report>,
    /// Number of seeds played.
    pub played: u64,
    /// Number of seeds in which a turn waited for a person.
    pub waited: u64,
    /// Number of seeds with an eviction while a turn was waiting.
    pub restarted: u64,
    /// Number of seeds in which subagents were spawned.
    pub spawned: u64,
    /// Number of seeds with background tasks.
    pub tasks: u64,
    /// Number of seeds with a run.
    pub runs: u64,
}

/// Plays `count` seeds, starting at `from`.
pub fn sweep(from: u64, count: u64, jobs: usize) -> SweepResult {
    let (next, played, stop) = (AtomicU64::new(from), AtomicU64::new(0), AtomicBool::new(false));
    let (waited, restarted, spawned) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let (tasks, runs) = (AtomicU64::new(0), AtomicU64::new(0));
    let failed: Mutex<Option<u64>> = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + count {
                        break;
                    }
                    let report = play(seed, false);
                    played.fetch_add(1, Ordering::Relaxed);
                    waited.fetch_add(u64::from(report.waits > 0), Ordering::Relaxed);
                    restarted.fetch_add(u64::from(report.restarts > 0), Ordering::Relaxed);
                    spawned.fetch_add(u64::from(report.spawned > 0), Ordering::Relaxed);
                    tasks.fetch_add(u64::from(report.tasks > 0), Ordering::Relaxed);
                    runs.fetch_add(u64::from(report.has_run), Ordering::Relaxed);
                    if !report.findings.is_empty() {
                        stop.store(true, Ordering::Relaxed);
                        let mut failed = failed.lock().expect("no thread panicked");
                        *failed = Some(failed.map_or(seed, |lowest| lowest.min(seed)));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no thread panicked");
    let failed = failed.map(|seed| play(seed, true));
    let (played, waited, restarted) = (played.into_inner(), waited.into_inner(), restarted.into_inner());
    let (spawned, tasks, runs) = (spawned.into_inner(), tasks.into_inner(), runs.into_inner());
    SweepResult { failed, played, waited, restarted, spawned, tasks, runs }
}
