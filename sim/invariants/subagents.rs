//! What subagents did: 12.

use super::super::{ledger::Ledger, node::Node, scenario::mark, subagents::SUBAGENT, world::World};
use super::view::{Entry, Turn, View};
use edge_harness::ports::Directory;
use edge_harness::types::{Parent, Policy, SessionPermissions, TenantId};
use futures::FutureExt;
use serde_json::Value;
use std::rc::Rc;

/// How long a subagent may go on that nobody waits for any more, beside what calls take, in milliseconds.
const RECALLED_MS: u64 = 100;

type Seen = (Rc<Node>, View);

/// The view of a session.
pub fn session<'a>(views: &'a [Seen], tenant: &TenantId, id: &str) -> Option<&'a Seen> {
    views.iter().find(|(node, _)| node.tenant == *tenant && node.session == id)
}

/// 12: each subagent that was sent out does its errand once, under the rules of the session that sent it out and
/// for as long as that waits; its call comes to what it said. It stands in no list, sends out nobody, and goes with
/// the session that sent it out.
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
            tasks(ledger, views, node, view, turn);
            used(ledger, view, turn);
        }
    }
}

/// Whether nothing of a session was lost on the way.
fn is_undisturbed(node: &Node) -> bool {
    node.crashed_at.get() == 0 && node.disk.refused_at.get() == 0
}

/// Each errand is over once, and its call comes to what was said.
fn tasks(ledger: &Ledger, views: &[Seen], node: &Node, view: &View, turn: &Turn) {
    let records = |kind: &'static str| {
        let own = turn.records.iter().map(|place| &view.entries[*place]);
        own.filter(move |entry| entry.kind == kind)
    };
    let (started, completed) = (records("subagent.started").count(), records("subagent.completed").count());
    if started != completed {
        ledger.find(12, format!("{}: {started} subagents were sent out, {completed} are over", turn.id));
    }
    for started in records("subagent.started") {
        let same = |entry: &&Entry| {
            entry.seq > started.seq
                && ["call_id", "session", "agent"].iter().all(|name| entry.value[name] == started.value[name])
        };
        let over: Vec<&Entry> = records("subagent.completed").filter(same).collect();
        let [over] = over[..] else {
            ledger.find(12, format!("is over {} times: {}", over.len(), started.json));
            continue;
        };
        let id = started.value["session"].as_str().unwrap_or_default();
        let theirs = session(views, &node.tenant, id);
        came_to(ledger, view, turn, over, theirs);
        if let Some((child, theirs)) = theirs {
            recalled(ledger, node, child, theirs, over);
        }
    }
}

/// What a call came to is what its subagent has said.
fn came_to(ledger: &Ledger, view: &View, turn: &Turn, over: &Entry, theirs: Option<&Seen>) {
    let Some(call) = turn.calls.iter().find(|call| over.value["call_id"] == *call.id) else {
        return ledger.find(12, format!("no call waited for it: {}", over.json));
    };
    let end = theirs.and_then(|(node, view)| {
        let task = node.parent()?.task_turn;
        let turn = view.turns.iter().find(|turn| turn.id == task)?;
        Some(&view.entries[*turn.ends.first()?].value)
    });
    let outcome = view.outcome(call).map(|entry| &entry.value);
    let status = over.value["status"].as_str().unwrap_or_default();
    if status == "completed" && end.is_none_or(|end| end["status"] != "completed") {
        return ledger.find(12, format!("{} and {end:?}", over.json));
    }
    if end.is_some_and(|end| end["usage"]["total_tokens"] != over.value["usage"]["total_tokens"])
        && status == "completed"
    {
        ledger.find(12, format!("{} has used something else: {end:?}", over.json));
    }
    let Some(outcome) = outcome else { return };
    let text = end.and_then(|end| end["reply"]["text"].as_str()).unwrap_or_default();
    match outcome["outcome"].as_str().unwrap_or_default() {
        "result" => {
            let aborted = format!("[Aborted by user]\n\n{text}");
            let expected = if status == "completed" { text } else { aborted.trim_end() };
            if outcome["result"] != *expected || status == "failed" {
                ledger.find(12, format!("{}: {outcome} instead of {expected:?} ({status})", call.id));
            }
        }
        "failure" => {
            let why = outcome["reason"].as_str().unwrap_or_default();
            let fits = end.is_some_and(|end| {
                end["error"]["message"].as_str().is_some_and(|message| why.ends_with(message))
            });
            if status != "failed" || !(fits || why.contains("could not be reached")) {
                ledger.find(12, format!("{}: {outcome}, and it ended as {end:?}", call.id));
            }
        }
        // It was expired, passed over or called back, or the turn was over before its call could run.
        "denied" | "unknown" => {
            let sealed = turn.ends.first().map(|end| &view.entries[*end]);
            let cut_off = sealed.is_some_and(|end| {
                let own = view.outcome(call).map(|entry| entry.moment);
                own == Some(end.moment) && end.value["stop_reason"] != "canceled"
            });
            if status != "canceled" && !cut_off && outcome["denied"] != "deadline" {
                ledger.find(12, format!("{}: {outcome}, and it ended as {end:?}", call.id));
            }
        }
        _ => ledger.find(12, format!("{}: {outcome}", call.id)),
    }
}

