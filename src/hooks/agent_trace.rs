//! The `agent_trace` hook: a structured log line, with timings, for each step with tool calls, each tool
//! call, and each end of a turn.

use crate::agent::{
    Hook, HookDraft, RuntimeContext,
    hook::{HookEvent, OnError, PostActing, PostCall, PostReasoning, SubStepError},
};
use crate::ports::Log;
use crate::types::{Part, time::millis};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::rc::Rc;

/// Priority 0, before any other built-in hook changes an event.
pub struct AgentTrace {
    log: Rc<dyn Log>,
}

impl AgentTrace {
    /// Creates a trace that writes to `log`.
    pub fn new(log: Rc<dyn Log>) -> Self {
        Self { log }
    }

    fn line(&self, cx: &RuntimeContext, event: &str, mut fields: Value) {
        fields["event"] = event.into();
        fields["tenant"] = cx.tenant.as_str().into();
        fields["session"] = cx.session_id().as_str().into();
        fields["turn"] = cx.turn().as_str().into();
        self.log.line(&fields);
    }

    fn turn_ms(cx: &RuntimeContext, draft: &HookDraft<'_>) -> u64 {
        let started = draft.state().activity.turn.as_ref().map(|turn| turn.started_at);
        started.map_or(0, |started| millis(cx.clock.now().since(started)))
    }
}

#[async_trait(?Send)]
impl Hook for AgentTrace {
    fn name(&self) -> &'static str {
        "agent_trace"
    }

    fn events(&self) -> &'static [HookEvent] {
        &[HookEvent::PostReasoning, HookEvent::PostActing, HookEvent::PostCall, HookEvent::Error]
    }

    async fn post_reasoning(&self, event: &PostReasoning, cx: &RuntimeContext) {
        let calls = event.response.parts.iter().filter(|part| matches!(part, Part::ToolCall(_))).count();
        if calls == 0 {
            // The turn ends with this step and logs the same figures.
            return;
        }
        self.line(
            cx,
            "model.responded",
            json!({"step": event.step, "ms": millis(event.elapsed), "usage": event.response.usage, "calls": calls}),
        );
    }

    async fn post_acting(&self, event: &mut PostActing<'_>, cx: &RuntimeContext) {
        let failed = event.outcome.is_error();
        self.line(
            cx,
            "tool.ended",
            json!({"tool": event.call.name, "ms": millis(event.elapsed), "failed": failed}),
        );
    }

    fn post_call(&self, event: &mut PostCall<'_>, cx: &RuntimeContext) -> Result<(), SubStepError> {
        let ms = Self::turn_ms(cx, &event.draft);
        self.line(
            cx,
            "turn.ended",
            json!({"stop_reason": event.stop_reason, "ms": ms, "usage": event.usage}),
        );
        Ok(())
    }

    fn on_error(&self, event: &mut OnError<'_>, cx: &RuntimeContext) -> Result<(), SubStepError> {
        let ms = Self::turn_ms(cx, &event.draft);
        self.line(
            cx,
            "turn.failed",
            // The message is left out, because it may quote the conversation.
            json!({"code": event.error.code, "ms": ms, "cause": event.error.cause}),
        );
        Ok(())
    }
}
