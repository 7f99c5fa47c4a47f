//! Messages posted by users and events received by readers: invariants 7, 8 and 10.

use super::view::{Entry, Turn, View};
use crate::{
    ledger::Ledger,
    scenario::mark,
    witness::{Event, Fate, Streamed, Witness, waits},
    world::{Node, World},
};
use serde_json::Value;
use std::collections::BTreeMap;

/// 8: sequence numbers are contiguous, and each turn starts and ends once. 7: the log has no text of other
/// sessions.
pub fn log(ledger: &Ledger, view: &View) {
    for (place, entry) in view.entries.iter().enumerate() {
        if entry.seq != place as u64 + 1
            || entry.value["seq"] != entry.seq
            || entry.value["type"] != *entry.kind
        {
            ledger.find(8, format!("{} is record {} of its log", entry.json, place + 1));
        }
    }
    for turn in &view.turns {
        let counts = (turn.queued.len(), turn.started.len(), turn.ends.len());
        if counts.0 > 1 || counts.1 > 1 || counts.2 != 1 || counts.0 + counts.1 == 0 {
            ledger.find(8, format!("{} was queued, started and ended {counts:?} times", turn.id));
        }
    }
    let origin = view.turns.iter().find_map(|turn| ledger.scenario.turn(&turn.said)).map(|(place, _)| place);
    for place in (0..ledger.scenario.sessions.len()).filter(|place| origin.is_some_and(|own| own != *place)) {
        if let Some(entry) = view.entries.iter().find(|entry| entry.json.contains(&mark(place))) {
            ledger.find(7, format!("{} has text of session {place}: {}", view.name, entry.json));
        }
    }
}

/// 2, 7, 10: an erased session leaves no data and is never restored.
pub fn erased(world: &World, node: &Node) {
    if !node.disk.is_empty() {
        world.ledger.find(2, format!("{} exists after it was erased", node.disk.name));
    }
    let prefix = format!("{}/sessions/{}/", node.tenant, node.session);
    if world.blobs.objects.borrow().keys().any(|key| key.starts_with(&prefix)) {
        world.ledger.find(2, format!("{} left blobs behind", node.disk.name));
    }
}

/// 10: a large tool output is stored completely under its reference.
pub fn artifacts(world: &World, view: &View, node: &Node) {
    let objects = world.blobs.objects.borrow();
    for call in view.turns.iter().flat_map(|turn| &turn.calls) {
        let Some(outcome) = view.outcome(call).filter(|outcome| outcome.value["outcome"] == "artifact")
        else {
            continue;
        };
        let (name, bytes) = (&outcome.value["result"]["ref"], outcome.value["result"]["bytes"].as_u64());
        let prefix = format!("{}/sessions/{}/", node.tenant, node.session);
        let name = name.as_str().unwrap_or("no reference");
        let found = objects.iter().find(|(key, _)| key.starts_with(&prefix) && key.ends_with(name));
        if found.map(|(_, object)| object.len() as u64) != bytes {
            world
                .ledger
                .find(10, format!("{}: {name} of {bytes:?} bytes is missing or has another size", call.id));
        }
    }
}

/// 8: a follower receives each record once and each byte of text once. So does the reader of a single turn,
/// from where its stream starts.
pub fn streams(ledger: &Ledger, view: &View, witness: &Witness) {
    if !witness.followed.is_empty() {
        let all: Vec<&Entry> = view.entries.iter().collect();
        seen(ledger, "a follower", &witness.followed, &all, false, None);
        let records = witness.followed.iter().filter(|event| !event.name.ends_with("delta")).count();
        if records < witness.known {
            ledger.find(8, format!("a follower read {records} records of {}", witness.known));
        }
    }
    for Streamed { turn: id, events, complete, whole } in &witness.streams {
        let Some(turn) = view.turns.iter().find(|turn| turn.id == *id) else {
            ledger.find(8, format!("{id} was streamed and is not in the log"));
            continue;
        };
        let end = turn.ends.first().copied().unwrap_or(usize::MAX);
        let own = turn.records.iter().filter(|place| **place <= end).map(|place| &view.entries[*place]);
        // A reader that joins in the middle is compared from there; the stream ends where the turn waits.
        let first = events.iter().find_map(|event| event.id).map_or(0, |id| if *whole { 0 } else { id.seq });
        let rest: Vec<&Entry> = own.filter(|entry| entry.seq >= first).collect();
        let halt = rest.iter().position(|entry| waits(&entry.kind)).map_or(rest.len(), |at| at + 1);
        let own = rest[..halt].iter().copied();
        let own: Vec<&Entry> = own.filter(|entry| entry.kind != "turn.queued").collect();
        // It may also have joined in the middle of a message's text.
        let torn = events.first().filter(|_| !whole).and_then(|event| Some(event.id?.seq));
        seen(ledger, &format!("the reader of {id}"), events, &own, *complete, torn);
    }
    let ended =
        |answer: &&(String, Value)| !matches!(answer.1["status"].as_str(), Some("waiting" | "running"));
    for (id, answer) in witness.answers.iter().filter(ended) {
        let end = view.turns.iter().find(|turn| turn.id == *id).and_then(|turn| turn.ends.first());
        let end = end.map(|end| &view.entries[*end].value);
        let same =
            end.is_some_and(|end| end["status"] == answer["status"] && end["reply"] == answer["reply"]);
        if !same {
            ledger.find(8, format!("{id} was reported as {answer}, but ended as {end:?}"));
        }
    }
}

