//! What the chat shows of a session: a fold of its events. The same events give the same conversation, live or years later.

use crate::{
    output::short,
    waits::Wait,
    wire::{Event, Outcome, Received, Task},
};
use serde_json::Value;
use std::collections::HashSet;

/// One thing of the conversation, in the order in which it appeared.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub(super) enum Item {
    /// A message of the user.
    User { text: String },
    /// A message of the assistant.
    Assistant { id: String, text: String, is_streaming: bool },
    /// The reasoning of the model.
    Reasoning { id: String, text: String, is_streaming: bool },
    /// A tool call.
    Tool(Tool),
    /// A remark.
    Notice { text: String, is_error: bool },
}

/// A tool call.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub(super) struct Tool {
    pub(super) call: String,
    pub(super) name: String,
    pub(super) args: String,
    pub(super) state: ToolState,
}

/// How far a tool call is.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub(super) enum ToolState {
    Running,
    Waiting,
    /// It has its outcome: `result` and the like, and what to show of it.
    Ended(String, String),
}

/// The turn of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Activity {
    #[default]
    Idle,
    Running,
    Waiting,
}

/// The state of the conversation.
#[derive(Clone, Debug, Default)]
pub(super) struct Conversation {
    session: String,
    pub(super) items: Vec<Item>,
    pub(super) activity: Activity,
    turn: Option<String>,
    /// The turns that have started or have left the queue.
    begun: HashSet<String>,
    /// The calls that wait.
    pub(super) waits: Vec<Wait>,
    /// Whether a runner beside the chat answers the calls of local tools.
    pub(super) is_served: bool,
    /// The turns of the messages in the queue, in order.
    pub(super) queue: Vec<String>,
    pub(super) tasks: Vec<Task>,
    pub(super) mode: Option<String>,
    pub(super) model: Option<String>,
    /// Tokens of the last model call, and those that fit into the model's context window.
    pub(super) window: Option<(u64, u64)>,
}

impl Conversation {
    /// Creates the conversation of a session before its first event.
    pub(super) fn new(session: &str) -> Self {
        Self { session: session.to_owned(), ..Self::default() }
    }

    /// Returns the messages of the user, oldest first.
    pub(super) fn said(&self) -> Vec<&str> {
        let said = self.items.iter().filter_map(|item| match item {
            Item::User { text } => Some(text.as_str()),
            _ => None,
        });
        said.collect()
    }

    /// Adds an event.
    pub(super) fn apply(&mut self, received: &Received) {
        let turn = || received.turn.clone();
        match &received.event {
            Event::ModeChanged { mode, previous } => {
                self.mode.clone_from(mode);
                if let (Some(mode), Some(_)) = (mode, previous) {
                    self.notice(format!("The mode is now {mode}."));
                }
            }
            Event::ModelChanged { model } => self.model.clone_from(model),
            Event::TasksUpdated { tasks } => self.tasks.clone_from(tasks),
            Event::TurnQueued { .. } => self.enqueue(turn()),
            Event::TurnStarted { message } => {
                self.dequeue(turn());
                (self.turn, self.activity) = (turn(), Activity::Running);
                let files: String = message.files().iter().map(|file| format!(" [{file}]")).collect();
                self.items.push(Item::User { text: message.text() + &files });
            }
            Event::TurnResumed { reason } => {
                (self.turn, self.activity) = (turn(), Activity::Running);
                self.waits.clear();
                // For other reasons, the model writes its message again.
                if !matches!(reason.as_str(), "decided" | "answered" | "expired" | "subagent") {
                    self.drop_unfinished();
                }
            }
            Event::TurnWaiting { pending } => {
                self.activity = Activity::Waiting;
                self.waits = Wait::all(&self.session, pending);
                self.waits.retain(|wait| !(self.is_served && wait.is_local()));
            }
            Event::TurnCompleted { .. } | Event::TurnFailed { .. } | Event::TurnCanceled { .. } => {
                self.end(received)
            }
            Event::Text { id, delta } => self.write(id, delta, false),
            Event::Reasoning { id, delta } => self.write(id, delta, true),
            Event::MessageCompleted { message } => self.complete(&message.id, message.text()),
            Event::ToolStarted { call_id, name, args } => {
                self.finish_reasoning();
                let (call, name) = (call_id.clone(), name.clone());
                self.items.push(Item::Tool(Tool {
                    call,
                    name,
                    args: text_of(args),
                    state: ToolState::Running,
                }));
            }
            Event::ApprovalRequired { call_id } | Event::ToolSuspended { call_id } => {
                self.set_tool(call_id, ToolState::Waiting);
            }
            Event::ApprovalDecided { call_id, .. } | Event::AnswerGiven { call_id, .. } => {
                self.waits.retain(|wait| wait.call.call_id != *call_id);
                self.set_tool(call_id, ToolState::Running);
            }
            Event::ToolCompleted(outcome) => self.set_tool(&outcome.call_id, ended(outcome)),
            Event::UsageUpdated { step } => {
                let window = &step["window"];
                self.window = window["used"].as_u64().zip(window["limit"].as_u64()).or(self.window);
            }
            Event::CompactionCompleted {} => {
                self.notice("A summary replaces older messages in the model's context.".to_owned());
            }
            Event::BudgetExceeded { limit } => self.notice(format!("The turn reached its limit: {limit}.")),
            Event::SessionUpdated { .. } | Event::Other => {}
        }
    }

