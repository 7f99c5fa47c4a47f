//! A turn as a task.

use super::super::children::flattened;
use super::super::exchange::named;
use super::super::task_id::TaskId;
use crate::ports::session_store::PAGE_RECORDS;
use crate::session::{Session, frame::Event};
use crate::types::{
    Cursor, Delta, EventKind, Message, MessageId, Part, Pending, Problem, StopReason, Timestamp, TurnEnd,
    TurnStatus,
};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// Most text of the artifacts of a task, in bytes (4 MiB). The messages of the session have all of it.
const MAX_TEXT: usize = 4 << 20;

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Submitted,
    Working,
    InputRequired,
    Completed,
    Failed,
    Canceled,
}

impl State {
    /// Returns the name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Submitted => "TASK_STATE_SUBMITTED",
            Self::Working => "TASK_STATE_WORKING",
            Self::InputRequired => "TASK_STATE_INPUT_REQUIRED",
            Self::Completed => "TASK_STATE_COMPLETED",
            Self::Failed => "TASK_STATE_FAILED",
            Self::Canceled => "TASK_STATE_CANCELED",
        }
    }

    /// Returns whether the task has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled)
    }
}

/// A task, as the events of its turn so far describe it.
pub(super) struct Task {
    pub id: TaskId,
    pub state: State,
    /// When it got its state.
    pub at: Timestamp,
    /// What the agent says about its state.
    said: Option<Value>,
    /// The message of the user.
    asked: Option<Value>,
    /// The completed messages of the assistant: the newest, up to [`MAX_TEXT`].
    artifacts: VecDeque<(MessageId, String)>,
    /// The message that is being written.
    open: Option<MessageId>,
    stop_reason: Option<StopReason>,
}

/// What an event changes.
pub(super) enum Change<'a> {
    State,
    /// Text of an artifact: what is added, or the whole.
    Text {
        artifact: MessageId,
        text: &'a str,
        is_added: bool,
    },
}

impl Task {
    /// Creates a task that waits for its turn.
    pub fn new(id: TaskId, at: Timestamp) -> Self {
        Self {
            id,
            state: State::Submitted,
            at,
            said: None,
            asked: None,
            artifacts: VecDeque::new(),
            open: None,
            stop_reason: None,
        }
    }

    /// Reads a task from the log of its session.
    ///
    /// # Errors
    /// `not_found` for a task that does not exist, or a failed store.
    pub fn read(session: &Session, id: &TaskId) -> Result<Self, Problem> {
        Self::read_after(session, id, Cursor::default())
    }

    /// Like [`Task::read`], for a turn that starts after this position of the log.
    pub fn read_after(session: &Session, id: &TaskId, start: Cursor) -> Result<Self, Problem> {
        let mut task = Self::new(id.clone(), session.state().activity.totals.updated_at);
        let mut next = Some(start);
        while let Some(cursor) = next.filter(|_| !task.state.is_final()) {
            let (frames, more) = session.replay(cursor, Some(&id.turn), false, PAGE_RECORDS)?;
            for frame in &frames {
                frame.read(|event| drop(task.apply(event)))?;
            }
            next = more;
        }
        if let (State::InputRequired, Some(said)) = (task.state, &mut task.said) {
            // Of the calls that the turn began to wait for, some may have their answers. If all do, the turn continues soon.
            let pending = flattened(&session.pending()?);
            if !pending.is_empty() {
                said["parts"] = json!(asks(&pending));
            }
        }
        let is_queued = session.state().activity.queue.contains(&id.turn);
        if task.asked.is_none() && !is_queued && !task.state.is_final() {
            return Err(Problem::not_found("task"));
        }
        Ok(task)
    }