/// Nothing begins in a subagent's session behind the end of its call, where it can be told so.
fn recalled(ledger: &Ledger, node: &Node, child: &Node, theirs: &View, over: &Entry) {
    let scenario = &ledger.scenario.subagents;
    if !scenario.is_reliable() || !is_undisturbed(node) || !is_undisturbed(child) {
        return;
    }
    let last = over.at + RECALLED_MS + 2 * scenario.pace;
    let runs = ledger.runs.borrow();
    if let Some(run) = runs.iter().find(|run| run.session == theirs.name && run.at > last) {
        let late = run.at - over.at;
        ledger.find(
            12,
            format!("{} begins {late} ms behind the end of its errand: {}", run.call_id, over.json),
        );
    }
}

/// What subagents used counts in the turn that sent them out.
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
        ledger.find(12, format!("{}: {own} tokens and {theirs} of subagents, {end:?} are told", turn.id));
    }
}

/// A subagent's session, as it stands in the end.
fn subagent(world: &World, views: &[Seen], node: &Node, view: &View, parent: &Parent) {
    let ledger = &world.ledger;
    let Some((sender, theirs)) = session(views, &node.tenant, &parent.session) else {
        return ledger.find(12, format!("{} was sent out by nobody", view.name));
    };
    if sender.parent().is_some() {
        ledger.find(12, format!("{} was sent out by a subagent", view.name));
    }
    let started: Vec<&Entry> = view.entries.iter().filter(|entry| entry.kind == "turn.started").collect();
    let is_task = |entry: &&&Entry| entry.turn.as_ref() == Some(&parent.task_turn);
    let times = started.iter().filter(is_task).count();
    if times > 1 || (!parent.forked && started.len() > times) {
        let began: Vec<&str> = started.iter().map(|entry| entry.json.as_str()).collect();
        ledger.find(12, format!("{} does more than its errand: {began:?}", view.name));
    }
    let sent = theirs.entries.iter().any(|entry| {
        entry.kind == "subagent.started"
            && entry.value["session"] == *node.session
            && entry.value["call_id"] == *parent.call_id
            && entry.turn.as_ref() == Some(&parent.turn)
    });
    let is_erased = ledger.scenario.sessions.get(sender.place).is_some_and(|scenario| scenario.erased);
    if !sent && !is_erased {
        ledger.find(12, format!("{} was sent out, and its sender does not know", view.name));
    }
    let nested = view.turns.iter().filter(|turn| turn.id == parent.task_turn).flat_map(|turn| &turn.calls);
    for call in nested.filter(|call| call.name == SUBAGENT) {
        let outcome = view.outcome(call).map(|entry| &entry.value["outcome"]);
        if outcome.is_some_and(|outcome| outcome != "denied") {
            ledger.find(12, format!("a subagent sends out a subagent: {} {outcome:?}", call.id));
        }
    }
    if !is_erased {
        ruled(ledger, node, sender);
    }
    let listed = world.directory.sessions(&node.tenant, None, None, None, 100, false).now_or_never();
    let listed = listed.and_then(Result::ok).unwrap_or_default();
    if listed.iter().any(|entry| entry.id == node.session) {
        ledger.find(12, format!("{} stands in the list of sessions", view.name));
    }
    let alien = (0..ledger.scenario.sessions.len()).find(|place| {
        *place != sender.origin && view.entries.iter().any(|entry| entry.json.contains(&mark(*place)))
    });
    if let Some(place) = alien {
        ledger.find(7, format!("{} holds words of session {place}", view.name));
    }
}

/// The rules of a subagent are those of the session that sent it out, but for what was granted in either.
fn ruled(ledger: &Ledger, node: &Node, sender: &Node) {
    let rules = |node: &Node| -> SessionPermissions {
        serde_json::from_value(node.state()["meta"]["permissions"].clone()).unwrap_or_default()
    };
    let (own, theirs) = (rules(node), rules(sender));
    let has = |name: &String, policy: &Policy| {
        own.tools.get(name) == Some(policy) || (*policy == Policy::Ask && own.grants.tools.contains(name))
    };
    let tools = theirs.tools.iter().all(|(name, policy)| has(name, policy));
    if !tools || own.categories != theirs.categories || own.yolo != theirs.yolo {
        ledger.find(12, format!("{} has the rules {own:?} instead of {theirs:?}", node.disk.name));
    }
}

/// With a session its subagents are erased.
fn erased(world: &World, views: &[Seen], node: &Node) {
    if !world.witnesses.borrow()[node.place].erased {
        return;
    }
    let own = |other: &&Seen| {
        let parent = other.0.parent();
        other.0.tenant == node.tenant && parent.is_some_and(|parent| parent.session == node.session)
    };
    for (child, _) in views.iter().filter(own) {
        let state: Value = child.state()["reported"].clone();
        let what = format!("{} is there, and its sender is erased (reported: {state})", child.disk.name);
        world.ledger.find(12, what);
    }
    let listed = world.directory.subagents(&node.tenant, &node.session).now_or_never();
    let listed = listed.and_then(Result::ok).unwrap_or_default();
    if let Some(id) = listed.first() {
        world.ledger.find(12, format!("{id} is known as a subagent of {}, which is erased", node.disk.name));
    }
}
