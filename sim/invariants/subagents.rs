//! Subagents: invariant 12.

use super::rules::{Rulebook, Verdict};
use super::view::{Entry, Turn, View};
use crate::{
    ledger::Ledger,
    scenario::{AGENT_SEND, AGENT_SPAWN, SUBAGENT, mark},
    world::{Node, World},
};
use edge_harness::ports::Directory;
use edge_harness::ports::directory::SessionKinds;
use edge_harness::types::{CallId, ChildTask, Parent, TenantId, TurnId};
use futures::FutureExt;
use serde_json::Value;
use std::rc::Rc;

/// How long a subagent may continue after its call ended, in milliseconds, in addition to the network's
/// delay.
const CANCELED_MS: u64 = 100;

type Seen = (Rc<Node>, View);

/// Returns the view of a session.
pub fn session<'a>(views: &'a [Seen], tenant: &TenantId, id: &str) -> Option<&'a Seen> {
    views.iter().find(|(node, _)| node.tenant == *tenant && node.session == id)
}

/// 12: each subagent does each of its tasks once, while the parent's call waits; its
/// result is the call's outcome. It is in no list of sessions, spawns no subagents, and is erased with its
/// parent.
pub fn check(world: &World, views: &[Seen]) {
    let ledger = &world.ledger;
    world.directory.down.set(false);
    for (node, view) in views {
        let Some(scenario) = ledger.scenario.sessions.get(node.place) else {
            if let Some(parent) = node.parent() {
                subagent(world, views, node, view, &parent);
            }
            continue;
        };
        if scenario.erased {
            erased(world, views, node);
            continue;
        }
        for turn in view.turns.iter().filter(|turn| !turn.ends.is_empty()) {
            tasks(world, views, node, view, turn);
            used(ledger, view, turn);
            messages(ledger, views, node, view, turn);
        }
    }
}

/// Returns whether the session had neither evictions nor refused writes.
pub fn is_undisturbed(node: &Node) -> bool {
    node.crashed_at.get() == 0 && node.disk.refused_at.get() == 0
}

/// Each task ends once, and its result is the outcome of the call.
fn tasks(world: &World, views: &[Seen], node: &Node, view: &View, turn: &Turn) {
    let ledger = &world.ledger;
    let records = |kind: &'static str| {
        let own = turn.records.iter().map(|place| &view.entries[*place]);
        own.filter(move |entry| entry.kind == kind)
    };
    // One that goes on in the background no longer belongs to the turn.
    let promoted = records("task.started").count();
    let (started, completed) = (records("subagent.started").count(), records("subagent.completed").count());
    if started != completed + promoted {
        ledger.find(12, format!("{}: {started} subagents were spawned, {completed} completed", turn.id));
    }
    let promoted: Vec<&Value> = records("task.started").map(|entry| &entry.value["call_id"]).collect();
    for started in records("subagent.started").filter(|entry| !promoted.contains(&&entry.value["call_id"])) {
        let same = |entry: &&Entry| {
            entry.seq > started.seq
                && ["call_id", "session", "agent"].iter().all(|name| entry.value[name] == started.value[name])
        };
        let over: Vec<&Entry> = records("subagent.completed").filter(same).collect();
        let [over] = over[..] else {
            ledger.find(12, format!("completed {} times: {}", over.len(), started.json));
            continue;
        };
        let id = started.value["session"].as_str().unwrap_or_default();
        let theirs = session(views, &node.tenant, id);
        check_outcome(world, node, view, turn, over, theirs);
        if let Some((child, theirs)) = theirs {
            stops_after_call(ledger, node, child, theirs, over, &task_of(node, started));
        }
    }
}

/// Each further message reaches the subagent that has this label, and no other.
fn messages(ledger: &Ledger, views: &[Seen], node: &Node, view: &View, turn: &Turn) {
    let started = |entry: &&Entry| entry.kind == "subagent.started";
    for sent in turn.records.iter().map(|place| &view.entries[*place]).filter(started) {
        let Some(call) = turn.calls.iter().find(|call| sent.value["call_id"] == *call.id) else { continue };
        let given = call.given();
        let task = if call.name == AGENT_SEND { &given["message"] } else { &given["task"] };
        let child = session(views, &node.tenant, sent.value["session"].as_str().unwrap_or_default());
        let id = task_of(node, sent);
        let begun = child.and_then(|(_, theirs)| theirs.turns.iter().find(|turn| id == *turn.id));
        if begun.is_some_and(|begun| *task != *begun.said) {
            let said = begun.map(|begun| &begun.said);
            ledger.find(12, format!("{}: the subagent was asked {said:?} instead of {task}", call.id));
        }
        let is_receiver = |own: &&Entry| {
            let spawn = view.turns.iter().flat_map(|turn| &turn.calls);
            let mut spawn = spawn.filter(|call| call.name == AGENT_SPAWN && own.value["call_id"] == *call.id);
            own.value["session"] == sent.value["session"]
                && spawn.any(|call| call.given()["label"] == given["label"])
        };
        if call.name == AGENT_SEND && !view.entries.iter().filter(started).any(|own| is_receiver(&own)) {
            ledger.find(12, format!("{} went to another subagent: {}", call.id, sent.json));
        }
    }
}

