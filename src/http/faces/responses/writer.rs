//! Writes a part of a turn as a response: the object, and the events that build it.

use super::super::{children::flattened, sse};
use super::chunks::Chunks;
use super::written::Written;
use crate::session::{
    frame::{Event, Frame},
    hub::Projection,
};
use crate::types::{
    CallId, Delta, EventKind, Message, MessageId, Part, Pending, StopReason, Timestamp, TurnEnd, Usage,
    WaitKind,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::{cell::RefCell, rc::Rc};

/// Writes a response. What it has written so far is shared with the request that reads it as a whole.
pub(super) struct Writer {
    pub written: Rc<RefCell<Written>>,
    /// Whether events are sent.
    pub streams: bool,
    /// Number of parts of the turn that come before.
    pub skip: u32,
    /// The number of the last event that the client has.
    pub after: Option<u64>,
    /// The calls whose results the client has sent.
    pub answered: Vec<CallId>,
    sequence: u64,
    message: Option<OpenMessage>,
}

/// The message whose text arrives.
struct OpenMessage {
    id: MessageId,
    index: usize,
    text: String,
    chunks: Chunks,
}

/// An event, with its number.
#[derive(Serialize)]
struct Numbered<'a, T> {
    #[serde(rename = "type")]
    kind: &'a str,
    sequence_number: u64,
    #[serde(flatten)]
    data: T,
}

/// A piece of text. There is an event for each word, so it is not built as a [`Value`].
#[derive(Serialize)]
struct TextDelta<'a> {
    item_id: &'a MessageId,
    output_index: usize,
    content_index: usize,
    delta: &'a str,
    logprobs: [Value; 0],
}

impl Projection for Writer {
    fn write(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        if self.skip > 0 {
            self.skip -= u32::from(event.is_wait());
            return;
        }
        if self.written.borrow().has_ended {
            return;
        }
        self.begin(event, out);
        let record = match event {
            Event::Delta(Delta::Text { id, delta }) => return self.text(id, delta, out),
            Event::Delta(Delta::Reasoning { .. } | Delta::ToolInput { .. } | Delta::ToolProgress(_)) => {
                return;
            }
            Event::Record(record) => record,
        };
        match &record.kind {
            EventKind::MessageCompleted { message } => self.end_message(message, out),
            EventKind::TurnResumed { .. } => self.void_message(out),
            EventKind::ToolStarted { call_id, name, args, .. } => self.call(call_id, name, args, out),
            // The input of the response, or of one after which the turn still waited.
            EventKind::AnswerGiven { call_id, .. } => self.answered.push(call_id.clone()),
            EventKind::ToolCompleted { call_id, .. } if self.answered.contains(call_id) => {}
            EventKind::ToolCompleted { call_id, outcome, .. } => {
                let call = self.call_id(call_id);
                let text = outcome.model_text().into_owned();
                let item = json!({
                    "type": "function_call_output", "id": format!("fco_{call_id}"), "call_id": call, "output": text,
                });
                self.item(item, out);
            }
            EventKind::UsageUpdated { total, .. } => self.set_usage(total),
            EventKind::TurnWaiting { pending } => self.wait(&flattened(pending), record.at, out),
            EventKind::TurnCompleted(end) | EventKind::TurnFailed(end) | EventKind::TurnCanceled(end) => {
                self.set_usage(&end.usage);
                self.end(end, record.at, out);
            }
            _ => {}
        }
    }

    fn queue(&mut self, out: &mut Vec<u8>) {
        self.written.borrow_mut().object["status"] = "queued".into();
        self.announce(out);
    }

    fn is_last(&self, _frame: &Frame) -> bool {
        self.written.borrow().has_ended
    }
}

impl Writer {
    pub fn new(written: Rc<RefCell<Written>>, streams: bool) -> Self {
        let (after, answered) = (None, Vec::new());
        Self { written, streams, skip: 0, after, answered, sequence: 0, message: None }
    }

