//! The end of a turn.

use super::{
    Budget, FinishReason, Message, MessageId, Part, Source, StopReason, TurnError, TurnStatus, Usage,
    message::text_of,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, rc::Rc};

/// What is wrong with the verification of a turn's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verification {
    /// The last verification failed.
    Failed,
    /// Files have changed since the last verification, or it was denied.
    NotRun,
}

/// How a turn ended. The shape is the same for every status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TurnEnd {
    /// The final status.
    pub status: TurnStatus,
    /// Why the turn ended.
    pub stop_reason: StopReason,
    /// The final message of the assistant.
    #[serde(default)]
    pub reply: Option<Reply>,
    /// Only in storage, instead of `reply`: the message that holds it. Versions before 2 stored the reply itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub reply_ref: Option<ReplyRef>,
    /// Tokens consumed by the turn.
    pub usage: Usage,
    /// Cost in US dollars, if the model has a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Number of model calls.
    pub steps: u32,
    /// Number of self-critiques.
    #[serde(default)]
    pub reflections: u32,
    /// Number of tool calls by outcome: `result`, `denied`, and so on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outcomes: BTreeMap<String, u32>,
    /// The model that responded, as `provider/model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// SHA-256 of the stable part of the last prompt: instructions and tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_render_hash: Option<String>,
    /// The sources cited in the reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub citations: Vec<Source>,
    /// The limits of the turn; absent if it never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Why the last response ended, unless it was complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<FinishReason>,
    /// The error, if the turn failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TurnError>,
    /// The user message, if the turn never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Rc<Message>>,
    /// Why the changes of the turn do not count as verified; absent if they do, if nothing was changed, and if the agent
    /// does not verify changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
    /// Steps that failed after the seal, without failing the turn.
    #[serde(default)]
    pub sub_steps_failed: Vec<String>,
}

impl TurnEnd {
    /// Creates an end without a reply or usage.
    pub fn ended(status: TurnStatus, stop_reason: StopReason) -> Self {
        Self {
            status,
            stop_reason,
            reply: None,
            reply_ref: None,
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
            verification: None,
            sub_steps_failed: Vec::new(),
        }
    }
}

impl TurnEnd {
    /// Returns the form to store, which refers to the message of the reply; `None` if there is no reply.
    pub fn stored(&self) -> Option<Self> {
        let Reply { id, output, .. } = self.reply.as_ref()?;
        let reply_ref = Some(ReplyRef { message: id.clone(), output: output.clone() });
        Some(Self { reply: None, reply_ref, ..self.clone() })
    }

    /// Replaces the reference by the reply that `message` holds.
    pub fn resolve(&mut self, message: &Message) {
        self.reply = self.reply_ref.take().map(|stored| Reply::new(message, stored.output));
    }
}

/// A reference to the message that holds a reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ReplyRef {
    /// The message's id.
    pub message: MessageId,
    /// The reply parsed as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

/// The final assistant message of a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Reply {
    /// The message's id.
    pub id: MessageId,
    /// The text of all text parts.
    pub text: String,
    /// The parts of the message.
    pub parts: Vec<Part>,
    /// The reply parsed as JSON, if the caller gave a schema that it matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

impl Reply {
    /// Returns the message as the reply of its turn.
    pub fn new(message: &Message, output: Option<Value>) -> Self {
        Self { id: message.id.clone(), text: text_of(&message.parts), parts: message.parts.clone(), output }
    }
}