/// Returns the turn of the subagent that works on the task which was given with this record.
fn task_of(node: &Node, started: &Entry) -> TurnId {
    let turn = TurnId::from(started.turn.as_deref().unwrap_or_default());
    let call = CallId::from(started.value["call_id"].as_str().unwrap_or_default());
    ChildTask::turn_of(&node.session.as_str().into(), &turn, &call)
}

/// The outcome of a call is the result of its subagent.
fn check_outcome(world: &World, node: &Node, view: &View, turn: &Turn, over: &Entry, theirs: Option<&Seen>) {
    let ledger = &world.ledger;
    let Some(call) = turn.calls.iter().find(|call| over.value["call_id"] == *call.id) else {
        return ledger.find(12, format!("no call waits for it: {}", over.json));
    };
    let task = task_of(node, over);
    let end = theirs.and_then(|(_, view)| {
        let turn = view.turns.iter().find(|turn| task == *turn.id)?;
        Some(&view.entries[*turn.ends.first()?].value)
    });
    let outcome = view.outcome(call).map(|entry| &entry.value);
    let status = over.value["status"].as_str().unwrap_or_default();
    if status == "completed" && end.is_none_or(|end| end["status"] != "completed") {
        return ledger.find(12, format!("{}, but the child ended as {end:?}", over.json));
    }
    if end.is_some_and(|end| end["usage"]["total_tokens"] != over.value["usage"]["total_tokens"])
        && status == "completed"
    {
        ledger.find(12, format!("{} reports other usage than: {end:?}", over.json));
    }
    let Some(outcome) = outcome else { return };
    let text = end.and_then(|end| end["reply"]["text"].as_str()).unwrap_or_default();
    match outcome["outcome"].as_str().unwrap_or_default() {
        "result" => {
            let aborted = format!("[Aborted by user]\n\n{text}");
            let expected = if status == "completed" { text } else { aborted.trim_end() };
            // The end of the turn stores only the text.
            let result = &outcome["result"];
            if (*result != *expected && result["reply"] != *expected) || status == "failed" {
                ledger.find(12, format!("{}: {outcome} instead of {expected:?} ({status})", call.id));
            }
        }
        "failure" => {
            let why = outcome["reason"].as_str().unwrap_or_default();
            let fits = end.is_some_and(|end| {
                end["error"]["message"].as_str().is_some_and(|message| why.ends_with(message))
            });
            // A further task of a subagent that was canceled before it began finds no session.
            let is_gone = end.is_none() && why.contains("its session was deleted");
            if status != "failed" || !(fits || is_gone || why.contains("could not be reached")) {
                ledger.find(12, format!("{}: {outcome}, but the child ended as {end:?}", call.id));
            }
        }
        // The suspension expired or was canceled, the turn ended before the call could run, or the rules forbade it
        // when it continued: its outcome may be written later, together with those of calls beside it.
        "denied" | "unknown" => {
            let sealed = turn.ends.first().map(|end| &view.entries[*end]);
            let cut_off = sealed.is_some_and(|end| {
                let own = view.outcome(call).map(|entry| entry.moment);
                own == Some(end.moment) && end.value["stop_reason"] != "canceled"
            });
            let at = view.outcome(call).map_or(0, |entry| entry.at);
            let is_forbidden = || {
                let (_, most) = Rulebook::of(world, node, view).verdicts(&call.name, over.at, at);
                outcome["denied"] == "permission" && most == Verdict::Denied
            };
            // The task failed because its subagent has no session, and then the turn ended.
            let is_gone = status == "failed" && end.is_none();
            if status != "canceled"
                && !cut_off
                && !is_gone
                && outcome["denied"] != "deadline"
                && !is_forbidden()
            {
                ledger.find(12, format!("{}: {outcome}, but the child ended as {end:?}", call.id));
            }
        }
        _ => ledger.find(12, format!("{}: {outcome}", call.id)),
    }
}

/// No tool starts in a subagent after its call ended, provided that messages arrive.
fn stops_after_call(ledger: &Ledger, node: &Node, child: &Node, theirs: &View, over: &Entry, task: &TurnId) {
    let scenario = &ledger.scenario.subagents;
    if !scenario.is_reliable() || !is_undisturbed(node) || !is_undisturbed(child) {
        return;
    }
    let last = over.at + CANCELED_MS + 2 * scenario.pace;
    let runs = ledger.runs.borrow();
    if let Some(run) =
        runs.iter().find(|run| run.session == theirs.name && *task == *run.turn && run.at > last)
    {
        let late = run.at - over.at;
        ledger
            .find(12, format!("{} started {late} ms after the end of its task: {}", run.call_id, over.json));
    }
}

