//! Compares the cost of a turn with the smallest possible Worker: `make bench`.
//!
//! Everything runs on one machine and shares its cores, so the ratios are more meaningful than the times. The
//! targets alternate within each round, so that a slow period affects all of them.

mod counts;
mod faces;
mod flood;
mod growth;
mod load;
mod long;
mod mcp;
mod memory;
mod recovery;
mod report;
#[path = "../tests/support/mod.rs"]
mod support;
mod target;

use load::{SETTLE, Sample, percentile};
use report::Report;
use serde_json::json;
use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};
use support::ModelServer;
use target::{BRIEFLY, MANY, PACED, Target, USE_A_TOOL, USE_MANY_TOOLS, model_server};

const ROUNDS: usize = 7;

/// Turns that are measured together.
pub struct Load {
    /// The name in the report.
    pub name: &'static str,
    /// Number of concurrent clients.
    clients: usize,
    /// Number of turns per client and round.
    turns: usize,
    /// The user's message.
    text: &'static str,
    /// Highest accepted ratios to the floor: CPU time, total time, time to the first token.
    pub goals: [f64; 3],
}

const LOADS: [Load; 4] = [
    Load { name: "1", clients: 1, turns: 40, text: "hello", goals: [1.1, 1.1, 1.4] },
    Load { name: "8", clients: 8, turns: 12, text: "hello", goals: [1.15, 1.15, 1.6] },
    Load { name: "32", clients: 32, turns: 5, text: "hello", goals: [1.25, 1.25, 1.6] },
    Load { name: "8 paced", clients: 8, turns: 4, text: PACED, goals: [1.35, 1.15, 1.6] },
];
/// Numbers of stored messages at which a session's next turn is measured.
const HISTORIES: [usize; 4] = [10, 100, 1_000, 5_000];
const SESSIONS_FOR_RSS: usize = 200;