    /// Applies the next event of the turn.
    pub fn apply<'a>(&mut self, event: Event<'a>) -> Option<Change<'a>> {
        let record = match event {
            Event::Delta(Delta::Text { id, delta }) => {
                let is_added = self.open.as_ref() == Some(id);
                self.open = Some(id.clone());
                return Some(Change::Text { artifact: id.clone(), text: delta, is_added });
            }
            Event::Delta(_) => return None,
            Event::Record(record) => record,
        };
        let state = match &record.kind {
            EventKind::TurnStarted { message } => {
                self.asked = Some(self.message("ROLE_USER", &message.id, parts(message)));
                State::Working
            }
            EventKind::MessageCompleted { message } => {
                self.open = None;
                let text = message.text();
                if !text.is_empty() {
                    self.artifacts.push_back((message.id.clone(), text));
                    self.drop_oldest();
                }
                return None;
            }
            EventKind::TurnResumed { .. } => {
                if let Some(artifact) = self.open.take() {
                    return Some(Change::Text { artifact, text: "", is_added: false });
                }
                State::Working
            }
            EventKind::TurnWaiting { pending } => {
                self.said = Some(self.message(
                    "ROLE_AGENT",
                    &format!("{}-{}", self.id.turn, record.seq),
                    asks(&flattened(pending)),
                ));
                self.at = record.at;
                self.state = State::InputRequired;
                return Some(Change::State);
            }
            EventKind::TurnCompleted(end) | EventKind::TurnFailed(end) | EventKind::TurnCanceled(end) => {
                // A message that was removed from the queue has no other record.
                if let Some(message) = &end.message {
                    self.asked = Some(self.message("ROLE_USER", &message.id, parts(message)));
                }
                self.end(end)
            }
            _ => return None,
        };
        if !state.is_final() {
            self.said = None;
        }
        let is_new = self.state != state;
        (self.state, self.at) = (state, record.at);
        is_new.then_some(Change::State)
    }

    /// Bounds the text that a task holds in memory.
    fn drop_oldest(&mut self) {
        let mut length: usize = self.artifacts.iter().map(|(_, text)| text.len()).sum();
        while length > MAX_TEXT
            && self.artifacts.len() > 1
            && let Some((_, text)) = self.artifacts.pop_front()
        {
            length -= text.len();
        }
    }

    fn end(&mut self, end: &TurnEnd) -> State {
        self.said = end.error.as_ref().map(|error| {
            let parts = vec![json!({"text": error.message, "mediaType": "text/plain"})];
            self.message("ROLE_AGENT", &format!("{}-end", self.id.turn), parts)
        });
        self.stop_reason = Some(end.stop_reason);
        match end.status {
            TurnStatus::Failed => State::Failed,
            TurnStatus::Canceled => State::Canceled,
            _ => State::Completed,
        }
    }

    fn message(&self, role: &str, id: &str, parts: Vec<Value>) -> Value {
        json!({
            "messageId": id, "contextId": self.id.session, "taskId": self.id.to_string(), "role": role, "parts": parts,
        })
    }

    /// Returns the task as clients read it: with its message unless `history` is 0, and with its artifacts on request.
    pub fn view(&self, history: Option<usize>, with_artifacts: bool) -> Value {
        let mut view =
            json!({"id": self.id.to_string(), "contextId": self.id.session, "status": self.status()});
        if let (Some(asked), true) = (&self.asked, history != Some(0)) {
            view["history"] = json!([asked]);
        }
        if with_artifacts && !self.artifacts.is_empty() {
            let artifacts = self.artifacts.iter().map(|(id, text)| artifact(id, text));
            view["artifacts"] = artifacts.collect();
        }
        if let Some(reason) = self.stop_reason {
            view["metadata"] = json!({"stopReason": reason});
        }
        view
    }

    /// Returns the status.
    pub fn status(&self) -> Value {
        let mut status = json!({"state": self.state.name(), "timestamp": self.at.to_rfc3339()});
        if let Some(said) = &self.said {
            status["message"] = said.clone();
        }
        status
    }
}

/// Returns a text of the agent as an artifact.
pub(super) fn artifact(id: &MessageId, text: &str) -> Value {
    json!({"artifactId": id, "name": "message", "parts": [{"text": text, "mediaType": "text/plain"}]})
}

fn parts(message: &Message) -> Vec<Value> {
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(json!({"text": text, "mediaType": "text/plain"})),
        Part::File(file) => Some(json!({
            "data": {"artifact": file.r#ref}, "filename": file.name, "mediaType": file.mime_type,
        })),
        _ => None,
    });
    parts.collect()
}

/// Returns what the agent asks of the user, as text and as data.
fn asks(pending: &[Pending]) -> Vec<Value> {
    let text = format!("The task waits for a decision or an answer: {}.", named(pending));
    let calls = pending.iter().map(|call| {
        json!({
            "callId": call.call_id, "kind": call.kind, "tool": call.name, "args": call.args, "payload": call.payload,
        })
    });
    let calls: Vec<_> = calls.collect();
    vec![
        json!({"text": text, "mediaType": "text/plain"}),
        json!({"data": {"pending": calls}, "mediaType": "application/json"}),
    ]
}