/// The usage of subagents counts in the parent's turn.
fn used(ledger: &Ledger, view: &View, turn: &Turn) {
    let (mut own, mut theirs) = (0, 0);
    for entry in turn.records.iter().map(|place| &view.entries[*place]) {
        match entry.kind.as_str() {
            "usage.updated" => own += entry.value["step"]["total_tokens"].as_u64().unwrap_or(0),
            "subagent.completed" => theirs += entry.value["usage"]["total_tokens"].as_u64().unwrap_or(0),
            _ => {}
        }
    }
    let end = turn.ends.first().map(|end| &view.entries[*end].value["usage"]["total_tokens"]);
    if theirs > own || end.is_none_or(|end| *end != own) {
        ledger.find(
            12,
            format!("{}: {own} tokens including {theirs} of subagents, but {end:?} are reported", turn.id),
        );
    }
}

/// Checks a subagent's session at the end.
fn subagent(world: &World, views: &[Seen], node: &Node, view: &View, parent: &Parent) {
    let ledger = &world.ledger;
    let Some((sender, theirs)) = session(views, &node.tenant, &parent.session) else {
        return ledger.find(12, format!("{} has no parent", view.name));
    };
    if sender.parent().is_some() {
        ledger.find(12, format!("{} was spawned by a subagent", view.name));
    }
    let is_its = |entry: &&Entry| entry.kind == "subagent.started" && entry.value["session"] == *node.session;
    let given: Vec<&Entry> = theirs.entries.iter().filter(is_its).collect();
    let tasks: Vec<TurnId> = given.iter().map(|entry| task_of(sender, entry)).collect();
    let first = node.first_task().unwrap_or_default();
    let own: Vec<&Turn> = view.turns.iter().skip_while(|turn| turn.id != first).collect();
    let is_erased = ledger.scenario.sessions.get(sender.place).is_some_and(|scenario| scenario.erased);
    if !is_erased && !tasks.contains(&parent.task_turn) {
        ledger.find(12, format!("{} is not recorded in its parent", view.name));
    }
    if let Some(turn) = own.iter().find(|turn| !is_erased && !tasks.iter().any(|task| *task == *turn.id)) {
        ledger.find(12, format!("{} does more than its tasks: {}", view.name, turn.id));
    }
    if own.iter().any(|turn| turn.started.len() > 1) || (!parent.forked && own.len() < view.turns.len()) {
        ledger.find(12, format!("{} begins {} turns for {} tasks", view.name, view.turns.len(), own.len()));
    }
    let nested = own.iter().flat_map(|turn| &turn.calls);
    for call in nested.filter(|call| [SUBAGENT, AGENT_SPAWN, AGENT_SEND].contains(&call.name.as_str())) {
        let outcome = view.outcome(call).map(|entry| &entry.value["outcome"]);
        if outcome.is_some_and(|outcome| outcome != "denied") {
            ledger.find(12, format!("a subagent spawned a subagent: {} {outcome:?}", call.id));
        }
    }
    if !is_erased {
        let canceled = ledger.canceled.borrow();
        for (given, task) in given.iter().zip(&tasks) {
            let of_task = |(name, call, _): &&(String, CallId, u64)| {
                *name == view.name && given.value["call_id"] == call.as_str()
            };
            let canceled = canceled.iter().find(of_task).map(|(.., moment)| *moment);
            let began = own.iter().find(|turn| *task == *turn.id).and_then(|turn| turn.started.first());
            let late = began.map(|place| &view.entries[*place]);
            let late = late.filter(|entry| canceled.is_some_and(|moment| entry.moment > moment));
            if let Some(late) = late {
                ledger.find(12, format!("{} began after it was canceled: {}", view.name, late.json));
            }
        }
    }
    let listed = world
        .directory
        .sessions(SessionKinds::Conversations, &node.tenant, None, None, None, 100)
        .now_or_never();
    let listed = listed.and_then(Result::ok).unwrap_or_default();
    if listed.iter().any(|entry| entry.id == node.session) {
        ledger.find(12, format!("{} is in the list of sessions", view.name));
    }
    let alien = (0..ledger.scenario.sessions.len()).find(|place| {
        *place != sender.origin && view.entries.iter().any(|entry| entry.json.contains(&mark(*place)))
    });
    if let Some(place) = alien {
        ledger.find(7, format!("{} has text of session {place}", view.name));
    }
}

/// The subagents of an erased session are erased.
fn erased(world: &World, views: &[Seen], node: &Node) {
    if !world.witnesses.borrow()[node.place].erased {
        return;
    }
    let own = |other: &&Seen| {
        let parent = other.0.parent();
        other.0.tenant == node.tenant && parent.is_some_and(|parent| parent.session == node.session)
    };
    for (child, _) in views.iter().filter(own) {
        let state: Value = child.document("state/child")["reported"].take();
        let what = format!("{} exists although its parent is erased (reported: {state})", child.disk.name);
        world.ledger.find(12, what);
    }
    let listed = world.directory.subagents(&node.tenant, &node.session).now_or_never();
    let listed = listed.and_then(Result::ok).unwrap_or_default();
    if let Some(id) = listed.first() {
        world
            .ledger
            .find(12, format!("{id} is still listed as a subagent of {}, which is erased", node.disk.name));
    }
}