    fn begin(&mut self, first: Event<'_>, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.written.borrow_mut().has_begun, true) {
            return;
        }
        if let Event::Record(record) = first {
            self.written.borrow_mut().object["created_at"] = (record.at.0 / 1000).into();
        }
        // It may have been queued.
        self.written.borrow_mut().object["status"] = "in_progress".into();
        // The first event may have said so.
        if self.sequence == 0 {
            self.announce(out);
        }
        let response = self.written.borrow().response();
        self.emit("response.in_progress", json!({ "response": response }), out);
    }

    /// Sends the first event. A response in the queue has no event of its own for that, because later readers, who do not
    /// get it, would number the rest differently.
    fn announce(&mut self, out: &mut Vec<u8>) {
        let response = self.written.borrow().response();
        self.emit("response.created", json!({ "response": response }), out);
    }

    /// Sends an event, with the next number.
    fn emit(&mut self, kind: &str, data: impl Serialize, out: &mut Vec<u8>) {
        let number = self.sequence;
        self.sequence += 1;
        if !self.streams || self.after.is_some_and(|after| number <= after) {
            return;
        }
        sse::write_named(kind, &Numbered { kind, sequence_number: number, data }, out);
    }

    fn text(&mut self, id: &MessageId, delta: &str, out: &mut Vec<u8>) {
        if self.message.as_ref().is_none_or(|message| message.id != *id) {
            self.begin_message(id, out);
        }
        let Some(message) = &mut self.message else { return };
        message.text.push_str(delta);
        let (index, pieces) = (message.index, message.chunks.add(delta));
        for piece in pieces {
            self.emit_piece(id, index, &piece, out);
        }
    }

    fn emit_piece(&mut self, id: &MessageId, index: usize, piece: &str, out: &mut Vec<u8>) {
        let data =
            TextDelta { item_id: id, output_index: index, content_index: 0, delta: piece, logprobs: [] };
        self.emit("response.output_text.delta", data, out);
    }

    fn begin_message(&mut self, id: &MessageId, out: &mut Vec<u8>) {
        self.void_message(out);
        let index = self.written.borrow().output.len();
        let item = message_item(id, "in_progress", None);
        self.written.borrow_mut().put(index, item.clone());
        self.emit("response.output_item.added", json!({"output_index": index, "item": item}), out);
        let place = json!({"item_id": id, "output_index": index, "content_index": 0, "part": text_part("")});
        self.emit("response.content_part.added", place, out);
        self.message =
            Some(OpenMessage { id: id.clone(), index, text: String::new(), chunks: Chunks::default() });
    }

    /// Ends the message whose text was streamed, if there is one; its text is not the final one.
    fn void_message(&mut self, out: &mut Vec<u8>) {
        let voided = self.message.as_ref().map(|message| message.index);
        self.close_message("incomplete", out);
        if let Some(index) = voided {
            self.written.borrow_mut().remove(index);
        }
    }

    fn close_message(&mut self, status: &str, out: &mut Vec<u8>) {
        let Some(mut message) = self.message.take() else { return };
        if let Some(piece) = message.chunks.end() {
            self.emit_piece(&message.id, message.index, &piece, out);
        }
        let OpenMessage { id, index, text, .. } = message;
        let place = |name: &str, value: Value| {
            let mut place = json!({"item_id": id, "output_index": index, "content_index": 0});
            place[name] = value;
            place
        };
        let mut done = place("text", text.as_str().into());
        done["logprobs"] = json!([]);
        self.emit("response.output_text.done", done, out);
        self.emit("response.content_part.done", place("part", text_part(&text)), out);
        let item = message_item(&id, status, Some(&text));
        self.written.borrow_mut().put(index, item.clone());
        self.emit("response.output_item.done", json!({"output_index": index, "item": item}), out);
    }

    fn end_message(&mut self, message: &Message, out: &mut Vec<u8>) {
        let status = if message.interrupted { "incomplete" } else { "completed" };
        self.close_message(status, out);
        // Deltas of reasoning are not replayed, so the reasoning is sent as a whole.
        let reasoning = message.parts.iter().filter_map(|part| match part {
            Part::Reasoning { text, .. } if !text.is_empty() => Some(text.as_str()),
            _ => None,
        });
        let text = reasoning.collect::<Vec<_>>().join("\n");
        if !text.is_empty() {
            let summary = json!([{"type": "summary_text", "text": text}]);
            self.item(
                json!({"type": "reasoning", "id": format!("rs_{}", message.id), "summary": summary}),
                out,
            );
        }
    }

    /// Adds a complete item.
    fn item(&mut self, mut item: Value, out: &mut Vec<u8>) {
        let index = self.written.borrow().output.len();
        item["status"] = "in_progress".into();
        self.emit("response.output_item.added", json!({"output_index": index, "item": item}), out);
        item["status"] = "completed".into();
        self.written.borrow_mut().put(index, item.clone());
        self.emit("response.output_item.done", json!({"output_index": index, "item": item}), out);
    }

    fn call_id(&self, call_id: &CallId) -> String {
        format!("{call_id}{}", self.written.borrow().suffix)
    }

    fn call(&mut self, call_id: &CallId, name: &str, args: &Value, out: &mut Vec<u8>) {
        self.void_message(out);
        let (index, id, args) =
            (self.written.borrow().output.len(), format!("fc_{call_id}"), args.to_string());
        let item = |status: &str, args: &str| {
            json!({
                "type": "function_call", "id": id, "call_id": self.call_id(call_id), "name": name,
                "arguments": args, "status": status,
            })
        };
        let (begun, done) = (item("in_progress", ""), item("completed", &args));
        self.written.borrow_mut().put(index, done.clone());
        self.emit("response.output_item.added", json!({"output_index": index, "item": begun}), out);
        let delta = json!({"item_id": id, "output_index": index, "delta": args});
        self.emit("response.function_call_arguments.delta", delta, out);
        let all = json!({"item_id": id, "output_index": index, "name": name, "arguments": args});
        self.emit("response.function_call_arguments.done", all, out);
        self.emit("response.output_item.done", json!({"output_index": index, "item": done}), out);
    }

    /// Ends the response because the turn waits. The calls of the client's tools are already among the items.
    fn wait(&mut self, pending: &[Pending], at: Timestamp, out: &mut Vec<u8>) {
        for call in pending {
            let id = self.call_id(&call.call_id);
            match call.kind {
                WaitKind::Approval => {
                    let item = json!({
                        "type": "mcp_approval_request", "id": format!("mcpr_{id}"), "server_label": "edge-harness",
                        "name": call.name, "arguments": call.args.to_string(),
                    });
                    self.item(item, out);
                }
                WaitKind::External => {
                    let known = format!("fc_{}", call.call_id);
                    let is_known =
                        self.written.borrow().output.iter().flatten().any(|item| item["id"] == known);
                    if !is_known {
                        self.call(&call.call_id, &call.name, &call.args, out);
                    }
                }
                WaitKind::Question | WaitKind::Plan | WaitKind::Subagent | WaitKind::Auth => {
                    let kind = format!("edge_harness:{}", json!(call.kind).as_str().unwrap_or_default());
                    let item = json!({
                        "type": kind, "id": format!("wait_{id}"), "call_id": id, "name": call.name,
                        "payload": call.payload,
                    });
                    self.item(item, out);
                }
            }
        }
        self.finish("response.completed", "completed", at, out);
    }

    fn end(&mut self, end: &TurnEnd, at: Timestamp, out: &mut Vec<u8>) {
        self.close_message("incomplete", out);
        let incomplete = |reason: &str| json!({ "reason": reason });
        match end.stop_reason {
            StopReason::End | StopReason::Waiting => self.finish("response.completed", "completed", at, out),
            StopReason::Error => {
                let error = end.error.as_ref();
                let message = error.map_or("the turn failed", |error| error.message.as_str());
                self.written.borrow_mut().object["error"] =
                    json!({"code": "server_error", "message": message});
                self.finish("response.failed", "failed", at, out);
            }
            StopReason::Canceled => {
                self.written.borrow_mut().object["incomplete_details"] = incomplete("cancelled");
                self.finish("response.incomplete", "cancelled", at, out);
            }
            StopReason::ContentFilter => {
                self.written.borrow_mut().object["incomplete_details"] = incomplete("content_filter");
                self.finish("response.incomplete", "incomplete", at, out);
            }
            StopReason::MaxSteps
            | StopReason::MaxToolCalls
            | StopReason::Deadline
            | StopReason::Tokens
            | StopReason::Cost
            | StopReason::Length => {
                self.written.borrow_mut().object["incomplete_details"] = incomplete("max_output_tokens");
                self.finish("response.incomplete", "incomplete", at, out);
            }
        }
    }

    fn finish(&mut self, kind: &str, status: &str, at: Timestamp, out: &mut Vec<u8>) {
        {
            let written = &mut *self.written.borrow_mut();
            written.object["status"] = status.into();
            if status == "completed" {
                written.object["completed_at"] = (at.0 / 1000).into();
            }
            written.has_ended = true;
        }
        let response = self.written.borrow().response();
        self.emit(kind, json!({ "response": response }), out);
        if self.streams {
            out.extend_from_slice(b"data: [DONE]\n\n");
        }
    }

    fn set_usage(&self, usage: &Usage) {
        self.written.borrow_mut().object["usage"] = json!({
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.total_tokens,
        });
    }
}

fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn message_item(id: &MessageId, status: &str, text: Option<&str>) -> Value {
    let content: Vec<_> = text.map(text_part).into_iter().collect();
    json!({"type": "message", "id": id, "status": status, "role": "assistant", "content": content})
}
