//! Many seeds, on several threads.

use super::{Report, play};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

/// What came of many seeds.
pub struct SweepResult {
    /// The report of the lowest seed that failed so far, with its trace.
    pub failed: Option<Report>,
    /// How many were played.
    pub played: u64,
    /// In how many of them a turn had to wait for a person.
    pub waited: u64,
    /// In how many its machine went away meanwhile.
    pub restarted: u64,
    /// In how many of them subagents were sent out.
    pub spawned: u64,
}

/// Plays `count` seeds from `from` on. `prepare` runs once on each thread.
pub fn sweep(from: u64, count: u64, jobs: usize, prepare: impl Fn() + Sync) -> SweepResult {
    let (next, played, stop) = (AtomicU64::new(from), AtomicU64::new(0), AtomicBool::new(false));
    let (waited, restarted, spawned) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let failed: Mutex<Option<u64>> = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                prepare();
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
                    if !report.findings.is_empty() {
                        stop.store(true, Ordering::Relaxed);
                        let mut failed = failed.lock().expect("nobody panicked");
                        *failed = Some(failed.map_or(seed, |lowest| lowest.min(seed)));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("nobody panicked");
    let failed = failed.map(|seed| {
        prepare();
        play(seed, true)
    });
    let (played, waited, restarted) = (played.into_inner(), waited.into_inner(), restarted.into_inner());
    SweepResult { failed, played, waited, restarted, spawned: spawned.into_inner() }
}
