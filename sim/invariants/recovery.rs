//! The effects of crashes: invariant 9.

use super::view::{Turn, View};
use crate::{
    ledger::Ledger,
    tools,
    world::{Node, World},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

/// A call reported as not run did not run.
pub fn unknown(ledger: &Ledger, view: &View) {
    let runs = ledger.runs.borrow();
    for (turn, call) in view.turns.iter().flat_map(|turn| turn.calls.iter().map(move |call| (turn, call))) {
        let Some(outcome) = view.outcome(call) else { continue };
        let ran =
            runs.iter().any(|run| run.session == view.name && run.turn == turn.id && run.call_id == call.id);
        let denied = outcome.value["outcome"] == "denied";
        if ran && denied && !tools::is_idempotent(&call.name) {
            ledger.find(9, format!("{} is reported as not run, but it ran", call.id));
        }
    }
}

/// A quiet world with crashes ends like the same world without them, except for unknown outcomes.
pub fn same(disturbed: &World, reference: &World) {
    let ledger = &disturbed.ledger;
    if budgets(disturbed) != budgets(reference) {
        // A subagent that a crash delayed has a share of what its siblings left.
        return;
    }
    alike(ledger, &View::of(&disturbed.node(0)), &View::of(&reference.node(0)));
    let (found, mut expected) = (tasks(disturbed), tasks(reference));
    for view in &found {
        let said = |view: &View| view.turns.first().map(|turn| turn.said.clone());
        match expected.iter().position(|other| said(other) == said(view)) {
            Some(place) => alike(ledger, view, &expected.remove(place)),
            None => ledger.find(9, format!("the task {:?} ran only in the undisturbed world", said(view))),
        }
    }
    if let Some(missing) = expected.first() {
        ledger.find(9, format!("{} did its task only in the undisturbed world", missing.name));
    }
}

/// Returns the budgets of subagents by their tasks.
fn budgets(world: &World) -> BTreeMap<String, Value> {
    let of = |node: Rc<Node>| {
        let task = View::of(&node).since(&node.first_task()?).turns.first()?.said.clone();
        Some((task, node.document("state")["meta"]["budget"].take()))
    };
    world.nodes().into_iter().filter_map(of).collect()
}

/// Returns the turns of subagents.
fn tasks(world: &World) -> Vec<View> {
    let of = |node: Rc<Node>| Some(View::of(&node).since(&node.first_task()?));
    world.nodes().into_iter().filter_map(of).collect()
}

/// Compares two logs turn by turn.
fn alike(ledger: &Ledger, found: &View, expected: &View) {
    let said = |view: &View| view.turns.iter().map(|turn| turn.said.clone()).collect::<Vec<_>>();
    if said(found) != said(expected) {
        return ledger.find(9, format!("{:?} instead of {:?}", said(found), said(expected)));
    }
    for (turn, like) in found.turns.iter().zip(&expected.turns) {
        let (mut is, mut should) = (Ended::of(found, turn), Ended::of(expected, like));
        let calls = is.calls.iter().zip(&should.calls);
        let mut unknown: Vec<&str> = Vec::new();
        for ((name, outcome), (same, expected)) in calls {
            // The lost outcome may have been a permanent failure, which would have blocked the tool and
            // denied later calls.
            let refused = [outcome, expected].iter().any(|outcome| outcome.starts_with("\"denied\""));
            let excused = unknown.contains(&name.as_str()) || (refused && !unknown.is_empty());
            if outcome == "unknown" {
                unknown.push(name);
            } else if (name, outcome) != (same, expected) && !excused {
                ledger.find(9, format!("“{}”: {name} {outcome} instead of {same} {expected}", turn.said));
            }
        }
        if is.calls.len() != should.calls.len() {
            ledger.find(9, format!("“{}”: {:?} instead of {:?}", turn.said, is.calls, should.calls));
        }
        if !unknown.is_empty() {
            // The lost result would have been cited.
            is.reply.truncate(is.reply.find("\n\nSources:").unwrap_or(is.reply.len()));
            should.reply.truncate(should.reply.find("\n\nSources:").unwrap_or(should.reply.len()));
        }
        if (&is.end, &is.reply) != (&should.end, &should.reply) {
            ledger.find(9, format!("“{}” ended as {is:?} instead of {should:?}", turn.said));
        }
        // A lost permanent failure did not block the tool, so people were asked about later calls. What they granted
        // then also applies to later turns.
        if !unknown.is_empty() && granted(found, turn) != granted(expected, like) {
            return;
        }
    }
}

/// Returns the tools and categories that decisions of a turn have granted for the rest of the session.
fn granted<'a>(view: &'a View, turn: &Turn) -> BTreeSet<(&'a str, &'a str)> {
    let records = turn.records.iter().map(|place| &view.entries[*place].value);
    let decisions = records.filter(|value| value["type"] == "approval.decided");
    let decisions =
        decisions.filter_map(|value| Some((value["name"].as_str()?, value["decision"].as_str()?)));
    decisions.filter(|(_, decision)| decision.starts_with("always_")).collect()
}

#[derive(Debug)]
struct Ended {
    end: Value,
    reply: String,
    calls: Vec<(String, String)>,
}

impl Ended {
    fn of(view: &View, turn: &Turn) -> Self {
        let end = turn.ends.first().map(|end| &view.entries[*end].value);
        let reply = end.and_then(|end| end["reply"]["text"].as_str()).unwrap_or_default().to_owned();
        let end = end.map(|end| serde_json::json!([end["status"], end["stop_reason"]]));
        let calls = turn.calls.iter().map(|call| {
            let outcome = view.outcome(call).map(|entry| &entry.value);
            let what = |value: &Value| {
                // References and their times differ.
                let result = if value["outcome"] == "artifact" {
                    &value["result"]["preview"]
                } else {
                    &value["result"]
                };
                format!("{} {result}", value["outcome"])
            };
            let outcome = outcome.map(what);
            let outcome = outcome.unwrap_or_default();
            let unknown = outcome.starts_with("\"unknown\"");
            (call.name.clone(), if unknown { "unknown".into() } else { outcome })
        });
        Self { end: end.unwrap_or_default(), reply, calls: calls.collect() }
    }
}
