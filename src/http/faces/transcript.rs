//! A conversation that a client sends with its request, as the log of a new session.

use crate::agent::SessionHost;
use crate::http::session::call::Call;
use crate::session::{first_record, numbered};
use crate::types::{
    CallId, ErrorCode, EventKind, Imported, Message, MessageId, Part, Problem, Record, Reply, Role,
    SessionMeta, Snapshot, SnapshotMeta, StopReason, Timestamp, ToolOutcome, TurnEnd, TurnId, TurnStatus,
    json::too_deep,
    message::unstored_file_line,
    session::{SCHEMA, Totals},
};
use serde_json::{Value, json};
use std::rc::Rc;

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
        if let Some(turn) = self.turns.last_mut() {
            turn.replies.push(PastMessage { text, calls: Vec::new() });
        }
    }

    /// Adds a call to the last message of the assistant.
    pub fn call(&mut self, id: String, name: String, args: Value) {
        if let Some(message) = self.turns.last_mut().and_then(|turn| turn.replies.last_mut()) {
            message.calls.push(PastCall { id, name, args, result: None });
        }
    }

    /// Adds a call with its arguments as JSON text. A model may have written arguments that are not JSON, or too deep to
    /// be stored; they become `{"_raw": …}`.
    pub fn call_with_text(&mut self, id: String, name: String, args: String) {
        let parsed = serde_json::from_str(&args).ok().filter(|value| !too_deep(value));
        self.call(id, name, parsed.unwrap_or_else(|| json!({"_raw": args})));
    }

    /// Adds the result of a call.
    pub fn result(&mut self, id: &str, result: String) {
        let calls = self
            .turns
            .iter_mut()
            .rev()
            .flat_map(|turn| &mut turn.replies)
            .flat_map(|message| &mut message.calls);
        if let Some(call) = calls.into_iter().find(|call| call.id == id && call.result.is_none()) {
            call.result = Some(result);
        }
    }

    /// Creates the session of `call` with this conversation as its log.
    ///
    /// # Errors
    /// A failed store, or another request has just created the session for another user.
    pub async fn create(self, call: &Call<'_>, meta: SessionMeta) -> Result<(), Problem> {
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
        match call.host.import(snapshot).await? {
            Imported::Session(_) => Ok(()),
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
