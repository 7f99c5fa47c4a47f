//! Many seeds, on several threads.

use super::{Report, play};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

/// Plays `count` seeds from `from` on. Returns the report of the lowest seed that failed so far, with
/// its trace, and how many were played. `prepare` runs once on each thread.
pub fn sweep(from: u64, count: u64, jobs: usize, prepare: impl Fn() + Sync) -> (Option<Report>, u64) {
    let (next, played, stop) = (AtomicU64::new(from), AtomicU64::new(0), AtomicBool::new(false));
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
    let report = failed.map(|seed| {
        prepare();
        play(seed, true)
    });
    (report, played.into_inner())
}