    /// Adds the message of a turn to the queue, unless the turn has begun.
    pub(super) fn enqueue(&mut self, turn: Option<String>) {
        let is_new = |turn: &String| !self.begun.contains(turn) && !self.queue.contains(turn);
        self.queue.extend(turn.filter(is_new));
    }

    /// Removes the message of a turn from the queue.
    pub(super) fn dequeue(&mut self, turn: Option<String>) {
        self.queue.retain(|queued| Some(queued) != turn.as_ref());
        self.begun.extend(turn);
    }

    fn notice(&mut self, text: String) {
        self.items.push(Item::Notice { text, is_error: false });
    }

    /// Adds a piece to a message, which is among the last items.
    fn write(&mut self, message: &str, delta: &str, is_reasoning: bool) {
        let unfinished = self.items.iter_mut().rev().find_map(|item| match item {
            Item::Assistant { id, text, .. } if !is_reasoning && id == message => Some(text),
            Item::Reasoning { id, text, .. } if is_reasoning && id == message => Some(text),
            _ => None,
        });
        if let Some(text) = unfinished {
            return text.push_str(delta);
        }
        let (id, text, is_streaming) = (message.to_owned(), delta.to_owned(), true);
        if !is_reasoning {
            self.finish_reasoning();
        }
        self.items.push(if is_reasoning {
            Item::Reasoning { id, text, is_streaming }
        } else {
            Item::Assistant { id, text, is_streaming }
        });
    }

    fn complete(&mut self, message: &str, whole: String) {
        self.finish_reasoning();
        let written = self.items.iter_mut().rev().find_map(|item| match item {
            Item::Assistant { id, text, is_streaming } if id == message => Some((text, is_streaming)),
            _ => None,
        });
        match written {
            Some((text, is_streaming)) => (*text, *is_streaming) = (whole, false),
            None if whole.is_empty() => {}
            None => {
                self.items.push(Item::Assistant { id: message.to_owned(), text: whole, is_streaming: false })
            }
        }
    }

    fn finish_reasoning(&mut self) {
        if let Some(Item::Reasoning { is_streaming, .. }) = self.items.last_mut() {
            *is_streaming = false;
        }
    }

    fn set_tool(&mut self, call: &str, state: ToolState) {
        let tool = self.items.iter_mut().rev().find_map(|item| match item {
            Item::Tool(tool) if tool.call == call => Some(tool),
            _ => None,
        });
        if let Some(tool) = tool {
            tool.state = state;
        }
    }

    fn drop_unfinished(&mut self) {
        self.items.retain(|item| {
            !matches!(
                item,
                Item::Assistant { is_streaming: true, .. } | Item::Reasoning { is_streaming: true, .. }
            )
        });
    }

