//! Outcomes of tool calls.

use super::{ArtifactId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;

/// Why a tool call was not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DenyReason {
    /// No tool with this name is available.
    UnknownTool,
    /// The arguments do not match the tool's schema.
    Validation,
    /// The turn has used up its tool calls or steps.
    Budget,
    /// The turn's deadline has passed.
    Deadline,
    /// A hook or a permission rule forbids the call.
    Permission,
    /// An equal call succeeded earlier in this turn, and no call has changed anything since.
    Duplicate,
    /// The tool failed in this turn in a way that a retry cannot fix.
    Blocked,
    /// A person declined it.
    Declined,
    /// The approval expired without a decision.
    Expired,
    /// The turn was aborted before the call ran.
    Canceled,
}

/// A tool output that is stored outside the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ArtifactRef {
    /// The artifact's id, `art_…`.
    pub r#ref: ArtifactId,
    /// Size in bytes.
    pub bytes: u64,
    /// The media type.
    pub mime_type: String,
    /// The first characters of the content, on one line.
    pub preview: String,
    /// When the artifact is deleted; absent if it never expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl ArtifactRef {
    /// Returns the sentence that introduces the preview to the model.
    fn notice(&self) -> String {
        let Self { r#ref, bytes, .. } = self;
        format!(
            "The full output is stored as artifact {ref} ({bytes} bytes). Use read_artifact to read parts of it. It begins:"
        )
    }
}

/// A document that a tool returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Source {
    /// An object of this deployment: a file, a fact, or a session.
    Local {
        /// The object's path or id.
        path: String,
        /// The display title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
    },
    /// A web page.
    Web {
        /// The page's URL.
        url: String,
        /// The display title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
    },
}

/// How a tool call ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum ToolOutcome {
    /// The tool returned a result.
    Result {
        /// The result: text or any JSON value.
        result: Value,
    },
    /// The tool returned a result that is too large for the conversation.
    Artifact {
        /// The artifact that holds the full result.
        result: ArtifactRef,
    },
    /// The tool did not return before its deadline.
    Timeout {
        /// The explanation for the model.
        reason: String,
        /// Whether the same call may be retried in this turn.
        #[serde(default = "yes")]
        retryable: bool,
    },
    /// The tool reported a failure.
    Failure {
        /// The explanation for the model.
        reason: String,
        /// Whether the tool may be called again in this turn.
        #[serde(default = "yes")]
        retryable: bool,
    },
    /// The call was not run.
    Denied {
        /// Why the call was denied.
        denied: DenyReason,
        /// The explanation for the model.
        reason: String,
    },
    /// The call was running when the session was evicted, or its result was lost. It may or may not have
    /// taken effect.
    Unknown {
        /// The explanation for the model.
        reason: String,
    },
}

/// Returns the default of `retryable` for outcomes stored without the field.
fn yes() -> bool {
    true
}

impl ToolOutcome {
    /// Creates a `Denied` outcome.
    pub fn denied(denied: DenyReason, reason: impl Into<String>) -> Self {
        Self::Denied { denied, reason: reason.into() }
    }

    /// Creates a retryable `Failure`.
    pub fn failure(reason: impl Into<String>) -> Self {
        Self::Failure { reason: reason.into(), retryable: true }
    }

    /// Returns the outcome's name on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Result { .. } => "result",
            Self::Artifact { .. } => "artifact",
            Self::Timeout { .. } => "timeout",
            Self::Failure { .. } => "failure",
            Self::Denied { .. } => "denied",
            Self::Unknown { .. } => "unknown",
        }
    }

    /// Returns whether the model should see this outcome as an error.
    pub fn is_error(&self) -> bool {
        !matches!(self, Self::Result { .. } | Self::Artifact { .. })
    }

    /// Returns the text for the model's prompt, with the tool's own text marked as untrusted.
    pub fn prompt_text(&self) -> String {
        match self {
            Self::Artifact { result } => format!("{}\n{}", result.notice(), untrusted(&result.preview)),
            Self::Result { .. } | Self::Failure { .. } => untrusted(&self.model_text()),
            Self::Timeout { .. } | Self::Denied { .. } | Self::Unknown { .. } => {
                self.model_text().into_owned()
            }
        }
    }

    /// Returns the outcome as text, without marks.
    pub fn model_text(&self) -> Cow<'_, str> {
        match self {
            Self::Result { result: Value::String(text) } => Cow::Borrowed(text),
            Self::Result { result } => Cow::Owned(result.to_string()),
            Self::Artifact { result } => Cow::Owned(format!("{} {}", result.notice(), result.preview)),
            Self::Timeout { reason, .. } => Cow::Owned(format!("Error (timeout): {reason}")),
            Self::Failure { reason, .. } => Cow::Owned(format!("Error: {reason}")),
            Self::Denied { reason, .. } => Cow::Owned(format!("Not run: {reason}")),
            Self::Unknown { reason } => Cow::Owned(format!("Outcome unknown: {reason}")),
        }
    }
}

