//! A conversation that a client sends with its request, as the log of a new session.

use crate::agent::SessionHost;
use crate::http::session::call::Call;
use crate::session::{first_record, numbered};
use crate::types::{
    CallId, ErrorCode, EventKind, Imported, Message, MessageId, Part, Problem, Record, Reply, Role,
    SessionMeta, Snapshot, SnapshotMeta, StopReason, Timestamp, ToolOutcome, TurnEnd, TurnId, TurnStatus,
    json::{MAX_VALUES, count_values, too_deep},
    message::unstored_file_line,
    session::{SCHEMA, Totals},
};
use serde_json::{Value, json};
use std::{
    collections::{HashMap, VecDeque},
    rc::Rc,
};

/// Maximum number of messages and calls that become the log of a session.
const MAX_ENTRIES: usize = 10_000;

/// The user's message of a turn that an assistant began, because each turn begins with a user message.
const NO_USER: &str = "(The assistant began the conversation.)";

/// A file in a message of which the server stores only the text.
pub(super) struct TextOnlyFile<'a> {
    pub name: Option<&'a str>,
    /// The media type, or its first half if the client names only that.
    pub mime_type: Option<&'a str>,
}

/// Returns the text of a message of which the server stores only the text, with a line for each of its files.
pub(super) fn with_lines<'a>(mut text: String, files: impl IntoIterator<Item = TextOnlyFile<'a>>) -> String {
    for TextOnlyFile { name, mime_type } in files {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&unstored_file_line(name, mime_type));
    }
    text
}

/// A conversation without its last message.
#[derive(Default)]
pub(super) struct Transcript {
    turns: Vec<PastTurn>,
    /// The calls without a result by id: the turns that have such calls, and their places in each turn.
    open: HashMap<String, Vec<(usize, VecDeque<Place>)>>,
    /// Number of messages and calls.
    entries: usize,
    /// Number of values in arguments that are JSON text.
    values: usize,
}

/// The place of a call in its turn.
struct Place {
    reply: usize,
    call: usize,
}

#[derive(Default)]
struct PastTurn {
    user: String,
    replies: Vec<PastMessage>,
}

#[derive(Default)]
struct PastMessage {
    text: String,
    calls: Vec<PastCall>,
}

struct PastCall {
    id: String,
    name: String,
    args: Value,
    result: Option<String>,
}

impl Transcript {
    /// Returns the number of turns.
    pub fn turns(&self) -> usize {
        self.turns.len()
    }

    /// Adds a message of the user.
    pub fn user(&mut self, text: &str) {
        self.entries += 1;
        match self.turns.last_mut() {
            Some(turn) if turn.replies.is_empty() => {
                turn.user.push_str("\n\n");
                turn.user.push_str(text);
            }
            _ => self.turns.push(PastTurn { user: text.to_owned(), replies: Vec::new() }),
        }
    }

    /// Adds a message of the assistant.
    pub fn assistant(&mut self, text: String) {
        if self.turns.is_empty() {
            self.user(NO_USER);
        }
        self.entries += 1;
        if let Some(turn) = self.turns.last_mut() {
            turn.replies.push(PastMessage { text, calls: Vec::new() });
        }
    }

    /// Adds a call to the last message of the assistant.
    pub fn call(&mut self, id: String, name: String, args: Value) {
        let Some(turn) = self.turns.len().checked_sub(1) else { return };
        let replies = &mut self.turns[turn].replies;
        let (reply, Some(message)) = (replies.len().saturating_sub(1), replies.last_mut()) else { return };
        self.entries += 1;
        let place = Place { reply, call: message.calls.len() };
        let open = self.open.entry(id.clone()).or_default();
        match open.last_mut().filter(|(of, _)| *of == turn) {
            Some((_, places)) => places.push_back(place),
            None => open.push((turn, VecDeque::from([place]))),
        }
        message.calls.push(PastCall { id, name, args, result: None });
    }

    /// Adds a call with its arguments as JSON text. Arguments that are not JSON, too deep to be stored, or beyond
    /// [`MAX_VALUES`] of the conversation become `{"_raw": …}`.
    pub fn call_with_text(&mut self, id: String, name: String, args: String) {
        self.values += count_values(args.as_bytes());
        let parsed = match self.values > MAX_VALUES {
            true => None,
            false => serde_json::from_str(&args).ok().filter(|value| !too_deep(value)),
        };
        self.call(id, name, parsed.unwrap_or_else(|| json!({"_raw": args})));
    }

    /// Adds the result of a call. If several calls with this id have no result, it belongs to the first of the newest turn.
    pub fn result(&mut self, id: &str, result: String) {
        let Some(open) = self.open.get_mut(id) else { return };
        let Some((turn, mut places)) = open.pop() else { return };
        let place = places.pop_front();
        if !places.is_empty() {
            open.push((turn, places));
        }
        let call = place.and_then(|Place { reply, call }| {
            self.turns.get_mut(turn)?.replies.get_mut(reply)?.calls.get_mut(call)
        });
        if let Some(call) = call {
            call.result = Some(result);
        }
    }

