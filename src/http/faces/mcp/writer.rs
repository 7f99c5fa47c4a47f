//! Writes a turn as the response to a call: notifications of its progress, and its result.

use super::super::children::flattened;
use super::super::sse;
use super::event_id::{EventId, Position};
use super::rpc::completed;
use super::{elicitation, outcome};
use crate::session::{
    frame::{Event, Frame},
    hub::Projection,
};
use crate::types::{CallId, Delta, EventKind, Pending, SessionId, TurnId};
use serde_json::{Map, Value, json};
use std::{cell::RefCell, rc::Rc};

/// Characters of text between two notifications of progress.
const PROGRESS_TEXT: usize = 200;

/// How a call is written.
#[derive(Clone)]
pub(super) struct CallFormat {
    /// The id of the request.
    pub id: Value,
    pub is_modern: bool,
    /// Names the request among those of all clients, so that it can be canceled.
    pub label: Option<String>,
    pub progress_token: Option<Value>,
    /// Whether the client can show forms to its user.
    pub elicits: bool,
    /// Whether the caller may approve calls about which a rule of the operator asks.
    pub may_approve: bool,
    /// Whether the client reads a stream.
    pub streams: bool,
    pub session: SessionId,
    /// What the client has received of the response before; `None` for a new response.
    pub after: Option<Position>,
}

impl CallFormat {
    /// Returns the id of the event at a position of the response.
    pub fn event_id(&self, turn: &TurnId, position: Position) -> EventId {
        EventId {
            session: self.session.clone(),
            turn: turn.clone(),
            request: self.id.clone(),
            progress_token: self.progress_token.clone(),
            position,
        }
    }
}

/// Writes the messages of a response.
pub(super) struct Writer {
    format: CallFormat,
    turn: TurnId,
    /// How often the turn has waited before; the response does not end there.
    earlier_waits: u32,
    /// The last message.
    written: Rc<RefCell<Option<Value>>>,
    /// What has been written, or was written to an earlier stream.
    at: Position,
    /// The calls that run, with the names of their tools.
    running: Vec<(CallId, String)>,
    /// Whether the turn waits while the response goes on.
    waits: bool,
    /// Text that no notification has reported.
    unreported: String,
    reply: String,
    has_ended: bool,
}

impl Writer {
    /// Creates a writer that leaves the last message in `written` if the client reads no stream.
    pub fn new(
        format: CallFormat,
        turn: &TurnId,
        earlier_waits: u32,
        written: Rc<RefCell<Option<Value>>>,
    ) -> Self {
        let progress = format.after.map_or(0, |after| after.progress);
        Self {
            format,
            turn: turn.clone(),
            earlier_waits,
            written,
            at: Position { progress, ..Position::default() },
            running: Vec::new(),
            waits: false,
            unreported: String::new(),
            reply: String::new(),
            has_ended: false,
        }
    }

    /// Sends a message. The stream of a legacy client can continue after it.
    fn send(&self, message: &Value, out: &mut Vec<u8>) {
        if self.format.streams {
            if !self.format.is_modern {
                sse::write_id(&self.format.event_id(&self.turn, self.at), out);
            }
            sse::write(message, out);
        }
    }

    /// Advances the position, and returns whether the client has received what the event adds.
    fn has_received(&mut self, event: Event<'_>) -> bool {
        match event {
            Event::Record(record) => (self.at.seq, self.at.text) = (record.seq, 0),
            Event::Delta(Delta::Text { delta, .. }) => self.at.text += delta.len(),
            Event::Delta(Delta::Reasoning { .. } | Delta::ToolInput { .. } | Delta::ToolProgress(_)) => {}
        }
        self.format.after.is_some_and(|after| (self.at.seq, self.at.text) <= (after.seq, after.text))
    }