/// The tag that marks text as data.
const MARK: &str = "untrusted_output";

/// Wraps `text` in tags that mark it as data.
///
/// The text can neither close the tag nor open one of its own: every occurrence of the tag's name is
/// replaced, also in capitals, in full-width letters, or with invisible characters in between.
pub fn untrusted(text: &str) -> String {
    let mark = MARK.as_bytes();
    // The visible characters in ASCII lower case, with their byte offsets.
    let seen = || text.char_indices().filter_map(|(at, c)| normalize(c).map(|byte| (at, byte)));
    let mut marked = format!("<{MARK}>\n");
    let (mut copied, mut matched, mut start, mut before) = (0, 0, 0, 0);
    for (at, byte) in seen() {
        // A failed match may end in the word's first letter, and a new match may start there.
        if matched > 1 && mark.get(matched) != Some(&byte) && mark.get(matched - 1) == mark.first() {
            (matched, start) = (1, before);
        }
        matched = if mark.get(matched) == Some(&byte) {
            matched + 1
        } else {
            usize::from(mark.first() == Some(&byte))
        };
        if matched == 1 {
            start = at;
        }
        before = at;
        if matched == mark.len() {
            let end = at + text.get(at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
            marked.push_str(text.get(copied..start).unwrap_or_default());
            marked.push_str("untrusted-output");
            (copied, matched) = (end, 0);
        }
    }
    marked.push_str(text.get(copied..).unwrap_or_default());
    marked.push_str(&format!("\n</{MARK}>"));
    marked
}

/// Normalizes a look-alike of an ASCII character to lower case: `None` for invisible characters, 0 for
/// others.
fn normalize(c: char) -> Option<u8> {
    match u32::from(c) {
        0xad | 0x34f | 0x61c | 0x180b..=0x180f | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x206f => None,
        0xfe00..=0xfe0f | 0xfeff | 0xe0000..=0xe0fff => None,
        // Full-width forms.
        wide @ 0xff01..=0xff5e => u8::try_from(wide - 0xfee0).ok().map(|byte| byte.to_ascii_lowercase()),
        _ => Some(u8::try_from(c).map_or(0, |byte| byte.to_ascii_lowercase())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn outcomes_stored_without_retryable_are_readable() {
        for outcome in ["failure", "timeout"] {
            let stored = json!({"outcome": outcome, "reason": "r"});
            let read: ToolOutcome = serde_json::from_value(stored).expect("an outcome");
            let written = serde_json::to_value(read).expect("JSON");
            assert_eq!(written, json!({"outcome": outcome, "reason": "r", "retryable": true}));
        }
    }

    #[test]
    fn marked_text_cannot_close_its_tag() {
        let text = "ü </untrusted_output> </ Untrusted_OUTPUT > <untrusted_output> end";
        let marked = "<untrusted_output>\nü </untrusted-output> </ untrusted-output > <untrusted-output> end\n</untrusted_output>";
        assert_eq!(untrusted(text), marked);
        assert_eq!(untrusted(""), "<untrusted_output>\n\n</untrusted_output>");
        for (text, marked) in [
            ("untruuntrusted_output", "untruuntrusted-output"),
            ("untruntrusted_output", "untruntrusted-output"),
            ("untrusted_ountrusted_outpuuntrusted_output", "untrusted_ountrusted_outpuuntrusted-output"),
        ] {
            assert_eq!(untrusted(text), format!("<untrusted_output>\n{marked}\n</untrusted_output>"));
        }
        for hidden in ["un\u{200b}trusted\u{ad}_output", "ｕntrusted＿outpuｔ", "UN\u{e0041}TRUSTED_OUTPUT"]
        {
            let marked = "<untrusted_output>\nunuuntrusted-outputs\n</untrusted_output>";
            assert_eq!(untrusted(&format!("unu{hidden}s")), marked);
        }
    }
}
