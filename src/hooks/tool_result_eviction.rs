//! Keeps very large outputs of tools apart from the conversation, for as long as the session lives.
//!
//! Other large outputs are kept apart too, for a while (`session::artifacts::keep_apart`): what is this large
//! is worth keeping, and its end is shown beside its start.

use crate::agent::{
    Hook, RuntimeContext,
    hook::{HookEvent, PostActing},
};
use crate::types::{ToolOutcome, text::ends_around};
use async_trait::async_trait;

/// What is shown of an output: so many characters from its start, and as many from its end, but never more
/// than half of it.
const PREVIEW: usize = 2_000;

/// What reads what was kept apart, or is bounded by itself: evicted it could never be read.
const EXEMPT: [&str; 8] = [
    "read_artifact",
    "recall",
    "read_file",
    "grep_files",
    "memory_get",
    "memory_search",
    "session_history",
    "session_search",
];

/// Priority 50. Evicts outputs of more characters than this.
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
        if EXEMPT.contains(&event.call.name.as_str()) || event.stored.is_some() {
            return;
        }
        let text = event.outcome.model_text();
        let chars = text.chars().count();
        if chars <= self.0 {
            return;
        }
        let shown = 2 * PREVIEW.min(chars / 4);
        let note = |left_out, total| format!("{left_out} of {total} characters are left out");
        let preview = ends_around(&text, shown, note).unwrap_or_default();
        let kept = cx.artifacts.keep(cx.turn(), &event.call.call_id, result, &text).await;
        match kept {
            Ok(stored) => {
                event.outcome = ToolOutcome::Artifact { result: stored.as_output(preview) };
                event.stored = Some(stored);
            }
            // The output stays as it is, for whoever comes next.
            Err(error) => cx.state.sub_step_failed(self.name(), &error.to_string()),
        }
    }
}
