//! The `tool_result_eviction` hook: moves very large tool outputs to artifacts that live as long as the
//! session.
//!
//! Smaller large outputs expire (`session::artifacts::store_if_large`), and only their start is shown.

use crate::agent::{
    Hook, RuntimeContext,
    hook::{HookEvent, PostActing},
};
use crate::types::{ToolOutcome, text::ends_around};
use async_trait::async_trait;

/// Number of characters shown from the start and from the end of an output, together at most half of it.
const PREVIEW_CHARS: usize = 2_000;

/// The agent's tools that read artifacts or limit their own output. If their results were evicted, the model could never
/// read them.
const EXEMPT: [&str; 9] = [
    "read_artifact",
    "recall",
    "load_skill",
    "read_file",
    "grep_files",
    "memory_get",
    "memory_search",
    "session_history",
    "session_search",
];

/// Priority 50. Holds the number of characters above which an output is evicted.
pub struct ToolResultEviction(pub usize);

#[async_trait(?Send)]
impl Hook for ToolResultEviction {
    fn name(&self) -> &'static str {
        "tool_result_eviction"
    }

    fn events(&self) -> &'static [HookEvent] {
        &[HookEvent::PostActing]
    }

    fn priority(&self) -> i32 {
        50
    }

    async fn post_acting(&self, event: &mut PostActing<'_>, cx: &RuntimeContext) {
        let ToolOutcome::Result { result } = &event.outcome else { return };
        let name = event.call.name.as_str();
        // A tool of the client may have the name of an exempt one, but its results are in no file or store of the server.
        let is_exempt =
            || EXEMPT.contains(&name) && cx.session.state().client_tools().iter().all(|own| own.name != name);
        if event.stored.is_some() || is_exempt() {
            return;
        }
        let text = event.outcome.model_text();
        let chars = text.chars().count();
        if chars <= self.0 {
            return;
        }
        let shown = 2 * PREVIEW_CHARS.min(chars / 4);
        let note = |left_out, total| format!("{left_out} of {total} characters left out");
        let preview = ends_around(&text, shown, note).unwrap_or_default();
        let kept = cx.artifacts.store_output(cx.turn(), &event.call.call_id, result, &text).await;
        match kept {
            Ok(stored) => {
                event.outcome = ToolOutcome::Artifact { result: stored.as_output(preview) };
                event.stored = Some(stored);
            }
            // The output is left to later hooks and the default handling of large outputs.
            Err(error) => cx.state.sub_step_failed(self.name(), &error.to_string()),
        }
    }
}
