//! A log, grouped by turns and calls.

use crate::{model::WOKEN, tools, witness::is_end, world::Node};
use edge_harness::ports::session_store::StoredRecord;
use edge_harness::types::{Message, Record, TurnId};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A record.
pub struct Entry {
    pub seq: u64,
    pub kind: String,
    pub turn: Option<String>,
    pub moment: u64,
    pub at: u64,
    pub json: String,
    pub value: Value,
}

/// A call. Numbers are positions in the log.
pub struct Call {
    pub id: String,
    pub name: String,
    pub args: Value,
    pub message: String,
    /// Tool and arguments.
    pub key: String,
    pub reads: bool,
    /// The position of its outcome.
    pub completed: Option<usize>,
    /// The positions of its suspensions.
    pub suspended: Vec<usize>,
    /// The positions of their resolutions.
    pub said: Vec<usize>,
}

/// A turn. Numbers are positions in the log.
#[derive(Default)]
pub struct Turn {
    pub id: String,
    pub said: String,
    pub queued: Vec<usize>,
    pub started: Vec<usize>,
    pub ends: Vec<usize>,
    pub records: Vec<usize>,
    pub calls: Vec<Call>,
    /// The call ids in the order of the outcomes.
    pub outcomes: Vec<String>,
    /// Where the turn was suspended, and where it resumed or ended.
    pub waits: Vec<(usize, Option<usize>)>,
    /// The ids of the assistant's messages, in order.
    pub answers: Vec<String>,
}

/// A session's log.
pub struct View {
    pub name: String,
    pub entries: Vec<Entry>,
    pub turns: Vec<Turn>,
}

impl Call {
    /// Returns the arguments that the call runs with.
    pub fn given(&self) -> Value {
        self.key.split_once(' ').and_then(|(_, args)| serde_json::from_str(args).ok()).unwrap_or_default()
    }
}

impl View {
    pub fn of(node: &Node) -> Self {
        let mut entries: Vec<Entry> = Vec::new();
        for written in node.disk.log.borrow().iter() {
            let json = as_sent(&written.record, &entries);
            entries.push(Entry {
                seq: written.record.seq,
                kind: written.record.kind.clone(),
                turn: written.record.turn.as_ref().map(TurnId::to_string),
                moment: written.moment,
                at: written.at,
                value: serde_json::from_str(&json).expect("a record is JSON"),
                json,
            });
        }
        let (mut turns, mut places): (Vec<Turn>, BTreeMap<String, usize>) = Default::default();
        for (place, entry) in entries.iter().enumerate() {
            let Some(id) = &entry.turn else { continue };
            let turn = *places.entry(id.clone()).or_insert_with(|| {
                turns.push(Turn { id: id.clone(), ..Turn::default() });
                turns.len() - 1
            });
            turns[turn].add(place, entry);
        }
        Self { name: node.disk.name.clone(), entries, turns }
    }

    /// Restricts the view to this turn and later ones.
    pub fn since(mut self, turn: &str) -> Self {
        let first = self.turns.iter().position(|own| own.id == turn).unwrap_or(self.turns.len());
        self.turns.drain(..first);
        self
    }

    /// Returns the outcome of a call, if it has one.
    pub fn outcome(&self, call: &Call) -> Option<&Entry> {
        call.completed.map(|place| &self.entries[place])
    }
}

/// Returns whether a record of this kind ends a background task, whose turn gets back what the task has not used.
pub fn ends_task(kind: &str) -> bool {
    matches!(kind, "task.completed" | "task.failed" | "task.canceled")
}

/// The JSON of a record as clients read it: the end of a turn has its reply, of which the log has only the message.
fn as_sent(stored: &StoredRecord, earlier: &[Entry]) -> String {
    if !is_end(&stored.kind) {
        return stored.json.clone();
    }
    let mut record: Record = serde_json::from_str(&stored.json).expect("a record");
    let end = record.kind.turn_end_mut().expect("the end of a turn");
    let Some(reply) = &end.reply_ref else { return stored.json.clone() };
    let mut messages = earlier.iter().rev().map(|entry| &entry.value["message"]);
    let Some(message) = messages.find(|message| message["id"] == *reply.message) else {
        return stored.json.clone();
    };
    end.resolve(&Message::deserialize(message).expect("a message"));
    serde_json::to_string(&record).expect("JSON")
}

impl Turn {
    fn add(&mut self, place: usize, entry: &Entry) {
        let value = &entry.value;
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        self.records.push(place);
        match entry.kind.as_str() {
            "turn.queued" => self.queued.push(place),
            "turn.started" => {
                self.started.push(place);
                self.said = said(&value["message"]);
            }
            "message.completed" => self.answered(value["message"]["id"].as_str().unwrap_or_default()),
            "tool.started" => {
                let (name, args) = (text("name"), value["args"].clone());
                self.answered(&text("message"));
                self.calls.push(Call {
                    id: text("call_id"),
                    key: format!("{name} {args}"),
                    reads: tools::reads(&name).unwrap_or(false),
                    message: text("message"),
                    name,
                    args,
                    completed: None,
                    suspended: Vec::new(),
                    said: Vec::new(),
                });
            }
            "tool.completed" => {
                let id = text("call_id");
                if let Some(call) = self.calls.iter_mut().find(|call| call.id == id) {
                    call.completed.get_or_insert(place);
                }
                self.outcomes.push(id);
            }
            "tool.approval_required" | "tool.suspended" => {
                if let Some(call) = self.call(value) {
                    call.suspended.push(place);
                }
            }
            "approval.decided" | "answer.given" => {
                if let Some(call) = self.call(value) {
                    call.said.push(place);
                    if value["args"].is_object() {
                        // The arguments that the call will run with.
                        call.key = format!("{} {}", call.name, value["args"]);
                    }
                }
            }
            "turn.waiting" | "subagent.started"
                if self.waits.last().is_none_or(|(_, over)| over.is_some()) =>
            {
                self.waits.push((place, None))
            }
            "turn.resumed" => self.resumed(place),
            kind if is_end(kind) => {
                self.resumed(place);
                self.ends.push(place);
                if self.started.is_empty() {
                    self.said = said(&value["message"]);
                }
            }
            _ => {}
        }
    }

    /// Returns whether finished tasks have started the turn.
    pub fn is_woken(&self) -> bool {
        self.said.starts_with(WOKEN)
    }

    /// Returns whether the turn has started at a time and has not ended yet.
    pub fn runs_at(&self, view: &View, time: u64) -> bool {
        let at = |place: &usize| view.entries[*place].at;
        self.started.first().is_some_and(|start| at(start) <= time)
            && self.ends.first().is_none_or(|end| time <= at(end))
    }

    /// Returns the total time the turn was suspended, in milliseconds.
    pub fn waited_ms(&self, view: &View) -> u64 {
        let at = |place: usize| view.entries[place].at;
        self.waits.iter().filter_map(|(from, over)| Some(at((*over)?) - at(*from))).sum()
    }

    fn call(&mut self, value: &Value) -> Option<&mut Call> {
        self.calls.iter_mut().find(|call| value["call_id"] == *call.id)
    }

    fn resumed(&mut self, place: usize) {
        if let Some((_, over @ None)) = self.waits.last_mut() {
            *over = Some(place);
        }
    }

    fn answered(&mut self, message: &str) {
        if self.answers.last().is_none_or(|last| last != message) {
            self.answers.push(message.to_owned());
        }
    }
}

fn said(message: &Value) -> String {
    let parts = message["parts"].as_array().into_iter().flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}
