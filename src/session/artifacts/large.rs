//! Tool outputs that are too large for the model.

use super::{ArtifactError, Artifacts, Content, MAX_BYTES, Stored};
use crate::types::{ArtifactId, ArtifactRef, CallId, GeneratedId, ToolOutcome, TurnId};
use bytes::Bytes;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::time::Duration;

/// Maximum number of characters of an output that the model is shown.
pub const MAX_CHARS: usize = 12_000;
/// Maximum number of characters of a preview.
const PREVIEW_CHARS: usize = 200;

/// Moves an output that is too large for the model to an artifact. If the store fails, the output is
/// truncated with a note. Never fails.
pub async fn store_if_large(
    artifacts: &Artifacts,
    id: ArtifactId,
    outcome: ToolOutcome,
    ttl: Duration,
) -> (ToolOutcome, Option<Stored>) {
    let text = match &outcome {
        ToolOutcome::Artifact { .. } => return (outcome, None),
        outcome => outcome.model_text(),
    };
    if text.char_indices().nth(MAX_CHARS).is_none() {
        return (outcome, None);
    }
    let ToolOutcome::Result { result } = &outcome else {
        return (with_short_reason(outcome.clone()), None);
    };
    let (preview, content) = (preview(&text), content(result, &text));
    match artifacts.put(id, content, Some(ttl)).await {
        Ok(stored) => (ToolOutcome::Artifact { result: stored.as_output(preview) }, Some(stored)),
        Err(_) => {
            let result = Value::String(cut(&text, "the output could not be stored"));
            (ToolOutcome::Result { result }, None)
        }
    }
}

impl Artifacts {
    /// Stores the output of a call for the lifetime of the session. The same output of the same call is
    /// stored once, even if it is stored again after a crash.
    ///
    /// # Errors
    /// If a store fails or times out.
    pub async fn store_output(
        &self,
        turn: &TurnId,
        call_id: &CallId,
        output: &Value,
        text: &str,
    ) -> Result<Stored, ArtifactError> {
        self.put(id_of([turn.as_str(), call_id, text]), content(output, text), None).await
    }
}

/// Returns the id that follows from these texts.
pub(super) fn id_of(parts: [&str; 3]) -> ArtifactId {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let name: String = hash.finalize().iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    format!("{}{name}", ArtifactId::PREFIX).into()
}

impl Stored {
    /// Returns the output as the model is shown it: a reference and a preview.
    pub fn as_output(&self, preview: String) -> ArtifactRef {
        let pointer = &self.pointer;
        ArtifactRef {
            r#ref: pointer.r#ref.clone(),
            bytes: pointer.bytes,
            mime_type: pointer.mime_type.clone(),
            preview,
            expires_at: pointer.expires_at,
        }
    }
}

/// Returns the bytes to store: the whole output, truncated to the maximum size.
fn content(result: &Value, text: &str) -> Content {
    let is_text = result.is_string() || text.len() > MAX_BYTES;
    let mime_type = if is_text { "text/plain; charset=utf-8" } else { "application/json" };
    let bytes = if text.len() > MAX_BYTES {
        // Leave room for the note at the end.
        let head = text.split_at(text.floor_char_boundary(MAX_BYTES - PREVIEW_CHARS)).0;
        let dropped = text.len() - head.len();
        format!("{head}\n[{dropped} of {} bytes are left out: too large to be kept]", text.len()).into()
    } else {
        Bytes::copy_from_slice(text.as_bytes())
    };
    Content { bytes, mime_type: mime_type.into(), name: None }
}

/// Returns the first characters, on one line.
fn preview(text: &str) -> String {
    let breaks = |c: char| c.is_control() || c == '\u{2028}' || c == '\u{2029}';
    text.chars().take(PREVIEW_CHARS).map(|c| if breaks(c) { ' ' } else { c }).collect()
}

/// Returns the start of a text, with a note on how much is missing and why.
fn cut(text: &str, why: &str) -> String {
    let Some((end, _)) = text.char_indices().nth(MAX_CHARS) else { return text.to_owned() };
    let (head, rest) = text.split_at(end);
    let dropped = rest.chars().count();
    format!("{head}\n[{dropped} of {} characters are left out: {why}]", MAX_CHARS + dropped)
}

/// Truncates the reason of a failed call.
fn with_short_reason(mut outcome: ToolOutcome) -> ToolOutcome {
    match &mut outcome {
        ToolOutcome::Timeout { reason, .. }
        | ToolOutcome::Failure { reason, .. }
        | ToolOutcome::Denied { reason, .. }
        | ToolOutcome::Unknown { reason } => *reason = cut(reason, "too long"),
        ToolOutcome::Result { .. } | ToolOutcome::Artifact { .. } => {}
    }
    outcome
}
