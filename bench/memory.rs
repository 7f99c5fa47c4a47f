//! Costs of memory: searches in memories of growing size, the workspace in the prompt, indexing a turn, and a
//! year of consolidation.

use crate::load::{Sample, percentile};
use crate::report::Report;
use crate::support::{Client, ModelServer, Server};
use crate::target::Target;
use edge_harness::memory::{Memories, MemorySettings, facts::NewFact};
use edge_harness::model::one_shot::OneShotModel;
use edge_harness::platform::in_memory::{
    InMemoryIndex, InMemorySpaces, ManualClock, MemoryBlobs, MemoryFiles, MemoryLog, ScriptedModels,
    SeededEntropy, models::answer,
};
use edge_harness::ports::Clock;
use edge_harness::types::{Owner, Part, Timestamp};
use edge_harness::workspace::{Bundle, Stores, Workspaces};
use futures::executor::block_on;
use serde_json::json;
use std::time::Duration;
use std::{cell::RefCell, rc::Rc, time::Instant};

/// Numbers of turns in the searched memories.
const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
/// Number of turns per import.
const BATCH: usize = 500;
const SEARCHES: usize = 60;
/// Facts per day as in long conversations between friends (LoCoMo): 318 tokens in 12 facts.
const FACTS_A_DAY: usize = 12;
const FACT_CHARS: usize = 318 * 4 / FACTS_A_DAY;
const DAYS: usize = 365;
const DAY: Duration = Duration::from_hours(24);

pub fn all(model: &ModelServer, report: &mut Report) {
    rows(report);
    searches(model, report);
    prompt(model, report);
    year(report);
}

/// Returns a word of a vocabulary with few common and many rare words.
fn word(random: &mut u64) -> String {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let place = (*random >> 40) as f64 / (1u64 << 24) as f64;
    let rank = (20_000f64.powf(place)) as u64;
    let letters = b"bdfgklmnprstvz";
    let vowels = b"aeiou";
    let (mut text, mut left) = (String::new(), rank);
    while text.len() < 4 || left > 0 {
        text.push(letters[(left % 14) as usize] as char);
        text.push(vowels[(left / 14 % 5) as usize] as char);
        left /= 70;
    }
    text
}

fn sentence(random: &mut u64, words: usize) -> String {
    (0..words).map(|_| word(random)).collect::<Vec<_>>().join(" ")
}

/// Measures the rows that D1 counts as written per fact: for a single fact, and for twelve at once.
fn rows(report: &mut Report) {
    let server = Server::start(json!({}));
    let written = |from: u64, to: u64| {
        let call = json!({ "user": "ann", "facts": true, "call": { "add": { "from": from, "to": to } } });
        let answer = server.client().post("/fixtures/memory", call).expect(200);
        answer["written"].as_f64().unwrap_or(f64::NAN) / (to - from) as f64
    };
    written(0, 1);
    report.value("rows written per fact, one alone", written(1, 2), "");
    report.value("rows written per fact, twelve at once", written(2, 14), "");
}

/// Measures searches by the size of the user's memory.
fn searches(model: &ModelServer, report: &mut Report) {
    let ours = Target::ours(model);
    let Some(server) = ours.server() else { return };
    let client = server.client();
    let mut random = 7;
    for size in SIZES {
        eprintln!("searches of {size} turns");
        let user = format!("size-{size}");
        let start = Instant::now();
        for batch in 0..size / BATCH {
            fill(&client, &user, batch, &mut random);
        }
        let seconds = start.elapsed().as_secs_f64();
        report.value(&format!("turns imported per second, up to {size}"), size as f64 / seconds, "");
        let times = (0..SEARCHES).map(|_| {
            let q = sentence(&mut random, 6);
            let start = Instant::now();
            let body = json!({ "q": q, "user": user, "scope": "sessions" });
            client.post("/v1/memory/search", body).expect(200);
            start.elapsed()
        });
        let times: Vec<_> = times.collect();
        for (name, share) in [("p50", 0.5), ("p95", 0.95)] {
            let time = percentile(times.iter().copied(), share);
            report.value(&format!("search of {size} turns, {name}"), time, "ms");
        }
    }
}

