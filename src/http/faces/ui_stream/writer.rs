//! Writes a turn as one message of a page: its chunks.

use super::super::children::flattened;
use super::super::sse;
use super::request::Decided;
use crate::session::{
    frame::{Event, Frame},
    hub::Projection,
};
use crate::types::{
    ArtifactId, CallId, Decision, Delta, DenyReason, EventKind, MessageId, Pending, SessionId, Source,
    StopReason, ToolOutcome, TurnEnd, TurnId, Usage, WaitKind,
};
use serde_json::{Value, json};

/// Writes the chunks of a message. The whole turn is one message, so its id is that of the turn.
pub(super) struct Writer {
    session: SessionId,
    turn: TurnId,
    /// The names of the tools that the client runs.
    client_tools: Vec<String>,
    /// How often the turn has waited before; the message does not end there.
    earlier_waits: u32,
    /// Whether the client has the message up to the last of these waits.
    is_continued: bool,
    has_begun: bool,
    has_ended: bool,
    /// The message of the assistant that the current step belongs to.
    step: Option<MessageId>,
    has_step: bool,
    /// The open part: of text or of reasoning.
    open: Option<Open>,
    /// The calls that wait for approval.
    asked: Vec<CallId>,
    /// The calls without an outcome.
    unfinished: Vec<CallId>,
    /// The calls that were suspended for an answer.
    suspended: Vec<CallId>,
    /// The calls that the page has decided in the message, and whose parts therefore have no output.
    decided: Vec<Decided>,
    /// The chunks that mark what the page has answered as done.
    answered: Vec<Value>,
    usage: Usage,
}

struct Open {
    kind: &'static str,
    id: String,
}

impl Writer {
    /// Writes what comes next, up to the next wait.
    pub fn new(
        session: &SessionId,
        turn: &TurnId,
        client_tools: Vec<String>,
        decided: Vec<Decided>,
        answered: Vec<Value>,
    ) -> Self {
        Self {
            session: session.clone(),
            turn: turn.clone(),
            client_tools,
            earlier_waits: 0,
            is_continued: false,
            has_begun: false,
            has_ended: false,
            step: None,
            has_step: false,
            open: None,
            asked: Vec::new(),
            unfinished: Vec::new(),
            suspended: Vec::new(),
            decided,
            answered,
            usage: Usage::default(),
        }
    }

    /// Does not end the message where the turn has waited before.
    pub fn through(self, earlier_waits: u32) -> Self {
        Self { earlier_waits, ..self }
    }

    /// Writes only what comes after these waits.
    pub fn after(self, earlier_waits: u32) -> Self {
        Self { earlier_waits, is_continued: true, ..self }
    }

    /// Begins a step for this message of the assistant, unless it is the current one.
    fn begin_step(&mut self, message: &MessageId, out: &mut Vec<u8>) {
        if self.step.as_ref() == Some(message) {
            return;
        }
        // After a reset, the step goes on with another message.
        let is_reset = self.has_step && self.step.is_none();
        self.step = Some(message.clone());
        if is_reset {
            return;
        }
        self.end_step(out);
        self.has_step = true;
        sse::write(&json!({"type": "start-step"}), out);
    }

    fn end_step(&mut self, out: &mut Vec<u8>) {
        self.close(out);
        if std::mem::take(&mut self.has_step) {
            sse::write(&json!({"type": "finish-step"}), out);
        }
    }

