//! Background tasks: invariant 20.

use super::subagents::session;
use super::view::{Entry, Turn, View};
use crate::world::{Node, World};
use edge_harness::types::background::{MAX_TASKS, Subagents};
use serde_json::Value;
use std::rc::Rc;

/// How many results a request shows.
const MAX_SHOWN: usize = 10;

type Seen = (Rc<Node>, View);

/// 20: each background task has one end, which is that of its child unless the task was canceled or given up; its result
/// is shown to the model in the first turn that starts afterwards, and counts as shown only if it was.
pub fn check(world: &World, views: &[Seen]) {
    for (node, view) in views {
        let erased = world.witnesses.borrow()[node.place].erased;
        let is_fork = view.entries.first().is_some_and(|entry| entry.value["forked_from"].is_string());
        if erased || is_fork || node.disk.documents.borrow().is_empty() {
            continue;
        }
        let started = view.entries.iter().filter(|entry| entry.kind == "task.started");
        let started: Vec<&Entry> = started.collect();
        let stored = node.document("state/subagents");
        let stored: Subagents = serde_json::from_value(stored).unwrap_or_default();
        if stored.tasks.len() != started.len() && started.len() < MAX_TASKS {
            world.ledger.find(
                20,
                format!("{} has {} tasks, {} started", view.name, stored.tasks.len(), started.len()),
            );
        }
        for start in started {
            ended(world, views, node, view, start);
            shown(world, view, start, &stored);
        }
    }
}

fn is_end(entry: &Entry) -> bool {
    matches!(entry.kind.as_str(), "task.completed" | "task.failed" | "task.canceled")
}

/// Each task has one end, which is that of the child.
fn ended(world: &World, views: &[Seen], node: &Node, view: &View, start: &Entry) {
    let ledger = &world.ledger;
    let task = &start.value["task"];
    let ends: Vec<&Entry> =
        view.entries.iter().filter(|entry| is_end(entry) && entry.value["task"] == *task).collect();
    let [end] = ends[..] else {
        return ledger.find(20, format!("{} ends: {}", ends.len(), start.json));
    };
    if end.seq < start.seq {
        ledger.find(20, format!("ended before it started: {}", end.json));
    }
    let id = start.value["session"].as_str().unwrap_or_default();
    let child = session(views, &node.tenant, id);
    let begun = child.map(|(_, view)| view.turns.iter().find(|turn| *task == *turn.id));
    let theirs = child.and_then(|(_, view)| Some(&view.entries[*begun??.ends.first()?]));
    let details = node.document(&format!("task/{}", task.as_str().unwrap_or_default()));
    let result = &details["result"];
    let their = |name: &str| theirs.map_or(&Value::Null, |end| &end.value[name]);
    match end.kind.as_str() {
        "task.completed" => {
            let text = their("reply")["text"].as_str().unwrap_or_default();
            if their("status") != "completed" || result["text"].as_str().unwrap_or_default() != text {
                ledger.find(
                    20,
                    format!(
                        "{} with {result}, but the child ended as {theirs:?}",
                        end.json,
                        theirs = theirs.map(|end| &end.json)
                    ),
                );
            }
        }
        "task.failed" => {
            let why = end.value["error"].as_str().unwrap_or_default();
            let is_theirs = their("status") == "failed" && their("error")["message"] == *why;
            let given_up =
                ["it could not be reached", "the task did not end in time", "its session was deleted"];
            if why.starts_with("the task did not end in time") && matches!(begun, Some(None)) {
                ledger.find(20, format!("{} without having begun", end.json));
            }
            if !is_theirs && !given_up.iter().any(|reason| why.starts_with(reason)) {
                ledger.find(
                    20,
                    format!("{}, but the child ended as {:?}", end.json, theirs.map(|end| &end.json)),
                );
            }
        }
        // Canceled by an abort or a caller; the child may have ended before the cancellation could reach it.
        _ => {}
    }
}

/// The result is shown in the first turn that starts after the end of the task, and is marked only if it was shown.
fn shown(world: &World, view: &View, start: &Entry, stored: &Subagents) {
    let ledger = &world.ledger;
    let id = start.value["task"].as_str().unwrap_or_default();
    let Some(task) = stored.tasks.iter().find(|task| task.id == *id) else { return };
    let end = view.entries.iter().find(|entry| is_end(entry) && entry.value["task"] == *id);
    let Some(end) = end else { return };
    let in_request = ledger.shown.borrow().contains(id);
    let is_result =
        |entry: &&Entry| entry.kind == "tool.completed" && entry.value["name"] == "wait_async_results";
    let in_result = view.entries.iter().filter(is_result).any(|entry| entry.json.contains(id));
    if task.shown_in.is_some() && !in_request && !in_result {
        ledger.find(20, format!("{id} counts as shown, but was not"));
    }
    let responded = |turn: &&Turn| {
        let started = turn.started.first().map(|place| &view.entries[*place]);
        let ended = turn.ends.first().map(|place| &view.entries[*place].value);
        started.is_some_and(|started| started.moment > end.moment)
            && ended.is_some_and(|ended| ended["stop_reason"] == "end")
    };
    let few = stored.tasks.len() <= MAX_SHOWN;
    if let Some(turn) = view.turns.iter().find(responded).filter(|_| few && task.shown_in.is_none()) {
        ledger.find(20, format!("{id} ended before {}, which did not show its result", turn.id));
    }
}