fn seen(ledger: &Ledger, who: &str, events: &[Event], log: &[&Entry], complete: bool, torn: Option<u64>) {
    let records: Vec<&Event> = events.iter().filter(|event| !event.name.ends_with("delta")).collect();
    let wrong = records.iter().zip(log).find(|(event, entry)| event.data != entry.json);
    if let Some((event, entry)) = wrong {
        return ledger.find(8, format!("{who} read {} instead of {}", event.data, entry.json));
    }
    if records.len() > log.len() || (complete && records.len() < log.len()) {
        return ledger.find(8, format!("{who} read {} records of {}", records.len(), log.len()));
    }
    let mut text: BTreeMap<u64, String> = BTreeMap::new();
    for event in events.iter().filter(|event| event.name == "message.delta") {
        let value: Value = serde_json::from_str(&event.data).unwrap_or_default();
        let Some(id) = event.id else {
            return ledger.find(8, format!("{who} received text without a cursor"));
        };
        if Some(id.seq) == torn {
            continue;
        }
        let read = text.entry(id.seq).or_default();
        read.push_str(value["delta"].as_str().unwrap_or_default());
        if id.offset != Some(read.len() as u64) {
            return ledger.find(8, format!("{who} is at {id} after {} bytes", read.len()));
        }
    }
    let whole = log.iter().take(records.len()).filter(|entry| Some(entry.seq) != torn);
    for entry in whole.filter(|entry| entry.kind == "message.completed") {
        let parts = entry.value["message"]["parts"].as_array().into_iter().flatten();
        let text_parts = parts.filter(|part| part["type"] == "text");
        let whole: String = text_parts.filter_map(|part| part["text"].as_str()).collect();
        let read = text.remove(&entry.seq).unwrap_or_default();
        if read != whole {
            return ledger.find(8, format!("{who} read {read:?} of {whole:?} ({})", entry.seq));
        }
    }
}

/// 10: each accepted message is in the log once, and a refused one is not. 6: a message with an idempotency
/// key starts one turn.
pub fn posts(ledger: &Ledger, view: &View, witness: &Witness, place: usize) {
    let scenario = &ledger.scenario.sessions[place];
    for (number, turn) in scenario.turns.iter().enumerate() {
        let found: Vec<&Turn> = view.turns.iter().filter(|found| found.said == turn.said).collect();
        let posts: Vec<_> = witness.posts.iter().filter(|(posted, ..)| *posted == number).collect();
        let accepted: Vec<_> = posts.iter().filter(|(.., fate)| matches!(fate, Fate::Accepted(_))).collect();
        let unknown = posts.iter().filter(|(.., fate)| *fate == Fate::Unknown).count();
        let under_key = posts.iter().any(|(_, key, _)| *key);
        let (least, most) = match (under_key, accepted.len()) {
            (true, accepted) => (usize::from(accepted > 0), usize::from(accepted + unknown > 0)),
            (false, accepted) => (accepted, accepted + unknown),
        };
        if found.len() < least {
            ledger.find(10, format!("“{}” was accepted but is lost", turn.said));
        }
        if found.len() > most {
            let which = if under_key { 6 } else { 10 };
            ledger.find(
                which,
                format!("“{}” is in the log {} times instead of {most}", turn.said, found.len()),
            );
        }
        for (.., fate) in accepted {
            let Fate::Accepted(Some(id)) = fate else { continue };
            if !found.iter().any(|turn| turn.id == *id) {
                ledger.find(10, format!("“{}” was accepted as {id}, which is another turn", turn.said));
            }
        }
    }
    for id in &witness.dequeued {
        let turn = view.turns.iter().find(|turn| turn.id == *id);
        if turn.is_none_or(|turn| !turn.started.is_empty() || turn.ends.len() != 1) {
            ledger.find(10, format!("{id} was removed from the queue but not canceled"));
        }
    }
    for title in &witness.titles {
        let recorded = view.entries.iter().any(|entry| entry.value["changed"]["title"] == **title);
        if !recorded {
            ledger.find(8, format!("there is no record of the title {title}"));
        }
    }
    let lost = view.turns.iter().find(|turn| turn.said.is_empty() && !turn.ends.is_empty());
    if let Some(turn) = lost {
        ledger.find(10, format!("the message of {} is lost", turn.id));
    }
}
