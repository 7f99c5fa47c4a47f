//! The chunks of a completion that streams.

use serde::Serialize;
use serde_json::Value;

/// The fields of a completion and of all its chunks.
#[derive(Serialize)]
pub(super) struct Head {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
}

/// A part of the streamed message.
#[derive(Default, Serialize)]
pub(super) struct MessageDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<&'a [Value]>,
}

/// A chunk of a stream.
#[derive(Serialize)]
pub(super) struct Chunk<'a> {
    #[serde(flatten)]
    pub head: &'a Head,
    pub choices: &'a [ChunkChoice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Value>,
}

#[derive(Serialize)]
pub(super) struct ChunkChoice<'a> {
    pub index: usize,
    pub delta: MessageDelta<'a>,
    pub logprobs: Option<Value>,
    pub finish_reason: Option<&'a str>,
}