    /// Creates the session of `call` with this conversation as its log. Returns `false` if another request has just created it.
    ///
    /// # Errors
    /// `validation_failed` for more than [`MAX_ENTRIES`], a failed store, or another request has just created the session
    /// for another user.
    pub async fn create(self, call: &Call<'_>, meta: SessionMeta) -> Result<bool, Problem> {
        if self.entries > MAX_ENTRIES {
            let detail = format!(
                "the conversation has more than {MAX_ENTRIES} messages and tool calls; leave out the oldest ones"
            );
            return Err(Problem::field("", detail));
        }
        let now = call.host.now();
        let totals = Totals { turns: self.turns.len() as u64, updated_at: now, ..Totals::default() };
        let records = self.records(call.host, &meta, now);
        let snapshot = Snapshot {
            schema: SCHEMA,
            meta: SnapshotMeta { meta, totals },
            forked_from: None,
            tenant_policy: call.principal.policy.clone(),
            records: Some(records),
            task: None,
        };
        let (imported, is_new) = call.host.create_from(snapshot).await?;
        match imported {
            Imported::Session(_) => Ok(is_new),
            Imported::Taken => Err(Problem::new(ErrorCode::NotFound, "no such session")),
            Imported::Missing | Imported::Canceled => Err(Problem::internal("the session was not created")),
        }
    }

    fn records(self, host: &SessionHost, meta: &SessionMeta, at: Timestamp) -> Vec<Record> {
        let created = first_record(meta, None);
        let mut records = vec![Record { seq: 1, at, turn: None, kind: created }];
        for past in self.turns {
            let turn: TurnId = host.new_id();
            let mut add = |kind| {
                let seq = records.len() as u64 + 1;
                records.push(numbered(Record { seq, at, turn: Some(turn.clone()), kind }));
            };
            let message = |id: MessageId, role, text: String| {
                let parts = vec![Part::Text { text }];
                Rc::new(Message {
                    id,
                    seq: 0,
                    role,
                    parts,
                    created_at: at,
                    turn: turn.clone(),
                    interrupted: false,
                })
            };
            add(EventKind::TurnStarted { message: message(host.new_id(), Role::User, past.user) });
            let mut reply = None;
            for PastMessage { text, calls } in past.replies {
                let said = message(host.new_id(), Role::Assistant, text);
                let id = said.id.clone();
                if !said.text().is_empty() {
                    reply = Some(Reply::new(&said, None));
                    add(EventKind::MessageCompleted { message: said });
                }
                for PastCall { id: call, name, args, .. } in &calls {
                    add(EventKind::ToolStarted {
                        message: id.clone(),
                        call_id: CallId::from(call.as_str()),
                        name: name.clone(),
                        args: args.clone(),
                        invalid: None,
                        effect: Default::default(),
                    });
                }
                for PastCall { id: call, name, result, .. } in calls {
                    let outcome = match result {
                        Some(result) => ToolOutcome::Result { result: Value::String(result) },
                        None => ToolOutcome::failure("the client sent no result"),
                    };
                    add(EventKind::completed(call.as_str().into(), name, outcome));
                }
            }
            let end = TurnEnd::ended(TurnStatus::Completed, StopReason::End);
            add(EventKind::TurnCompleted(TurnEnd { reply, ..end }));
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn results(transcript: &Transcript) -> Vec<(&str, Option<&str>)> {
        let messages = transcript.turns.iter().flat_map(|turn| &turn.replies);
        let calls = messages.flat_map(|message| &message.calls);
        calls.map(|call| (call.id.as_str(), call.result.as_deref())).collect()
    }

    #[test]
    fn results_belong_to_the_first_open_call_of_the_newest_turn() {
        let mut transcript = Transcript::default();
        let mut ask = |ids: &[&str], answers: &[(&str, &str)]| {
            transcript.user("go on");
            transcript.assistant(String::new());
            ids.iter().for_each(|id| transcript.call((*id).to_owned(), "tool".into(), Value::Null));
            answers.iter().for_each(|(id, text)| transcript.result(id, (*text).to_owned()));
        };
        ask(&["a", "b"], &[("b", "1")]);
        ask(&["a", "a"], &[("a", "2"), ("a", "3"), ("a", "4"), ("a", "5"), ("c", "6")]);
        let expected = [("a", Some("4")), ("b", Some("1")), ("a", Some("2")), ("a", Some("3"))];
        assert_eq!(results(&transcript), expected);
        assert_eq!(transcript.entries, 8);
    }

    #[test]
    fn arguments_as_text_are_bounded_together() {
        let mut transcript = Transcript::default();
        transcript.assistant(String::new());
        let many = format!("[{}]", vec!["1"; MAX_VALUES * 2 / 3].join(","));
        for id in ["a", "b"] {
            transcript.call_with_text(id.to_owned(), "tool".into(), many.clone());
        }
        let calls = &transcript.turns[0].replies[0].calls;
        assert!(calls[0].args.is_array());
        assert_eq!(calls[1].args, json!({"_raw": many}));
    }
}