    fn end(&mut self, received: &Received) {
        self.dequeue(received.turn.clone());
        let is_current = self.turn.is_some() && self.turn == received.turn;
        if is_current {
            self.drop_unfinished();
            (self.turn, self.activity) = (None, Activity::Idle);
            self.waits.clear();
        }
        match &received.event {
            Event::TurnFailed { error } => {
                let text = format!("The turn failed: {} ({})", error.message, error.code);
                self.items.push(Item::Notice { text, is_error: true });
            }
            // A message that leaves the queue comes with its turn, which never started.
            Event::TurnCanceled { message: None } if is_current => self.notice("Stopped.".to_owned()),
            Event::TurnCompleted { stop_reason } if stop_reason == "length" => {
                self.notice("The reply was cut off at the model's output limit.".to_owned());
            }
            _ => {}
        }
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn ended(outcome: &Outcome) -> ToolState {
    let text = match &outcome.reason {
        Some(reason) => reason.clone(),
        None if outcome.outcome == "artifact" => short(&outcome.result),
        None => text_of(&outcome.result),
    };
    ToolState::Ended(outcome.outcome.clone(), text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    fn folded(events: &[Value]) -> Conversation {
        let mut conversation = Conversation::new("s");
        for event in events {
            conversation.apply(&Received::parse(&event.to_string()).unwrap());
        }
        conversation
    }

    fn started(text: &str) -> Value {
        json!({"type": "turn.started", "turn": "t", "message":
            {"id": "m0", "role": "user", "parts": [{"type": "text", "text": text}]}})
    }

    fn delta(text: &str) -> Value {
        json!({"type": "message.delta", "turn": "t", "id": "m1", "delta": text})
    }

    #[test]
    fn text_is_written_and_then_complete() {
        let message = json!({"id": "m1", "role": "assistant", "parts": [{"type": "text", "text": "Hello!"}]});
        let mut events = vec![started("hi"), delta("Hel"), delta("lo")];
        let half = folded(&events);
        let item =
            |text: &str, is_streaming| Item::Assistant { id: "m1".into(), text: text.into(), is_streaming };
        assert_eq!((half.items[1].clone(), half.activity), (item("Hello", true), Activity::Running));
        events.push(json!({"type": "message.completed", "turn": "t", "message": message}));
        events.push(json!({"type": "turn.completed", "turn": "t", "stop_reason": "end"}));
        let whole = folded(&events);
        assert_eq!(whole.items, [Item::User { text: "hi".into() }, item("Hello!", false)]);
        assert_eq!(whole.activity, Activity::Idle);
    }

    #[test]
    fn after_a_restart_unfinished_text_is_void_and_after_a_decision_it_stays() {
        let resumed =
            |reason: &str| json!({"type": "turn.resumed", "turn": "t", "epoch": 2, "reason": reason});
        assert_eq!(folded(&[started("hi"), delta("a"), resumed("restart")]).items.len(), 1);
        assert_eq!(folded(&[started("hi"), delta("a"), resumed("decided")]).items.len(), 2);
    }

    #[test]
    fn a_call_waits_until_it_is_decided() {
        let call = json!({"call_id": "c", "kind": "approval", "name": "write_file", "args": {}});
        let mut events = vec![
            started("hi"),
            json!({"type": "tool.started", "turn": "t", "call_id": "c", "name": "write_file", "args": {"path": "a"}}),
            json!({"type": "tool.approval_required", "turn": "t", "call_id": "c"}),
            json!({"type": "turn.waiting", "turn": "t", "pending": [call]}),
        ];
        let waiting = folded(&events);
        assert_eq!((waiting.waits.len(), waiting.activity), (1, Activity::Waiting));
        events.push(json!({"type": "approval.decided", "turn": "t", "call_id": "c", "decision": "approve"}));
        events.push(json!({"type": "tool.completed", "turn": "t", "call_id": "c", "outcome": "result", "result": "ok"}));
        let done = folded(&events);
        assert!(done.waits.is_empty());
        let Item::Tool(tool) = &done.items[1] else { panic!("{:?}", done.items) };
        assert_eq!(tool.state, ToolState::Ended("result".into(), "ok".into()));
    }

    #[test]
    fn the_queue_has_messages_until_their_turns_start_or_leave() {
        let queued = |turn: &str| json!({"type": "turn.queued", "turn": turn, "position": 1});
        let left = json!({"type": "turn.canceled", "turn": "b", "message": {"id": "m", "role": "user", "parts": []}});
        let conversation = folded(&[started("hi"), queued("a"), queued("b"), left]);
        assert_eq!((conversation.queue, conversation.activity), (vec!["a".to_owned()], Activity::Running));
    }
}
