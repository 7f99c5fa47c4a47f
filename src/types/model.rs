//! What goes to a model and what comes back, for every provider alike.

use super::{Message, Part, ToolSpec, WindowUse};
use serde::{Deserialize, Serialize};
use std::{ops::AddAssign, rc::Rc};
use thiserror::Error;

/// How much the model should think before it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// Not at all, or the provider's default.
    #[default]
    Off,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

/// One request to a model.
#[derive(Clone, Debug, Default)]
pub struct ModelRequest {
    /// The provider's own name of the model: what follows `provider/`.
    pub model: String,
    /// Instructions: the stable start of the prompt.
    pub system: String,
    /// Text that changes from call to call (date, reminders): sent after everything cacheable.
    pub volatile: String,
    /// What is said behind the conversation, such as what this call is for. It comes from the harness,
    /// and is shown as the user's: parts of it may be somebody else's words.
    pub tail: String,
    /// The conversation, oldest first. Every tool call in it has its result right behind it.
    pub messages: Vec<Rc<Message>>,
    /// The tools on offer, sorted by name.
    pub tools: Rc<[ToolSpec]>,
    /// Cap on output tokens; the provider's default when absent.
    pub max_output_tokens: Option<u32>,
    /// How much to think.
    pub thinking: Thinking,
    /// Whether the model may call tools. They stay in the prompt all the same: it refers to them,
    /// and providers' caches need its start as it was.
    pub tools_off: bool,
}

/// What a model costs, in US dollars per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Input that no cache knew.
    pub input: f64,
    /// Output, thinking included.
    pub output: f64,
    /// Input read from the provider's cache; as other input when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<f64>,
    /// Input written to the provider's cache; as other input when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
}

impl Price {
    /// What `usage` costs in US dollars.
    pub fn cost(&self, usage: &Usage) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "tokens are far below 2^53")]
        let at = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        let cached = usage.cache_read_tokens + usage.cache_write_tokens;
        at(usage.input_tokens.saturating_sub(cached), self.input)
            + at(usage.cache_read_tokens, self.cache_read.unwrap_or(self.input))
            + at(usage.cache_write_tokens, self.cache_write.unwrap_or(self.input))
            + at(usage.output_tokens, self.output)
    }
}

/// How much a model takes at once, and how it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelLimits {
    /// Its context window, in tokens: request and answer together.
    pub window: u64,
    /// Tokens that its provider makes of a hundred of our estimate.
    pub percent: u64,
}

impl ModelLimits {
    /// The window by our own estimate.
    pub fn estimated_window(&self) -> u64 {
        self.window.saturating_mul(100) / self.percent.max(1)
    }
}

impl Default for ModelLimits {
    /// What is assumed of a model that nobody has told of.
    fn default() -> Self {
        Self { window: 128_000, percent: 100 }
    }
}

/// A piece of a streamed answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// More text.
    Text(String),
    /// More thinking.
    Reasoning(String),
    /// More of a tool call's arguments, as the provider streams them.
    ToolInput {
        /// Which call of this response, from 0.
        index: usize,
        /// The tool's name.
        name: String,
        /// The piece of JSON text.
        delta: String,
    },
    /// The whole answer; always the last event. A stream that ends without it was cut.
    Done(ModelResponse),
}

/// A whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelResponse {
    /// Text, thinking and tool calls in the order the model made them.
    pub parts: Vec<Part>,
    /// Tokens, as the provider counted them.
    pub usage: Usage,
    /// Why it ended.
    pub finish: FinishReason,
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// It had said what it wanted to say, or a stop sequence came.
    #[default]
    Stop,
    /// It wants tools.
    ToolCalls,
    /// Its output limit was reached.
    Length,
    /// The provider filtered or refused the answer.
    ContentFilter,
    /// The provider paused a long turn and wants it sent back as it is.
    Pause,
}

/// Token counts. Input includes what was read from and written to the provider's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// All input tokens.
    pub input_tokens: u64,
    /// All output tokens, thinking included.
    pub output_tokens: u64,
    /// Input tokens that came from the provider's cache.
    pub cache_read_tokens: u64,
    /// Input tokens written to the provider's cache.
    pub cache_write_tokens: u64,
    /// Output tokens spent on thinking.
    pub reasoning_tokens: u64,
    /// Input and output together.
    pub total_tokens: u64,
    /// How much of the model's window the last call took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<WindowUse>,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
        self.cache_read_tokens += other.cache_read_tokens;
        self.cache_write_tokens += other.cache_write_tokens;
        self.reasoning_tokens += other.reasoning_tokens;
        self.total_tokens += other.total_tokens;
        self.window = other.window.or(self.window);
    }
}

/// What kind of trouble a provider made; decides whether to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// Too many requests for now.
    RateLimited,
    /// The provider is overloaded or broken for now.
    Unavailable,
    /// The connection could not be made or was lost.
    Network,
    /// The stream ended before the answer did.
    Cut,
    /// The stream fell silent.
    Stalled,
    /// Out of credit or over a spending limit: trying again only makes it worse.
    Billing,
    /// The key is missing or refused.
    Auth,
    /// The request does not fit the model's context window.
    Overflow,
    /// The provider refuses the request as it is.
    Invalid,
}

impl ModelErrorKind {
    /// Whether the same request may succeed later.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::RateLimited | Self::Unavailable | Self::Network | Self::Cut | Self::Stalled)
    }

    /// The stable code that clients see in `turn.failed`.
    pub fn code(self) -> &'static str {
        match self {
            Self::RateLimited => "provider_rate_limited",
            Self::Unavailable => "provider_unavailable",
            Self::Network => "provider_unreachable",
            Self::Cut => "provider_stream_cut",
            Self::Stalled => "provider_stalled",
            Self::Billing => "provider_billing",
            Self::Auth => "provider_auth",
            Self::Overflow => "context_overflow",
            Self::Invalid => "provider_invalid_request",
        }
    }
}

/// A failed model call.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ModelError {
    /// What kind.
    pub kind: ModelErrorKind,
    /// The provider's HTTP status, where there was one.
    pub status: Option<u16>,
    /// What happened, for people; never holds a key.
    pub message: String,
    /// How long the provider asks to wait, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The provider's own word on trying again (`x-should-retry`), which beats our table.
    pub should_retry: Option<bool>,
}

impl ModelError {
    /// An error of `kind` with a message and nothing else known.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self { kind, status: None, message: message.into(), retry_after_ms: None, should_retry: None }
    }

    /// Whether the same request may be tried again.
    pub fn is_retryable(&self) -> bool {
        self.should_retry.unwrap_or_else(|| self.kind.is_retryable())
    }
}