fn fill(client: &Client, user: &str, batch: usize, random: &mut u64) {
    let turns: Vec<_> = (0..BATCH)
        .map(|n| {
            let speaker = if n % 2 == 0 { "user" } else { "assistant" };
            json!({ "id": format!("{batch}-{n}"), "speaker": speaker, "ts": "2026-01-01T00:00:00Z",
                    "text": sentence(random, 25) })
        })
        .collect();
    let body = json!({ "user": user, "session": format!("s{batch}"), "turns": turns });
    client.post("/v1/memory/turns", body).expect(201);
}

/// Measures the first token with and without files in the prompt, and the cost of remembering a turn.
fn prompt(model: &ModelServer, report: &mut Report) {
    eprintln!("turns with a workspace, and turns that are remembered");
    let (plain, remembered) = (Target::ours(model), Target::remembering(model));
    let full = Target::ours(model);
    for (path, bytes) in [("AGENTS.md", 12_000), ("MEMORY.md", 12_000), ("knowledge/KNOWLEDGE.md", 8_000)] {
        let text = "word ".repeat(bytes / 5);
        let put = full.server().map(Server::client);
        put.map(|client| client.send("PUT", &format!("/v1/workspace/files/{path}"), text.as_bytes()));
    }
    let targets = [&plain, &full, &remembered];
    let mut samples = [(); 3].map(|()| Sample::default());
    for round in 0..=5 {
        for (target, sample) in targets.iter().zip(&mut samples) {
            let mut warm_up = Sample::default();
            let sample = if round == 0 { &mut warm_up } else { sample };
            sample.add(target, &format!("prompt-{round}"), 1, 20, "hello");
        }
    }
    let [plain, full, remembered] = samples;
    report.value(
        "first token, 8,000 tokens of workspace, added time",
        full.first(0.5) - plain.first(0.5),
        "ms",
    );
    report.value(
        "CPU of remembering a turn",
        remembered.cpu_per_turn().median - plain.cpu_per_turn().median,
        "ms",
    );
}

/// Measures the prompt tokens of a year of consolidation when `MEMORY.md` is always full.
fn year(report: &mut Report) {
    eprintln!("a year of consolidation");
    let clock = ManualClock::at(Timestamp(1_767_225_600_000));
    let asked = Rc::new(RefCell::new(Vec::new()));
    let own = Rc::clone(&asked);
    // Keeps every fact that fits, which is the worst case.
    let models = ScriptedModels::new(move |request| {
        let text: String = request.messages.iter().map(|message| message.text()).collect();
        own.borrow_mut().push((request.system.chars().count() + text.chars().count()) / 4);
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("- ")).collect();
        answer(vec![Part::text(lines.join("\n"))])
    });
    let (time, entropy) = (Rc::new(clock.clone()), Rc::new(SeededEntropy::default()));
    let memory = Rc::new(InMemoryIndex::default());
    let (table, blobs) = (Rc::new(MemoryFiles::default()), Rc::new(MemoryBlobs::default()));
    let stores = Stores::new(table, blobs, time.clone(), entropy.clone());
    let log = Rc::new(MemoryLog::default());
    let layer = Memories::layer(memory.clone(), time.clone(), log.clone());
    let files = Rc::new(Workspaces::new(stores, Bundle::default()).with_layer(layer));
    let model = OneShotModel { models: Rc::new(models), clock: time.clone(), entropy };
    let spaces = Rc::new(InMemorySpaces::new(memory.clone()));
    let memories = Memories::new(memory, spaces, files, model, MemorySettings::default(), log);
    let owner = Owner { tenant: "t".into(), agent: "a".into(), user: "u".into() };
    let mut random = 3;
    let mut days = Vec::new();
    for day in 0..DAYS {
        let facts = (0..FACTS_A_DAY).map(|n| {
            let text: String = sentence(&mut random, 30).chars().take(FACT_CHARS).collect();
            NewFact { id: format!("{day}-{n}"), text, at: time.now(), session: None, speaker: None }
        });
        let learned = block_on(memories.learn(&owner, facts.collect()));
        assert_eq!(learned, Ok(FACTS_A_DAY));
        assert_eq!(block_on(memories.consolidate_due(10)).ok(), Some(1));
        days.push(asked.take().iter().sum::<usize>());
        clock.advance(DAY);
    }
    report.value("consolidation of 365 days, prompt tokens", days.iter().sum::<usize>() as f64, "");
    report.value("consolidation, ratio of day 365 to day 60", days[364] as f64 / days[59] as f64, "");
}
