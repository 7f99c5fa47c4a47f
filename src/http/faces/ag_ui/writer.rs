//! Writes a turn as a run: its events.

use super::super::children::flattened;
use super::super::sse;
use crate::session::{
    frame::{Event, Frame},
    hub::Projection,
};
use crate::types::{
    CallId, Delta, EventKind, MessageId, Pending, SessionId, StopReason, TurnEnd, TurnStatus, Usage,
    WaitKind, json::escaped,
};
use serde_json::{Map, Value, json};

/// Reads the state of the session.
pub(super) type ReadState = Box<dyn Fn() -> Map<String, Value>>;

/// Writes the events of a run.
pub(super) struct Writer {
    thread: String,
    run: String,
    /// The messages before the turn, for a client that follows a run from its start.
    snapshot: Option<Value>,
    /// The calls whose results the client has in its messages.
    pub answered: Vec<CallId>,
    /// How often the turn has waited before; the run does not end there.
    earlier_waits: u32,
    /// Whether the client has the turn up to the last of these waits.
    is_continued: bool,
    read_state: ReadState,
    /// The state that the client has.
    state: Map<String, Value>,
    has_begun: bool,
    has_ended: bool,
    open: Option<Open>,
    /// The subagents that have started in this run and have not finished.
    subagents: Vec<SessionId>,
    usage: Usage,
    model: Option<String>,
}

/// The open message.
enum Open {
    Text(MessageId),
    Reasoning(MessageId),
}

impl Writer {
    pub fn new(
        thread: String,
        run: String,
        read_state: ReadState,
        earlier_waits: u32,
        snapshot: Option<Value>,
    ) -> Self {
        Self {
            thread,
            run,
            is_continued: snapshot.is_none(),
            snapshot,
            answered: Vec::new(),
            earlier_waits,
            read_state,
            state: Map::new(),
            has_begun: false,
            has_ended: false,
            open: None,
            subagents: Vec::new(),
            usage: Usage::default(),
            model: None,
        }
    }

    /// Writes a run in which nothing happens.
    pub fn write_idle(&mut self, out: &mut Vec<u8>) {
        self.begin(out);
        self.finish(&json!({"type": "success"}), out);
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let started = json!({
            "type": "RUN_STARTED", "threadId": self.thread, "runId": self.run, "protocolVersion": "1.0",
        });
        sse::write(&started, out);
        if let Some(messages) = self.snapshot.take() {
            sse::write(&json!({"type": "MESSAGES_SNAPSHOT", "messages": messages}), out);
        }
        self.state = (self.read_state)();
        if !self.state.is_empty() {
            sse::write(&json!({"type": "STATE_SNAPSHOT", "snapshot": self.state}), out);
        }
    }

