//! How a turn ended.

use super::{Budget, FinishReason, Message, Part, Source, StopReason, TurnStatus, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, rc::Rc};

/// The end of a turn, the same shape for every kind of end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnEnd {
    /// The status that the turn ends with.
    pub status: TurnStatus,
    /// Why.
    pub stop_reason: StopReason,
    /// The last message of the assistant.
    #[serde(default)]
    pub reply: Option<Reply>,
    /// Tokens of the whole turn.
    pub usage: Usage,
    /// What those cost in US dollars, where the model has a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Model calls.
    pub steps: u32,
    /// Reflections.
    #[serde(default)]
    pub reflections: u32,
    /// How many of its tool calls ended how: `result`, `denied`, …
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outcomes: BTreeMap<String, u32>,
    /// The model that answered, as `provider/model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// SHA-256 of the stable part of the last prompt: instructions and tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_render_hash: Option<String>,
    /// The sources that the reply names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub citations: Vec<Source>,
    /// The bounds that it ran under; none when it never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Why the model's last answer ended, unless it simply had said all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<FinishReason>,
    /// What failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TurnError>,
    /// What the user said, when the turn never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Rc<Message>>,
    /// Steps after the seal that failed without failing the turn.
    #[serde(default)]
    pub sub_steps_failed: Vec<String>,
}

impl TurnEnd {
    /// An end without a reply, of a turn that used nothing.
    pub fn ended(status: TurnStatus, stop_reason: StopReason) -> Self {
        Self {
            status,
            stop_reason,
            reply: None,
            usage: Usage::default(),
            cost_usd: None,
            steps: 0,
            reflections: 0,
            outcomes: BTreeMap::new(),
            model: None,
            prompt_render_hash: None,
            citations: Vec::new(),
            budget: None,
            finish: None,
            error: None,
            message: None,
            sub_steps_failed: Vec::new(),
        }
    }
}

/// The reply of a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The message's id.
    pub id: String,
    /// Its text.
    pub text: String,
    /// Its parts.
    pub parts: Vec<Part>,
    /// The JSON that it is, checked against the schema that the caller gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

/// Why a turn failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnError {
    /// A stable word, such as `provider_billing`.
    pub code: String,
    /// For people.
    pub message: String,
    /// Whether sending the message again may succeed.
    pub retryable: bool,
}
