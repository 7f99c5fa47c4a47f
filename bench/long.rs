//! A very long session: 2,000 messages with a context window of 16,000 tokens.

use crate::load::percentile;
use crate::report::Report;
use crate::support::{Client, ModelServer, Received, Script};
use crate::target::Target;
use serde_json::{Value, json};
use std::time::Duration;

const TURNS: usize = 1_000;
const WINDOW: usize = 16_000;
/// Number of words of each user message and each response. A tool is called in every tenth turn.
const WORDS: usize = 60;

pub fn sessions(report: &mut Report) {
    eprintln!("a session of {} messages in a window of {WINDOW} tokens", 2 * TURNS);
    let bindings = json!({
        "COMPACTION_MODEL": "openai/summary",
        "MODEL_WINDOWS": json!({ "openai/bench": WINDOW }).to_string(),
    });
    let model = model_server();
    for target in Target::versions(&model, &bindings) {
        session(&target, &model, report);
    }
}

fn session(target: &Target, model: &ModelServer, report: &mut Report) {
    let earlier = model.received().len();
    let mut first = Vec::with_capacity(TURNS);
    for turn in 0..TURNS {
        let tool = if turn % 10 == 9 { "use a tool: " } else { "" };
        match target.turn("long", &format!("{tool}{}", words(turn, WORDS))) {
            Ok(timing) => first.push(timing.first),
            Err(error) => {
                return report.note(target.name(), format!("turn {turn} of the long session: {error}"));
            }
        }
    }
    let Some(server) = target.server() else { return };
    let log = log(&server.client());
    let requests = model.received().into_iter().skip(earlier);
    let asked: Vec<Received> = requests.filter(|request| request.model() == "bench").collect();
    let most = asked.iter().map(|request| tokens(&request.body)).max().unwrap_or_default();
    let mut value = |name: &str, value, unit| {
        report.value(&target.label(&format!("long session: {name}")), value, unit);
    };
    value("largest request", most as f64, "tokens");
    value("requests", asked.len() as f64, "");
    let compactions = log.iter().filter(|record| record["type"] == "compaction.completed");
    let (in_turns, ahead): (Vec<_>, Vec<_>) = compactions.partition(|record| record.get("turn").is_some());
    value("compactions after a reply", ahead.len() as f64, "");
    value("compactions during a turn", in_turns.len() as f64, "");
    let stable = stable(&asked, ahead.len() + in_turns.len());
    value("requests with a stable prefix, except after a compaction", stable, "%");
    // The cost of compaction is the difference between turns right after or during one and all other turns.
    let (during, without) = split(&log, &first);
    let p95 = |times: &[Duration]| percentile(times.iter().copied(), 0.95);
    value("first token, p95, without compaction", p95(&without), "ms");
    value("first token, p95, with compaction", p95(&during), "ms");
}

fn model_server() -> ModelServer {
    let model = ModelServer::start();
    model.choose(|request| {
        let input = tokens(request) as u64;
        if request["model"] == "summary" {
            let text = format!("Intent: {}\nDecisions: none.\nArtifacts: none.\nNext: go on.", words(0, 150));
            return Some(Script::text([text.as_str()]).usage(input, 0, 200));
        }
        let last = request["messages"].as_array()?.last()?;
        let said = last["content"].as_str().unwrap_or_default();
        if last["role"] == "user" && said.starts_with("use a tool") {
            let text = words(said.len(), 200);
            return Some(Script::new().tool("call_1", "echo", json!({ "text": text })).usage(input, 0, 250));
        }
        let text = words(said.len(), WORDS);
        let pieces: Vec<&str> = text.split_inclusive(' ').collect();
        Some(Script::text(pieces).usage(input, 0, WORDS as u64))
    });
    model
}

/// Returns words that differ from turn to turn.
fn words(seed: usize, count: usize) -> String {
    (0..count).map(|n| format!("w{:03} ", (seed * 31 + n * 7) % 1_000)).collect()
}

/// Estimates the tokens of a request at four bytes each.
fn tokens(request: &Value) -> usize {
    let text = |value: &Value| value.to_string().len();
    (text(&request["messages"]) + text(&request["tools"])) / 4
}

fn log(client: &Client) -> Vec<Value> {
    let client = client.with_header("accept", "application/x-ndjson");
    let (mut log, mut after) = (Vec::new(), 0);
    loop {
        let page = client.get(&format!("/v1/sessions/long/events?limit=1000&after={after}"));
        let lines: Vec<Value> =
            page.text().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let Some(last) = lines.last() else { return log };
        after = last["seq"].as_u64().unwrap_or(u64::MAX);
        log.extend(lines);
    }
}

/// Returns the share of requests that start with the whole previous conversation, up to the date before its
/// last message. Each compaction may change one request.
fn stable(asked: &[Received], compactions: usize) -> f64 {
    let conversation = |request: &Received| -> Vec<Value> {
        let messages = request.body["messages"].as_array().cloned().unwrap_or_default();
        let date = messages.iter().rposition(|message| message["role"] == "system").unwrap_or(0);
        messages.into_iter().take(date).collect()
    };
    let begins = |pair: &&[Received]| {
        let [before, after] = pair else { return false };
        let after = after.body["messages"].as_array().cloned().unwrap_or_default();
        after.starts_with(&conversation(before))
    };
    let pairs = asked.len().saturating_sub(1);
    let same = asked.windows(2).filter(begins).count();
    (100.0 * same as f64 / pairs.saturating_sub(compactions).max(1) as f64).min(100.0)
}

/// Splits the durations into turns during or right after a compaction, and all others.
fn split(log: &[Value], first: &[Duration]) -> (Vec<Duration>, Vec<Duration>) {
    let (mut during, mut without) = (Vec::new(), Vec::new());
    let (mut turn, mut kept) = (0, false);
    for record in log {
        match record["type"].as_str().unwrap_or_default() {
            "compaction.started" | "compaction.completed" => kept = true,
            "turn.completed" => {
                if let Some(time) = first.get(turn) {
                    if kept { during.push(*time) } else { without.push(*time) }
                }
                (turn, kept) = (turn + 1, false);
            }
            _ => {}
        }
    }
    (during, without)
}