    fn delta(&mut self, kind: &'static str, message: &MessageId, delta: &str, out: &mut Vec<u8>) {
        self.begin_step(message, out);
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.close(out);
            let id = format!("{kind}-{message}");
            sse::write(&json!({"type": format!("{kind}-start"), "id": id}), out);
            self.open = Some(Open { kind, id });
        }
        if let Some(Open { id, .. }) = &self.open {
            sse::write(&json!({"type": format!("{kind}-delta"), "id": id, "delta": delta}), out);
        }
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        if let Some(Open { kind, id }) = self.open.take() {
            sse::write(&json!({"type": format!("{kind}-end"), "id": id}), out);
        }
    }

    /// Voids the text of the current step.
    fn reset(&mut self, out: &mut Vec<u8>) {
        if self.open.take().is_some() {
            self.step = None;
            sse::write(&json!({"type": "reset-step"}), out);
        }
    }

    fn is_of_client(&self, name: &str) -> bool {
        self.client_tools.iter().any(|own| own == name)
    }

    /// Sends a call before it may run.
    fn call(&self, call_id: &CallId, name: &str, input: &Value, out: &mut Vec<u8>) {
        if self.is_of_client(name) {
            // The page would run its tool at once if the input were available.
            let start =
                json!({"type": "tool-input-start", "toolCallId": call_id, "toolName": name, "dynamic": true});
            let delta = input.to_string();
            sse::write(&start, out);
            sse::write(
                &json!({"type": "tool-input-delta", "toolCallId": call_id, "inputTextDelta": delta}),
                out,
            );
        } else {
            // Otherwise the page takes the tool for its own, and sends the message again and again.
            Self::available(call_id, name, input, false, out);
        }
    }

    fn available(call_id: &CallId, name: &str, input: &Value, is_of_client: bool, out: &mut Vec<u8>) {
        let mut call = json!({
            "type": "tool-input-available", "toolCallId": call_id, "toolName": name, "input": input, "dynamic": true,
        });
        if !is_of_client {
            call["providerExecuted"] = true.into();
        }
        sse::write(&call, out);
    }

    /// Sends a call that the page has to answer.
    fn answerable(call: &Pending, out: &mut Vec<u8>) {
        Self::available(&call.call_id, &call.name, &call.args, true, out);
    }

    fn output(call_id: &CallId, output: &Value, out: &mut Vec<u8>) {
        let done = json!({
            "type": "tool-output-available", "toolCallId": call_id, "output": output, "dynamic": true,
            "providerExecuted": true,
        });
        sse::write(&done, out);
    }

    fn denied(call_id: &CallId, out: &mut Vec<u8>) {
        sse::write(&json!({"type": "tool-output-denied", "toolCallId": call_id}), out);
    }

    fn outcome(&mut self, call_id: &CallId, name: &str, outcome: &ToolOutcome, out: &mut Vec<u8>) {
        let mut done = json!({"toolCallId": call_id, "dynamic": true});
        if !self.is_of_client(name) {
            done["providerExecuted"] = true.into();
        }
        let error = |mut done: Value, text: &str| {
            done["type"] = "tool-output-error".into();
            done["errorText"] = text.into();
            done
        };
        let done = match outcome {
            ToolOutcome::Result { result } => {
                done["type"] = "tool-output-available".into();
                done["output"] = result.clone();
                done
            }
            ToolOutcome::Artifact { result } => {
                done["type"] = "tool-output-available".into();
                done["output"] = json!(result);
                done
            }
            ToolOutcome::Denied { denied: DenyReason::Declined | DenyReason::Expired, .. } => {
                return Self::denied(call_id, out);
            }
            other => error(done, &other.model_text()),
        };
        sse::write(&done, out);
    }

    fn source(place: usize, call_id: &CallId, source: &Source, out: &mut Vec<u8>) {
        let id = format!("{call_id}-{place}");
        let mut part = match source {
            Source::Web { url, .. } => json!({"type": "source-url", "sourceId": id, "url": url}),
            Source::Local { path, .. } => json!({
                "type": "source-document", "sourceId": id, "mediaType": "text/plain", "title": path,
            }),
        };
        let (Source::Web { title, .. } | Source::Local { title, .. }) = source;
        if let Some(title) = title {
            part["title"] = title.as_str().into();
        }
        sse::write(&part, out);
    }

    /// Sends a file that a tool has produced. The page needs its credential to read it.
    fn file(&self, id: &ArtifactId, media_type: &str, out: &mut Vec<u8>) {
        let url = format!("/v1/sessions/{}/artifacts/{id}", self.session);
        sse::write(&json!({"type": "file", "url": url, "mediaType": media_type}), out);
    }

    /// Sends data that the page may display. A later part with the same id replaces it.
    fn data(name: &str, id: &str, data: &Value, out: &mut Vec<u8>) {
        sse::write(&json!({"type": format!("data-{name}"), "id": id, "data": data}), out);
    }

    /// Sends what a call shows to the user.
    fn shown(kind: &str, call_id: &CallId, name: &str, payload: &Value, out: &mut Vec<u8>) {
        Self::data(kind, call_id, &json!({"callId": call_id, "tool": name, "payload": payload}), out);
    }

    fn wait(&mut self, pending: &[Pending], out: &mut Vec<u8>) {
        // A page that sends its answers by itself would send them again after each response, because the step goes on.
        for chunk in std::mem::take(&mut self.answered) {
            if pending.iter().all(|call| chunk["toolCallId"] != json!(call.call_id)) {
                sse::write(&chunk, out);
            }
        }
        for call in pending {
            let call_id = &call.call_id;
            match call.kind {
                // In a response to a call that left others waiting, the request was in an earlier one.
                WaitKind::Approval if !self.asked.contains(call_id) => {
                    self.call(call_id, &call.name, &call.args, out);
                    self.ask(call_id, out);
                }
                WaitKind::Subagent if !call.payload["pending"].is_null() => self.wait_for_subagent(call, out),
                WaitKind::External | WaitKind::Question | WaitKind::Plan | WaitKind::Auth
                    if self.is_unanswered(call_id) =>
                {
                    Self::answerable(call, out);
                }
                _ => {}
            }
        }
        // No call runs while another one waits. A page sends decisions by itself once all calls of the step have an
        // output. The result replaces this one.
        for call_id in self.unfinished.iter().filter(|own| !self.asked.contains(own)) {
            if pending.iter().all(|call| call.call_id != *call_id) {
                Self::output(call_id, &json!({"status": "waiting"}), out);
            }
        }
        self.finish("tool-calls", out);
    }

    /// Returns whether the page has no input to answer: the call is new, or the page has only its approval. A repeated
    /// input would void an answer that the page has, but has not sent.
    fn is_unanswered(&self, call_id: &CallId) -> bool {
        self.suspended.contains(call_id) || self.decided.iter().any(|own| own.call_id == *call_id)
    }

    /// Shows the calls of a subagent that waits as calls of this message.
    fn wait_for_subagent(&mut self, waiting: &Pending, out: &mut Vec<u8>) {
        let Pending { call_id, name, args, payload, .. } = waiting;
        let data = json!({"callId": call_id, "session": payload["session"], "pending": payload["pending"]});
        Self::data("subagent", call_id, &data, out);
        self.call(call_id, name, args, out);
        Self::output(call_id, &json!({"status": "waiting", "session": payload["session"]}), out);
        for theirs in flattened(std::slice::from_ref(waiting)) {
            let id = &theirs.call_id;
            if theirs.kind == WaitKind::Approval {
                self.call(id, &theirs.name, &theirs.args, out);
                self.ask(id, out);
            } else {
                Self::answerable(&theirs, out);
            }
            match theirs.kind {
                WaitKind::Question => Self::shown("question", id, &theirs.name, &theirs.payload, out),
                WaitKind::Plan => Self::shown("plan", id, &theirs.name, &theirs.payload, out),
                WaitKind::Auth => Self::shown("auth", id, &theirs.name, &theirs.payload, out),
                WaitKind::Approval | WaitKind::External | WaitKind::Subagent => {}
            }
            self.decided.retain(|own| own.call_id != *id);
        }
    }

    /// Ends the calls of subagents that the page has decided, because the log does not have their outcomes. Otherwise the
    /// page would send its decisions again.
    fn end_decided(&mut self, is_end: bool, out: &mut Vec<u8>) {
        for decided in std::mem::take(&mut self.decided) {
            // The page may still have to run its tool, and would not send the result of a call with an output.
            let is_kept = decided.runs() && self.is_of_client(&decided.name);
            match decided.status() {
                _ if !decided.is_of_subagent() || (is_kept && !is_end) => self.decided.push(decided),
                Some(status) => Self::output(&decided.call_id, &json!({ "status": status }), out),
                None => Self::denied(&decided.call_id, out),
            }
        }
    }

    fn ask(&mut self, call_id: &CallId, out: &mut Vec<u8>) {
        self.asked.push(call_id.clone());
        sse::write(
            &json!({"type": "tool-approval-request", "approvalId": call_id, "toolCallId": call_id}),
            out,
        );
    }

    fn finish(&mut self, reason: &str, out: &mut Vec<u8>) {
        self.end_decided(true, out);
        self.end_step(out);
        let metadata = json!({"turnId": self.turn, "usage": {
            "inputTokens": self.usage.input_tokens,
            "outputTokens": self.usage.output_tokens,
            "totalTokens": self.usage.total_tokens,
            "reasoningTokens": self.usage.reasoning_tokens,
            "cachedInputTokens": self.usage.cache_read_tokens,
        }});
        sse::write(&json!({"type": "finish", "finishReason": reason, "messageMetadata": metadata}), out);
        self.done(out);
    }

    fn done(&mut self, out: &mut Vec<u8>) {
        self.has_ended = true;
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn end(&mut self, end: &TurnEnd, out: &mut Vec<u8>) {
        self.usage = end.usage;
        match end.stop_reason {
            StopReason::End | StopReason::Waiting => self.finish("stop", out),
            StopReason::ContentFilter => self.finish("content-filter", out),
            StopReason::Error => {
                self.end_step(out);
                let text = end.error.as_ref().map_or("the turn failed", |error| error.message.as_str());
                sse::write(&json!({"type": "error", "errorText": text}), out);
                self.done(out);
            }
            StopReason::Canceled => {
                self.end_step(out);
                sse::write(&json!({"type": "abort"}), out);
                self.done(out);
            }
            StopReason::MaxSteps
            | StopReason::MaxToolCalls
            | StopReason::Deadline
            | StopReason::Tokens
            | StopReason::Cost
            | StopReason::Length => self.finish("length", out),
        }
    }
}

