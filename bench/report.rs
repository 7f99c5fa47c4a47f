//! Prints the results as a table and writes them as JSON, for comparison with the next run.

use crate::Load;
use crate::load::{Sample, Spread};
use serde_json::{Map, Value, json};
use std::{cmp::Ordering, fs, path::Path};

/// The results, in the order of measurement.
#[derive(Default)]
pub struct Report {
    rows: Vec<Row>,
    goals: Vec<(String, f64, f64)>,
    histories: Vec<(usize, f64)>,
    values: Vec<(String, f64, String)>,
    notes: Vec<String>,
}

/// A line of the table.
struct Row {
    target: &'static str,
    load: &'static str,
    /// Highest accepted ratios to the floor: CPU time, total time, time to the first token.
    goals: [f64; 3],
    figures: Figures,
}

/// Figures of one load, in milliseconds except for `turns_per_second` and `errors`.
struct Figures {
    first: [f64; 2],
    total: [f64; 2],
    turns_per_second: f64,
    cpu: Spread,
    errors: usize,
}

impl Report {
    pub fn load(&mut self, target: &'static str, load: &Load, sample: &Sample) {
        if let Some(error) = sample.errors.first() {
            self.note(target, format!("first error at concurrency {}: {error}", load.name));
        }
        let figures = Figures {
            first: [sample.first(0.5), sample.first(0.95)],
            total: [sample.total(0.5), sample.total(0.95)],
            turns_per_second: sample.turns_per_second(),
            cpu: sample.cpu_per_turn(),
            errors: sample.errors.len(),
        };
        self.rows.push(Row { target, load: load.name, goals: load.goals, figures });
    }

    pub fn history(&mut self, messages: usize, sample: &Sample) {
        self.histories.push((messages, sample.first(0.5)));
        self.value(&format!("first token at {messages} messages, p50"), sample.first(0.5), "ms");
        self.value(&format!("first token at {messages} messages, p95"), sample.first(0.95), "ms");
    }

    pub fn value(&mut self, name: &str, value: f64, unit: &str) {
        self.values.push((name.into(), value, unit.into()));
    }

    /// Adds a ratio or a difference with the highest accepted value.
    pub fn goal(&mut self, name: &str, value: f64, goal: f64) {
        self.goals.push((name.into(), value, goal));
    }

    pub fn note(&mut self, target: &str, note: String) {
        self.notes.push(format!("{target}: {note}"));
    }

    pub fn finish(self) {
        let ratios = self.ratios();
        println!(
            "\nclients  target  first p50/p95 ms  total p50/p95 ms  turns/s  CPU ms/turn (lowest–highest)  errors"
        );
        for Row { target, load, figures: f, .. } in &self.rows {
            println!(
                "{load:>7}  {target:<6}  {:>16}  {:>16}  {:>7.0}  {:>28}  {:>6}",
                format!("{:.1} / {:.1}", f.first[0], f.first[1]),
                format!("{:.1} / {:.1}", f.total[0], f.total[1]),
                f.turns_per_second,
                format!("{} ({}–{})", number(f.cpu.median), number(f.cpu.low), number(f.cpu.high)),
                f.errors
            );
        }
        println!();
        for (name, value, unit) in &self.values {
            println!("{name:<50} {:>10} {unit}", number(*value));
        }
        println!("\n{:<50} {:>10}   goal", "ratio", "");
        for (name, ratio, goal) in &ratios {
            let verdict = match ratio.partial_cmp(goal) {
                None => "",
                Some(Ordering::Greater) => "missed",
                Some(_) => "met",
            };
            println!("{name:<50} {:>10}   ≤ {goal} {verdict}", number(*ratio));
        }
        for note in &self.notes {
            println!("note: {note}");
        }
        self.write(&ratios);
    }

    /// Returns the ratios of the Worker to the floors, and to the other version if there is one, with their
    /// goals. Above 1 the Worker is slower or more expensive.
    fn ratios(&self) -> Vec<(String, f64, f64)> {
        let of = |target: &str, load: &str| {
            self.rows.iter().find(|row| row.target == target && row.load == load).map(|row| &row.figures)
        };
        let mut ratios = Vec::new();
        for Row { load, goals, figures: ours, .. } in self.rows.iter().filter(|row| row.target == "ours") {
            let Some(floor) = of("floor", load) else { continue };
            let mut add = |name: &str, ratio, goal| ratios.push((format!("{name} at {load}"), ratio, goal));
            add("CPU per turn", ours.cpu.median / floor.cpu.median, goals[0]);
            add("total time, p50", ours.total[0] / floor.total[0], goals[1]);
            add("first token, p50", ours.first[0] / floor.first[0], goals[2]);
            if let Some(stores) = of("stores", load) {
                add(
                    "CPU per turn (to the floor with our storage)",
                    ours.cpu.median / stores.cpu.median,
                    goals[0],
                );
            }
            if let Some(other) = of("other", load) {
                add("CPU per turn (to other)", ours.cpu.median / other.cpu.median, 1.05);
                add("first token, p50 (to other)", ours.first[0] / other.first[0], 1.05);
            }
        }
        if let (Some((few, short)), Some((many, long))) = (self.histories.first(), self.histories.last()) {
            ratios.push((format!("first token, {many} to {few} messages"), long / short, 1.5));
        }
        ratios.extend(self.goals.iter().cloned());
        ratios
    }

    fn write(&self, ratios: &[(String, f64, f64)]) {
        let loads: Vec<Value> = self
            .rows
            .iter()
            .map(|Row { target, load, figures: f, .. }| {
                json!({"target": target, "clients": load, "first_ms": f.first, "total_ms": f.total,
                    "turns_per_second": f.turns_per_second, "cpu_ms": f.cpu.median,
                    "cpu_ms_range": [f.cpu.low, f.cpu.high], "errors": f.errors})
            })
            .collect();
        let values: Map<_, _> =
            self.values.iter().map(|(name, value, _)| (name.clone(), json!(value))).collect();
        let ratios: Map<_, _> = ratios.iter().map(|(name, ratio, _)| (name.clone(), json!(ratio))).collect();
        let all = json!({"loads": loads, "values": values, "ratios": ratios, "notes": self.notes});
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/results");
        let file = folder.join("latest.json");
        match fs::create_dir_all(folder).and_then(|()| fs::write(&file, format!("{all:#}\n"))) {
            Ok(()) => println!("\nwritten to bench/results/latest.json"),
            Err(e) => eprintln!("could not write {}: {e}", file.display()),
        }
    }
}

fn number(value: f64) -> String {
    if value.is_finite() { format!("{value:.2}") } else { "–".into() }
}
