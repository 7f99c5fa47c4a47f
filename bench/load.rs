//! Runs turns under load and measures their cost.

use crate::target::{Target, Timing};
use std::{
    io, thread,
    time::{Duration, Instant},
};

/// Maximum time during which a sample starts turns.
const LIMIT: Duration = Duration::from_secs(20);

/// How long a target is left alone before its CPU time is read, so that the work after the replies counts: follow-ups
/// start two seconds after the last turn of a session.
pub const SETTLE: Duration = Duration::from_millis(4_000);

/// The turns of one target at one concurrency, over all rounds.
#[derive(Default)]
pub struct Sample {
    pub timings: Vec<Timing>,
    pub errors: Vec<String>,
    pub elapsed: Duration,
    /// CPU time per turn of each round, in milliseconds.
    cpu: Vec<f64>,
}

/// The median, the lowest and the highest value of all rounds. All are NaN when there are none.
#[derive(Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
        Self { median: at(values.len() / 2), low: at(0), high: at(values.len().saturating_sub(1)) }
    }
}

impl Sample {
    /// Returns NaN when no turn succeeded.
    pub fn turns_per_second(&self) -> f64 {
        if self.timings.is_empty() {
            return f64::NAN;
        }
        self.timings.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns milliseconds.
    pub fn cpu_per_turn(&self) -> Spread {
        Spread::of(self.cpu.clone())
    }

    /// Returns the ratios of the CPU time per turn to that of another sample in the same round: the rounds themselves differ
    /// more, because the machine is shared and the runtime's own state changes.
    pub fn cpu_to(&self, other: &Self) -> Spread {
        Spread::of(self.cpu.iter().zip(&other.cpu).map(|(own, other)| own / other).collect())
    }

    pub fn first(&self, quantile: f64) -> f64 {
        percentile(self.timings.iter().map(|timing| timing.first), quantile)
    }

    pub fn total(&self, quantile: f64) -> f64 {
        percentile(self.timings.iter().map(|timing| timing.total), quantile)
    }

    /// Adds `turns` turns by each of `clients` clients, each in its own session.
    pub fn add(&mut self, target: &Target, name: &str, clients: usize, turns: usize, text: &str) {
        self.add_with(target, name, clients, turns, &|session| target.turn(session, text));
    }

    /// Adds turns that `run` runs in the session with this name.
    pub fn add_with(
        &mut self,
        target: &Target,
        name: &str,
        clients: usize,
        turns: usize,
        run: &(dyn Fn(&str) -> io::Result<Timing> + Sync),
    ) {
        let (before, cpu_before) = (self.timings.len(), cpu(target));
        let start = Instant::now();
        let client = |number: usize| {
            let session = format!("{name}-{number}");
            let (mut timings, mut errors) = (Vec::new(), Vec::new());
            for _ in 0..turns {
                if start.elapsed() > LIMIT {
                    break;
                }
                match run(&session) {
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
        let succeeded = self.timings.len() - before;
        if succeeded > 0 && target.server().is_some() {
            thread::sleep(SETTLE);
            self.cpu.push((cpu(target) - cpu_before).as_secs_f64() * 1000.0 / succeeded as f64);
        }
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
