//! The ends of turns: invariants 2, 3 and 4.

use super::view::{Turn, View, ends_task};
use crate::{ledger::Ledger, model::TOKENS, scenario::Flaky, world::Node};
use edge_harness::types::Budget;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// How soon a turn continues after an eviction or a refused write, in milliseconds.
pub const RECOVERY_MS: u64 = 25_000;
/// How long an abort waits for subagents at most, in milliseconds.
const CANCEL_MS: u64 = 700;
/// Minimum time left of the turn when a call starts, in milliseconds.
pub const MIN_REMAINING_MS: u64 = 1_000;

/// 2: no work of a turn writes, starts or continues after its end, and no work of a call after its outcome.
pub fn sealed(ledger: &Ledger, view: &View, node: &Node) {
    let (runs, asks) = (ledger.runs.borrow(), ledger.asks.borrow());
    let mut written: BTreeSet<&str> = BTreeSet::new();
    for run in runs.iter().filter(|run| run.session == view.name) {
        let Some(turn) = view.turns.iter().find(|turn| turn.id == run.turn) else { continue };
        let call = turn.calls.iter().find(|call| call.id == run.call_id);
        let outcome = call.and_then(|call| view.outcome(call)).map_or(u64::MAX, |entry| entry.moment);
        let sealed = turn.ends.first().map_or(u64::MAX, |end| view.entries[*end].moment);
        if run.began > sealed {
            ledger.find(2, format!("{} started after the end of its turn", run.call_id));
        }
        for (key, moment) in &run.wrote {
            written.insert(key);
            if *moment > outcome.min(sealed) {
                ledger.find(2, format!("{key} was written after the call had ended"));
            }
        }
    }
    let kept = node.meta()["state"].as_object().cloned().unwrap_or_default();
    let mut kept: BTreeSet<&str> = kept.keys().map(String::as_str).collect();
    if let Some(parent) = node.parent() {
        // The child's state started as a copy of its parent's.
        let sender = format!("{}/{}", node.tenant, parent.session);
        let others = runs.iter().filter(|run| run.session == sender).flat_map(|run| &run.wrote);
        let others: BTreeSet<&str> = others.map(|(key, _)| key.as_str()).collect();
        kept.retain(|key| !others.contains(key));
    }
    if kept != written {
        ledger.find(2, format!("the state has {kept:?}, but the accepted writes are {written:?}"));
    }
    for turn in &view.turns {
        let Some(end) = turn.ends.first() else { continue };
        let (moment, at) = (view.entries[*end].moment, view.entries[*end].at);
        for place in turn.records.iter().filter(|place| *place > end) {
            if view.entries[*place].kind != "tool.late_result" {
                ledger.find(2, format!("{} comes after the end of {}", view.entries[*place].json, turn.id));
            }
        }
        for ask in asks.iter().filter(|ask| ask.said == turn.said) {
            if ask.began > moment || (ask.left.is_none_or(|left| left > moment) && ask.left_at != at) {
                ledger.find(2, format!("the model responds to “{}” after the turn's end", turn.said));
            }
        }
        late(ledger, view, turn);
    }
}

/// A call that ends late leaves one record, after its outcome.
fn late(ledger: &Ledger, view: &View, turn: &Turn) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for entry in turn.records.iter().map(|place| &view.entries[*place]) {
        if entry.kind != "tool.late_result" {
            continue;
        }
        let id = entry.value["call_id"].as_str().unwrap_or_default();
        let call = turn.calls.iter().find(|call| call.id == id);
        let outcome = call.and_then(|call| view.outcome(call));
        if !seen.insert(id) || outcome.is_none_or(|outcome| outcome.seq > entry.seq) {
            ledger.find(2, format!("{id} has several late results, or one before its outcome"));
        }
    }
}

/// 3: each turn was finalized once, whatever failed at its end; the failures are listed.
pub fn whole(ledger: &Ledger, view: &View, node: &Node) {
    for turn in view.turns.iter().filter(|turn| !turn.started.is_empty()) {
        let (Some(end), Some((_, script))) = (turn.ends.first(), ledger.scenario.turn(&turn.said)) else {
            continue;
        };
        let failed = &view.entries[*end].value["sub_steps_failed"];
        let expected = if script.flaky == Flaky::Works { json!([]) } else { json!(["finisher"]) };
        if *failed != expected {
            ledger.find(3, format!("{}: sub-steps {failed} failed instead of {expected}", turn.id));
        }
        let finished = node.disk.documents.borrow().contains_key(&format!("hook/finished/{}", turn.id));
        if finished != (script.flaky == Flaky::Works) {
            ledger.find(3, format!("{}: the draft of the finishing hook was stored: {finished}", turn.id));
        }
    }
}

/// Returns the deadline of a turn that has started.
pub fn deadline(ledger: &Ledger, view: &View, turn: &Turn) -> Option<u64> {
    let start = &view.entries[*turn.started.first()?];
    let (_, script) = ledger.scenario.turn(&turn.said)?;
    let budget = Budget::default().patched(&script.budget);
    Some(start.at + u64::from(budget.timeout_s) * 1_000 + turn.waited_ms(view))
}