    fn report(&mut self, message: &str, out: &mut Vec<u8>) {
        let Some(token) = &self.format.progress_token else { return };
        self.at.progress = self.at.progress.saturating_add(1);
        let params = json!({"progressToken": token, "progress": self.at.progress, "message": message});
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}), out);
    }

    fn text(&mut self, delta: &str, out: &mut Vec<u8>) {
        let start = self.at.text - delta.len();
        let after = self.format.after.filter(|after| after.seq == self.at.seq);
        let received = after.map_or(0, |after| after.text.saturating_sub(start));
        self.unreported.push_str(delta.get(received..).unwrap_or_default());
        if self.unreported.chars().count() >= PROGRESS_TEXT {
            self.report_text(out);
        }
    }

    fn report_text(&mut self, out: &mut Vec<u8>) {
        let text = std::mem::take(&mut self.unreported);
        if !text.trim().is_empty() {
            self.report(&text, out);
        }
    }

    fn wait(&mut self, pending: &[Pending], out: &mut Vec<u8>) {
        let session = &self.format.session;
        let requests = match self.format.elicits {
            true => elicitation::requests(pending, self.format.may_approve),
            false => Vec::new(),
        };
        // A legacy client is asked once: what is left without a form would wait for ever.
        let is_incomplete = !self.format.is_modern && requests.len() < pending.len();
        if requests.is_empty() || is_incomplete {
            return self.finish(outcome::waiting(session, &self.turn, pending, &self.reply), out);
        }
        if self.format.is_modern {
            let requests: Map<_, _> =
                requests.into_iter().map(|(id, request)| (id.to_string(), request)).collect();
            let state = format!("{session}/{}", self.turn);
            let result = json!({
                "resultType": "input_required", "inputRequests": requests, "requestState": state,
            });
            return self.finish(result, out);
        }
        let form = |(call, mut request): (CallId, Value)| {
            request["jsonrpc"] = "2.0".into();
            request["id"] = format!("{session}/{call}").into();
            request
        };
        let mut forms = requests.into_iter().map(form).peekable();
        while let Some(form) = forms.next() {
            match forms.peek() {
                // Without an id, so that a client that loses one of the forms gets all of them again.
                Some(_) => sse::write(&form, out),
                None => self.send(&form, out),
            }
        }
        self.waits = true;
    }

    fn finish(&mut self, result: Value, out: &mut Vec<u8>) {
        self.has_ended = true;
        let message = completed(&self.format.id, self.format.is_modern, result);
        match self.format.streams {
            true => self.send(&message, out),
            false => *self.written.borrow_mut() = Some(message),
        }
    }
}

impl Writer {
    fn add(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        let record = match event {
            Event::Delta(Delta::Text { delta, .. }) => return self.text(delta, out),
            Event::Delta(Delta::Reasoning { .. } | Delta::ToolInput { .. } | Delta::ToolProgress(_)) => {
                return;
            }
            Event::Record(record) => record,
        };
        self.waits = false;
        match &record.kind {
            EventKind::MessageCompleted { message } => {
                self.report_text(out);
                self.reply = message.text();
            }
            EventKind::TurnResumed { .. } => self.unreported.clear(),
            EventKind::ToolStarted { call_id, name, .. } => {
                self.running.push((call_id.clone(), name.clone()));
                self.report(&format!("Calls {name}."), out);
            }
            EventKind::ToolCompleted { call_id, .. } => self.running.retain(|(own, _)| own != call_id),
            EventKind::SubagentStarted { agent, task, .. } => {
                self.report(&format!("Starts the subagent {agent}: {task}"), out);
            }
            EventKind::TurnWaiting { .. } if self.earlier_waits > 0 => self.earlier_waits -= 1,
            EventKind::TurnWaiting { pending } => self.wait(&flattened(pending), out),
            EventKind::TurnCompleted(end) | EventKind::TurnFailed(end) | EventKind::TurnCanceled(end) => {
                self.finish(outcome::ended(&self.format.session, &self.turn, end, &self.reply), out);
            }
            _ => {}
        }
    }
}

impl Projection for Writer {
    fn write(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        if self.has_ended {
            return;
        }
        let progress = self.at.progress;
        if self.has_received(event) {
            self.add(event, &mut Vec::new());
            self.at.progress = progress;
        } else {
            self.add(event, out);
        }
    }

    /// Reports progress: official clients cancel a request that had none for a minute.
    fn ping(&mut self, out: &mut Vec<u8>) {
        if !self.unreported.trim().is_empty() {
            return self.report_text(out);
        }
        let running: Vec<_> = self.running.iter().map(|(_, name)| name.as_str()).collect();
        let message = match running.is_empty() {
            _ if self.waits => "Waits for the user.".to_owned(),
            true => "Still working.".to_owned(),
            false => format!("Still calls {}.", running.join(", ")),
        };
        self.report(&message, out);
    }

    fn is_last(&self, _frame: &Frame) -> bool {
        self.has_ended
    }

    fn responds_to(&self, request: &str) -> bool {
        self.format.label.as_deref() == Some(request)
    }
}