    fn text(&mut self, id: &MessageId, delta: &str, out: &mut Vec<u8>) {
        if !matches!(&self.open, Some(Open::Text(open)) if open == id) {
            self.close(out);
            sse::write(&json!({"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"}), out);
            self.open = Some(Open::Text(id.clone()));
        }
        sse::write(&json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": delta}), out);
    }

    fn reasoning(&mut self, id: &MessageId, delta: &str, out: &mut Vec<u8>) {
        let message = format!("reasoning-{id}");
        if !matches!(&self.open, Some(Open::Reasoning(open)) if open == id) {
            self.close(out);
            sse::write(&json!({"type": "REASONING_START", "messageId": message}), out);
            let start = json!({"type": "REASONING_MESSAGE_START", "messageId": message, "role": "reasoning"});
            sse::write(&start, out);
            self.open = Some(Open::Reasoning(id.clone()));
        }
        sse::write(&json!({"type": "REASONING_MESSAGE_CONTENT", "messageId": message, "delta": delta}), out);
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        match self.open.take() {
            Some(Open::Text(id)) => sse::write(&json!({"type": "TEXT_MESSAGE_END", "messageId": id}), out),
            Some(Open::Reasoning(id)) => {
                let message = format!("reasoning-{id}");
                sse::write(&json!({"type": "REASONING_MESSAGE_END", "messageId": message}), out);
                sse::write(&json!({"type": "REASONING_END", "messageId": message}), out);
            }
            None => {}
        }
    }

    fn call(
        &mut self,
        parent: Option<&MessageId>,
        call_id: &CallId,
        name: &str,
        args: &Value,
        out: &mut Vec<u8>,
    ) {
        self.close(out);
        let mut start = json!({"type": "TOOL_CALL_START", "toolCallId": call_id, "toolCallName": name});
        if let Some(parent) = parent {
            start["parentMessageId"] = json!(parent);
        }
        sse::write(&start, out);
        sse::write(&json!({"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": args.to_string()}), out);
        sse::write(&json!({"type": "TOOL_CALL_END", "toolCallId": call_id}), out);
    }

    /// Sends what has changed in the state that the client has.
    fn send_state(&mut self, out: &mut Vec<u8>) {
        let now = (self.read_state)();
        let path = |key: &str| format!("/{}", escaped(key));
        let gone = self.state.keys().filter(|key| !now.contains_key(*key));
        let gone = gone.map(|key| json!({"op": "remove", "path": path(key)}));
        let set = now.iter().filter(|(key, value)| self.state.get(*key) != Some(value));
        let set = set.map(|(key, value)| json!({"op": "add", "path": path(key), "value": value}));
        let delta: Vec<_> = gone.chain(set).collect();
        if !delta.is_empty() {
            sse::write(&json!({"type": "STATE_DELTA", "delta": delta}), out);
        }
        self.state = now;
    }

    fn custom(name: &str, value: &Value, out: &mut Vec<u8>) {
        sse::write(&json!({"type": "CUSTOM", "name": name, "value": value}), out);
    }

    fn wait(&mut self, pending: &[Pending], out: &mut Vec<u8>) {
        let interrupts: Vec<_> =
            pending.iter().filter(|call| call.kind != WaitKind::External).map(interrupt).collect();
        if interrupts.is_empty() {
            let ids: Vec<_> = pending.iter().map(|call| &call.call_id).collect();
            self.finish(&json!({"type": "success", "pendingToolCallIds": ids}), out);
        } else {
            self.finish(&json!({"type": "interrupt", "interrupts": interrupts}), out);
        }
    }

    fn end(&mut self, end: &TurnEnd, out: &mut Vec<u8>) {
        self.usage = end.usage;
        self.model.clone_from(&end.model);
        match end.stop_reason {
            StopReason::Error => {
                self.close(out);
                let error = end.error.as_ref();
                let message = error.map_or("the turn failed", |error| error.message.as_str());
                let code = error.map_or("internal", |error| error.code.as_str());
                sse::write(&json!({"type": "RUN_ERROR", "message": message, "code": code}), out);
                self.has_ended = true;
            }
            StopReason::Canceled => self.finish(&json!({"type": "cancelled"}), out),
            StopReason::End => self.finish(&json!({"type": "success"}), out),
            // The reply is complete, but shorter than the model wanted.
            reason => {
                Self::custom("stop_reason", &json!(reason), out);
                self.finish(&json!({"type": "success"}), out);
            }
        }
    }

    fn start_subagent(
        &mut self,
        call_id: &CallId,
        session: &SessionId,
        agent: &str,
        task: Option<&str>,
        out: &mut Vec<u8>,
    ) {
        let mut started = json!({
            "type": "SUBAGENT_STARTED", "subagentRunId": session, "name": agent, "parentToolCallId": call_id,
        });
        if let Some(task) = task {
            started["description"] = task.into();
        }
        sse::write(&started, out);
        self.subagents.push(session.clone());
    }

    fn end_subagent(&mut self, session: &SessionId, status: TurnStatus, out: &mut Vec<u8>) {
        self.subagents.retain(|own| own != session);
        let done = match status {
            TurnStatus::Completed => json!({
                "type": "SUBAGENT_FINISHED", "subagentRunId": session, "outcome": {"type": "success"},
            }),
            status => {
                let message = format!("the subagent ended as {}", json!(status).as_str().unwrap_or_default());
                json!({"type": "SUBAGENT_ERROR", "subagentRunId": session, "message": message})
            }
        };
        sse::write(&done, out);
    }

    fn finish(&mut self, outcome: &Value, out: &mut Vec<u8>) {
        self.close(out);
        // A run has no open subagents when it ends; they continue in the next one.
        for session in self.subagents.drain(..) {
            let outcome = json!({"type": "suspended"});
            let suspended =
                json!({"type": "SUBAGENT_FINISHED", "subagentRunId": session, "outcome": outcome});
            sse::write(&suspended, out);
        }
        // Changes from outside of the turn are not among its events.
        self.send_state(out);
        let mut usage = json!({
            "inputTokens": self.usage.input_tokens,
            "outputTokens": self.usage.output_tokens,
            "totalTokens": self.usage.total_tokens,
            "reasoningTokens": self.usage.reasoning_tokens,
            "cachedInputTokens": self.usage.cache_read_tokens,
            "cacheWriteInputTokens": self.usage.cache_write_tokens,
        });
        if let Some((provider, model)) = self.model.as_deref().and_then(|model| model.split_once('/')) {
            usage["provider"] = provider.into();
            usage["model"] = model.into();
        }
        let finished = json!({
            "type": "RUN_FINISHED", "threadId": self.thread, "runId": self.run, "outcome": outcome, "usage": [usage],
        });
        sse::write(&finished, out);
        self.has_ended = true;
    }
}

impl Projection for Writer {
    fn write(&mut self, next: Event<'_>, out: &mut Vec<u8>) {
        if self.has_ended {
            return;
        }
        if self.is_continued && self.earlier_waits > 0 {
            self.earlier_waits -= u32::from(next.is_wait());
            return;
        }
        self.begin(out);
        let record = match next {
            Event::Delta(Delta::Text { id, delta }) => return self.text(id, delta, out),
            Event::Delta(Delta::Reasoning { id, delta }) => return self.reasoning(id, delta, out),
            Event::Delta(Delta::ToolInput { .. } | Delta::ToolProgress(_)) => return,
            Event::Record(record) => record,
        };
        match &record.kind {
            EventKind::MessageCompleted { .. } | EventKind::TurnResumed { .. } => self.close(out),
            EventKind::ToolStarted { message, call_id, name, args, .. } => {
                self.call(Some(message), call_id, name, args, out);
            }
            // The client would show it twice.
            EventKind::ToolCompleted { call_id, .. } if self.answered.contains(call_id) => {}
            EventKind::ToolCompleted { call_id, outcome, .. } => {
                let result = json!({
                    "type": "TOOL_CALL_RESULT", "messageId": format!("result-{call_id}"), "toolCallId": call_id,
                    "content": outcome.model_text(), "role": "tool",
                });
                sse::write(&result, out);
            }
            EventKind::StateChanged { .. } => self.send_state(out),
            EventKind::TaskListUpdated { tasks } => Self::custom("task_list", &json!(tasks), out),
            EventKind::ModeChanged { mode, .. } => Self::custom("mode", &json!({ "mode": mode }), out),
            EventKind::SubagentStarted { call_id, session, agent, task, .. } => {
                self.start_subagent(call_id, session, agent, Some(task), out);
            }
            EventKind::SubagentCompleted { call_id, session, agent, status, .. } => {
                // It may have started in an earlier run.
                if !self.subagents.contains(session) {
                    self.start_subagent(call_id, session, agent, None, out);
                }
                self.end_subagent(session, *status, out);
            }
            EventKind::UsageUpdated { total, model, .. } => {
                self.usage = *total;
                self.model.clone_from(model);
            }
            EventKind::TurnWaiting { .. } if self.earlier_waits > 0 => self.earlier_waits -= 1,
            EventKind::TurnWaiting { pending } => self.wait(&flattened(pending), out),
            EventKind::TurnCompleted(end) | EventKind::TurnFailed(end) | EventKind::TurnCanceled(end) => {
                self.end(end, out);
            }
            _ => {}
        }
    }

    fn queue(&mut self, out: &mut Vec<u8>) {
        self.begin(out);
    }

    fn is_last(&self, _frame: &Frame) -> bool {
        self.has_ended
    }
}

fn interrupt(call: &Pending) -> Value {
    let kind = json!(call.kind);
    let mut interrupt = json!({
        "id": call.call_id, "reason": kind, "toolCallId": call.call_id, "expiresAt": call.expires_at,
        "metadata": {"tool": call.name, "args": call.args, "payload": call.payload},
    });
    if call.kind == WaitKind::Approval {
        interrupt["message"] = format!("May {} run?", call.name).into();
        interrupt["responseSchema"] = json!({
            "type": "object",
            "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
            "required": ["approved"],
        });
    }
    interrupt
}
