//! Prints the results as a table and writes them as JSON, for comparison with the next run.

use crate::load::Sample;
use serde_json::{Map, Value, json};
use std::{cmp::Ordering, fs, path::Path};

/// The results, in the order of measurement.
#[derive(Default)]
pub struct Report {
    loads: Vec<Load>,
    histories: Vec<(usize, f64)>,
    values: Vec<(String, f64, String)>,
    notes: Vec<String>,
}

struct Load {
    target: &'static str,
    clients: usize,
    figures: Figures,
}

/// Figures of one load, in milliseconds except for `turns_per_second` and `errors`.
struct Figures {
    first: [f64; 2],
    total: [f64; 2],
    turns_per_second: f64,
    cpu: f64,
    errors: usize,
}

impl Report {
    pub fn load(&mut self, target: &'static str, clients: usize, sample: &Sample) {
        if let Some(error) = sample.errors.first() {
            self.note(target, format!("first error at concurrency {clients}: {error}"));
        }
        let figures = Figures {
            first: [sample.first(0.5), sample.first(0.95)],
            total: [sample.total(0.5), sample.total(0.95)],
            turns_per_second: sample.turns_per_second(),
            cpu: if target == "direct" { f64::NAN } else { sample.cpu_per_turn() },
            errors: sample.errors.len(),
        };
        self.loads.push(Load { target, clients, figures });
    }

    pub fn history(&mut self, messages: usize, sample: &Sample) {
        self.histories.push((messages, sample.first(0.5)));
        self.value(&format!("first token at {messages} messages, p50"), sample.first(0.5), "ms");
        self.value(&format!("first token at {messages} messages, p95"), sample.first(0.95), "ms");
    }

    pub fn value(&mut self, name: &str, value: f64, unit: &str) {
        self.values.push((name.into(), value, unit.into()));
    }

    pub fn note(&mut self, target: &str, note: String) {
        self.notes.push(format!("{target}: {note}"));
    }

    pub fn finish(self) {
        let ratios = self.ratios();
        println!("\nclients  target  first p50/p95 ms  total p50/p95 ms  turns/s  CPU ms/turn  errors");
        for Load { target, clients, figures: f } in &self.loads {
            println!(
                "{clients:>7}  {target:<6}  {:>16}  {:>16}  {:>7.0}  {:>11}  {:>6}",
                format!("{:.1} / {:.1}", f.first[0], f.first[1]),
                format!("{:.1} / {:.1}", f.total[0], f.total[1]),
                f.turns_per_second,
                number(f.cpu),
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

    /// Returns the ratios of the Worker to the floor, and to the other version if there is one. Above 1 the
    /// Worker is slower or more expensive.
    fn ratios(&self) -> Vec<(String, f64, f64)> {
        let of = |target: &str, clients: usize| {
            self.loads.iter().find(|l| l.target == target && l.clients == clients).map(|l| &l.figures)
        };
        let mut ratios = Vec::new();
        let clients: Vec<usize> =
            self.loads.iter().filter(|l| l.target == "floor").map(|l| l.clients).collect();
        for clients in clients {
            let (Some(floor), Some(ours)) = (of("floor", clients), of("ours", clients)) else { continue };
            let mut add =
                |name: &str, ratio, goal| ratios.push((format!("{name} at {clients}"), ratio, goal));
            add("CPU per turn", ours.cpu / floor.cpu, 1.3);
            add("total time, p50", ours.total[0] / floor.total[0], 1.3);
            add("first token, p50", ours.first[0] / floor.first[0], 1.5);
            if let Some(other) = of("other", clients) {
                add("CPU per turn (to other)", ours.cpu / other.cpu, 1.05);
                add("first token, p50 (to other)", ours.first[0] / other.first[0], 1.05);
            }
            if clients > 1 {
                add("turns/s (floor to ours)", floor.turns_per_second / ours.turns_per_second, 1.3);
            }
        }
        if let (Some((few, short)), Some((many, long))) = (self.histories.first(), self.histories.last()) {
            ratios.push((format!("first token, {many} to {few} messages"), long / short, 1.5));
        }
        ratios
    }

    fn write(&self, ratios: &[(String, f64, f64)]) {
        let loads: Vec<Value> = self
            .loads
            .iter()
            .map(|Load { target, clients, figures: f }| {
                json!({"target": target, "clients": clients, "first_ms": f.first, "total_ms": f.total,
                    "turns_per_second": f.turns_per_second, "cpu_ms": f.cpu, "errors": f.errors})
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