impl Projection for Writer {
    fn write(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
        if self.has_ended {
            return;
        }
        if self.is_continued && self.earlier_waits > 0 {
            self.earlier_waits -= u32::from(event.is_wait());
            return;
        }
        if !std::mem::replace(&mut self.has_begun, true) {
            sse::write(&json!({"type": "start", "messageId": self.turn}), out);
            self.end_decided(false, out);
        }
        let record = match event {
            Event::Delta(Delta::Text { id, delta }) => return self.delta("text", id, delta, out),
            Event::Delta(Delta::Reasoning { id, delta }) => return self.delta("reasoning", id, delta, out),
            Event::Delta(Delta::ToolInput { .. } | Delta::ToolProgress(_)) => return,
            Event::Record(record) => record,
        };
        match &record.kind {
            EventKind::MessageCompleted { .. } => self.close(out),
            EventKind::TurnResumed { .. } => self.reset(out),
            EventKind::ToolStarted { message, call_id, name, args, .. } => {
                self.begin_step(message, out);
                self.close(out);
                self.call(call_id, name, args, out);
                self.unfinished.push(call_id.clone());
            }
            EventKind::ToolApprovalRequired { call_id, .. } => self.ask(call_id, out),
            EventKind::ApprovalDecided { call_id, decision, reason, .. } => {
                // A page that continues its message has asked itself.
                let mut decided = json!({
                    "type": "tool-approval-response", "approvalId": call_id,
                    "approved": *decision != Decision::Decline,
                });
                if let Some(reason) = reason {
                    decided["reason"] = reason.as_str().into();
                }
                sse::write(&decided, out);
            }
            EventKind::ToolSuspended { call_id, name, kind, payload, .. } => {
                self.suspended.push(call_id.clone());
                match kind {
                    WaitKind::Question => Self::shown("question", call_id, name, payload, out),
                    WaitKind::Plan => Self::shown("plan", call_id, name, payload, out),
                    WaitKind::Auth => Self::shown("auth", call_id, name, payload, out),
                    WaitKind::Approval | WaitKind::External | WaitKind::Subagent => {}
                }
            }
            EventKind::ToolCompleted { call_id, name, outcome, sources, .. } => {
                self.unfinished.retain(|own| own != call_id);
                self.outcome(call_id, name, outcome, out);
                for (place, source) in sources.iter().enumerate() {
                    Self::source(place, call_id, source, out);
                }
            }
            EventKind::ArtifactStored { r#ref, mime_type, .. } => self.file(r#ref, mime_type, out),
            EventKind::TaskListUpdated { tasks } => {
                Self::data("tasks", "tasks", &json!({ "tasks": tasks }), out)
            }
            EventKind::ModeChanged { mode, .. } => Self::data("mode", "mode", &json!({ "mode": mode }), out),
            EventKind::UsageUpdated { total, .. } => self.usage = *total,
            EventKind::TurnWaiting { .. } if self.earlier_waits > 0 => self.earlier_waits -= 1,
            EventKind::TurnWaiting { pending } => self.wait(pending, out),
            EventKind::TurnCompleted(end) | EventKind::TurnFailed(end) | EventKind::TurnCanceled(end) => {
                self.end(end, out);
            }
            _ => {}
        }
    }

    fn is_last(&self, _frame: &Frame) -> bool {
        self.has_ended
    }
}
