//! Runs turns under load and measures their cost.

use crate::target::{Target, Timing};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Maximum time during which a sample starts turns.
const LIMIT: Duration = Duration::from_secs(20);

/// The turns of one target at one concurrency, over all rounds.
#[derive(Default)]
pub struct Sample {
    pub timings: Vec<Timing>,
    pub errors: Vec<String>,
    pub elapsed: Duration,
    pub cpu: Duration,
}

impl Sample {
    /// Returns NaN when no turn succeeded.
    pub fn turns_per_second(&self) -> f64 {
        if self.timings.is_empty() {
            return f64::NAN;
        }
        self.timings.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns milliseconds; NaN when no turn succeeded.
    pub fn cpu_per_turn(&self) -> f64 {
        if self.timings.is_empty() {
            return f64::NAN;
        }
        self.cpu.as_secs_f64() * 1000.0 / self.timings.len() as f64
    }

    pub fn first(&self, quantile: f64) -> f64 {
        percentile(self.timings.iter().map(|timing| timing.first), quantile)
    }

    pub fn total(&self, quantile: f64) -> f64 {
        percentile(self.timings.iter().map(|timing| timing.total), quantile)
    }

    /// Adds `turns` turns by each of `clients` clients, each in its own session.
    pub fn add(&mut self, target: &Target, name: &str, clients: usize, turns: usize, text: &str) {
        let cpu_before = cpu(target);
        let start = Instant::now();
        let client = |number: usize| {
            let session = format!("{name}-{number}");
            let (mut timings, mut errors) = (Vec::new(), Vec::new());
            for _ in 0..turns {
                if start.elapsed() > LIMIT {
                    break;
                }
                match target.turn(&session, text) {
                    Ok(timing) => timings.push(timing),
                    Err(e) => errors.push(e.to_string()),
                }
            }
            (timings, errors)
        };
        thread::scope(|scope| {
            let running: Vec<_> = (0..clients).map(|number| scope.spawn(move || client(number))).collect();
            for (timings, errors) in running.into_iter().filter_map(|client| client.join().ok()) {
                self.timings.extend(timings);
                self.errors.extend(errors);
            }
        });
        self.elapsed += start.elapsed();
        // Work after the reply is part of a turn's cost.
        thread::sleep(Duration::from_millis(300));
        self.cpu += cpu(target) - cpu_before;
    }
}

fn cpu(target: &Target) -> Duration {
    target.server().map(|server| server.cpu()).unwrap_or_default()
}

/// Returns milliseconds; NaN when there are no durations.
pub fn percentile(durations: impl Iterator<Item = Duration>, quantile: f64) -> f64 {
    let mut sorted: Vec<Duration> = durations.collect();
    sorted.sort_unstable();
    let at = (sorted.len() as f64 * quantile) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).map_or(f64::NAN, |d| d.as_secs_f64() * 1000.0)
}