/// 4: no limit is exceeded, and reaching one is explained.
pub fn bounds(ledger: &Ledger, view: &View, node: &Node) {
    for turn in &view.turns {
        let (Some(start), Some(end)) = (turn.started.first(), turn.ends.first()) else { continue };
        let Some((_, script)) = ledger.scenario.turn(&turn.said) else { continue };
        let budget = Budget::default().patched(&script.budget);
        let over = |what: &str, is: u64, most: u64| {
            if is > most {
                ledger.find(4, format!("{}: {is} {what}, {most} are allowed", turn.id));
            }
        };
        let (start, end) = (&view.entries[*start], &view.entries[*end]);
        let waited = turn.waited_ms(view);
        let Some(deadline) = deadline(ledger, view, turn) else { continue };
        let thoughts = turn.records.iter().map(|place| &view.entries[*place]);
        let thoughts = thoughts.filter(|entry| entry.kind == "turn.reflected" && entry.value["stub"] != true);
        // A background task that ends returns what it has not used, so a turn that had reached its bound goes on.
        let records = view.entries.iter().filter(|entry| (start.seq..=end.seq).contains(&entry.seq));
        let returned = records.filter(|entry| ends_task(&entry.kind)).count() as u64;
        asked(ledger, turn, &budget, deadline, thoughts.count() as u64, returned, &over);

        let runs = ledger.runs.borrow();
        let runs: Vec<_> =
            runs.iter().filter(|run| run.turn == turn.id && run.session == view.name).collect();
        let ran: BTreeSet<&str> = runs.iter().map(|run| run.call_id.as_str()).collect();
        over("tool calls", ran.len() as u64, budget.max_tool_calls.into());
        let latest = runs.iter().map(|run| run.at).max().unwrap_or(0);
        over(
            "ms at which a tool began",
            latest.saturating_sub(start.at),
            deadline - MIN_REMAINING_MS - start.at,
        );
        let cap = u64::from(budget.tool_timeout_s) * 1_000;
        // Waiting for background tasks has a limit of its own.
        let others = turn.calls.iter().filter(|call| call.name != "wait_async_results");
        for outcome in others.filter_map(|call| view.outcome(call)) {
            over("ms in a tool", outcome.value["elapsed_ms"].as_u64().unwrap_or(0), cap);
        }

        let disturbed = node.crashed_at.get().max(node.disk.refused_at.get());
        let excused = if disturbed >= start.at { disturbed + RECOVERY_MS + waited } else { 0 };
        // A turn that its last subagent resumes does not run while an abort waits for the subagents.
        let mut records = turn.records.iter().map(|place| &view.entries[*place]);
        let is_held = end.kind == "turn.canceled" && records.any(|entry| entry.kind == "subagent.started");
        let aborting = if is_held { CANCEL_MS } else { 0 };
        over("ms of a turn", end.at - start.at, deadline.max(excused) + aborting - start.at);
        explained(ledger, view, turn, &end.value);
    }
}

fn asked(
    ledger: &Ledger,
    turn: &Turn,
    budget: &Budget,
    deadline: u64,
    reflected: u64,
    returned: u64,
    over: &dyn Fn(&str, u64, u64),
) {
    let asks = ledger.asks.borrow();
    let asks: Vec<_> = asks.iter().filter(|ask| ask.said == turn.said).collect();
    let distinct = |tools_off: bool, reflects: bool| {
        let asks = asks.iter().filter(|ask| ask.tools_off == tools_off && ask.reflects == reflects);
        asks.map(|ask| ask.step).collect::<BTreeSet<_>>().len() as u64
    };
    let (steps, summaries, reflections) =
        (distinct(false, false), distinct(true, false), distinct(true, true));
    over("model calls", steps, budget.max_steps.into());
    // A response that does not match the schema is repeated once.
    let repaired = asks.iter().any(|ask| ask.tools_off && ask.repairs);
    over("summaries", summaries, 1 + u64::from(repaired) + returned);
    over("reflections", reflections, budget.max_reflections.into());
    if let Some(most) = budget.max_tokens {
        // A step that was requested twice was completed once, and an interrupted self-critique not at all.
        let answered: BTreeSet<_> = asks.iter().filter(|ask| !ask.reflects).map(|ask| ask.step).collect();
        let before = (answered.len() as u64 + reflected).saturating_sub(1) * TOKENS;
        over("tokens before the last model call", before, most.max(1) - 1);
    }
    if let Some(late) = asks.iter().find(|ask| ask.at > deadline) {
        ledger.find(
            4,
            format!("{}: the model is called {} ms after the deadline", turn.id, late.at - deadline),
        );
    }
}

fn explained(ledger: &Ledger, view: &View, turn: &Turn, end: &Value) {
    let reason = end["stop_reason"].as_str().unwrap_or_default();
    let is_bound = matches!(reason, "max_steps" | "max_tool_calls" | "deadline" | "tokens" | "cost");
    let said = turn.records.iter().filter(|place| view.entries[**place].kind == "budget.exceeded");
    let limits: Vec<&str> = said.filter_map(|place| view.entries[*place].value["limit"].as_str()).collect();
    // A response that does not match the schema fails the turn, even at a limit.
    let unfit = end["error"]["code"] == "output_invalid" && limits.len() == 1;
    let expected = if is_bound { vec![reason] } else { Vec::new() };
    if limits != expected && !unfit {
        ledger.find(4, format!("{} ended by {reason} but recorded {limits:?}", turn.id));
    }
    if is_bound && end["reply"]["text"].as_str().is_none_or(str::is_empty) {
        ledger.find(4, format!("{} ended by {reason} without an explanation", turn.id));
    }
}