/// A part of the benchmark, selected by its name as an argument; without arguments all run.
type Part = (&'static str, fn(&ModelServer, &mut Report));

const PARTS: [Part; 12] = [
    ("loads", loads),
    ("faces", faces::all),
    ("session", session),
    ("counts", counts::turns),
    ("starts", starts),
    ("memory", rss),
    ("growth", growth::all),
    ("search", memory::all),
    ("mcp", mcp::all),
    ("long", |_, report| long::sessions(report)),
    ("recovery", |_, report| recovery::turns(report)),
    ("flood", flood::all),
];

fn main() {
    let named: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let mut report = Report::default();
    let model = model_server();
    for (name, run) in PARTS {
        if named.is_empty() || named.iter().any(|own| own == name) {
            run(&model, &mut report);
        }
    }
    sizes(&mut report);
    report.finish();
}

/// Measures one session: its history, its log, its tool calls.
fn session(model: &ModelServer, report: &mut Report) {
    let ours = Target::ours(model);
    if let Err(e) = ours.turn("probe", "hello") {
        return report.note("ours", format!("the first turn failed: {e}"));
    }
    histories(&ours, report);
    log_rows(&ours, report);
    tool_calls(model, report);
}

fn loads(model: &ModelServer, report: &mut Report) {
    let mut targets = vec![Target::Direct(model.address()), Target::floor(model), Target::stores(model)];
    targets.extend(Target::versions(model, &json!({})));
    for load in LOADS {
        eprintln!("turns at concurrency {}", load.name);
        let mut samples: Vec<Sample> = targets.iter().map(|_| Sample::default()).collect();
        for round in 0..=ROUNDS {
            for (target, sample) in targets.iter().zip(&mut samples) {
                // Round 0 is a warm-up: it creates the sessions and compiles the code.
                let mut warm_up = Sample::default();
                let sample = if round == 0 { &mut warm_up } else { sample };
                let session = format!("load-{}", load.name.replace(' ', "-"));
                sample.add(target, &session, load.clients, load.turns, load.text);
            }
        }
        for (target, sample) in targets.iter().zip(samples) {
            report.load(target.name(), &load, &sample);
        }
    }
}

/// Measures the first token of the next turn in sessions with growing history.
fn histories(ours: &Target, report: &mut Report) {
    eprintln!("filling sessions of {HISTORIES:?} messages");
    thread::scope(|scope| {
        for messages in HISTORIES {
            scope.spawn(move || {
                for _ in 0..messages / 2 {
                    if let Err(e) = ours.turn(&format!("history-{messages}"), BRIEFLY) {
                        eprintln!("filling the session failed: {e}");
                        return;
                    }
                }
            });
        }
    });
    let mut samples: Vec<Sample> = HISTORIES.iter().map(|_| Sample::default()).collect();
    for round in 0..=ROUNDS {
        for (messages, sample) in HISTORIES.iter().zip(&mut samples) {
            let mut warm_up = Sample::default();
            let sample = if round == 0 { &mut warm_up } else { sample };
            // Only a few turns, so that the shortest session stays short.
            for _ in 0..2 {
                match ours.turn(&format!("history-{messages}"), "hello") {
                    Ok(timing) => sample.timings.push(timing),
                    Err(e) => sample.errors.push(e.to_string()),
                }
            }
        }
    }
    for (messages, sample) in HISTORIES.iter().zip(samples) {
        report.history(*messages, &sample);
    }
}

/// Counts the log records of a plain turn and of one with a tool call.
fn log_rows(ours: &Target, report: &mut Report) {
    let Some(server) = ours.server() else { return };
    let rows = || {
        let client = server.client().with_header("accept", "application/x-ndjson");
        let log = client.get("/v1/sessions/rows/events?limit=1000");
        log.text().lines().filter(|line| !line.is_empty()).count()
    };
    let turn = |text: &str| {
        if let Err(e) = ours.turn("rows", text) {
            eprintln!("the turn {text:?} failed: {e}");
        }
    };
    turn("hello");
    let first = rows();
    turn("hello again");
    let second = rows();
    turn(USE_A_TOOL);
    report.value("log records of a plain turn", (second - first) as f64, "");
    report.value("log records of a turn with one tool call", (rows() - second) as f64, "");
}

/// Measures the overhead of a tool call: scheduling, replay control, journal, records, events. Subtracts a
/// plain turn, which costs as much as the second model call.
fn tool_calls(model: &ModelServer, report: &mut Report) {
    eprintln!("turns with {MANY} tool calls");
    let targets = Target::versions(model, &json!({}));
    let texts = ["hello", USE_A_TOOL, USE_MANY_TOOLS];
    let mut samples: Vec<_> = targets.iter().map(|_| texts.map(|_| Sample::default())).collect();
    for round in 0..=ROUNDS {
        for (target, samples) in targets.iter().zip(&mut samples) {
            for (text, sample) in texts.iter().zip(samples) {
                let mut warm_up = Sample::default();
                let sample = if round == 0 { &mut warm_up } else { sample };
                sample.add(target, &format!("tools-{round}-{}", text.len()), 1, 10, text);
            }
        }
    }
    for (target, [plain, one, many]) in targets.iter().zip(samples) {
        for (text, sample) in texts.iter().zip([&plain, &one, &many]) {
            if let Some(error) = sample.errors.first() {
                report.note(target.name(), format!("{text:?}: {error}"));
            }
        }
        #[allow(clippy::cast_precision_loss)]
        let each = |many: f64, one: f64| (many - one) / (MANY - 1) as f64;
        let cpu = |sample: &Sample| sample.cpu_per_turn().median;
        let mut value = |name: &str, value| report.value(&target.label(name), value, "ms");
        value("CPU of a tool call", each(cpu(&many), cpu(&one)));
        value("time of a tool call", each(many.total(0.5), one.total(0.5)));
        value("time of a step with one call, without a plain turn", one.total(0.5) - plain.total(0.5));
    }
}

/// Measures the time from starting the processes to the end of the first turn.
fn starts(model: &ModelServer, report: &mut Report) {
    eprintln!("cold starts");
    let (mut floor, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        for (launch, times) in
            [(Target::floor as fn(&ModelServer) -> Target, &mut floor), (Target::ours, &mut ours)]
        {
            let start = Instant::now();
            if launch(model).turn("cold", "hello").is_ok() {
                times.push(start.elapsed());
            }
        }
    }
    let (floor, ours) = (median(floor), median(ours));
    report.value("cold start to the end of the first turn, floor", floor, "ms");
    report.value("cold start to the end of the first turn, ours", ours, "ms");
    report.goal("cold start, ours minus the floor's, ms", ours - floor, 60.0);
}

fn median(times: Vec<Duration>) -> f64 {
    percentile(times.into_iter(), 0.5)
}

/// Measures the memory of the runtime after one turn in each of many sessions.
fn rss(model: &ModelServer, report: &mut Report) {
    eprintln!("memory after {SESSIONS_FOR_RSS} sessions");
    let all = [Target::floor(model), Target::ours(model)].map(|target| {
        let mut sample = Sample::default();
        for session in 0..SESSIONS_FOR_RSS {
            if let Err(error) = target.turn(&format!("rss{session}"), "hello") {
                sample.errors.push(error.to_string());
            }
        }
        thread::sleep(SETTLE);
        let rss = target.server().map_or(0, |server| server.rss()) as f64 / 1e6;
        let name = format!("memory after {SESSIONS_FOR_RSS} sessions, {}", target.name());
        let rss = if sample.errors.is_empty() { rss } else { f64::NAN };
        report.value(&name, rss, "MB");
        rss
    });
    report.goal("memory after 200 sessions", all[1] / all[0], 1.1);
}

fn sizes(report: &mut Report) {
    let wasm = concat!(env!("CARGO_MANIFEST_DIR"), "/build/index_bg.wasm");
    let raw = std::fs::metadata(wasm).map_or(0, |file| file.len());
    let gzipped = Command::new("gzip").args(["-9c", wasm]).output().map_or(0, |output| output.stdout.len());
    report.value("wasm, raw", raw as f64 / 1000.0, "kB");
    report.value("wasm, gzipped", gzipped as f64 / 1000.0, "kB");
}
