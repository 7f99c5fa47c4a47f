//! Provider-neutral requests, responses, and errors of models.

use super::{Message, Part, RequestMedia, TenantId, Thinking, ToolSpec, WindowUse};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use std::{ops::AddAssign, rc::Rc};
use thiserror::Error;

/// The tools of a request, sorted by name.
pub type Tools = Rc<[Rc<ToolSpec>]>;

/// One request to a model.
#[derive(Clone, Debug, Default)]
pub struct ModelRequest {
    /// The provider's name of the model: the part after `provider/`.
    pub model: String,
    /// The instructions: the stable start of the prompt.
    pub system: String,
    /// Text that changes between calls, such as the date and reminders; sent after everything cacheable.
    pub volatile: String,
    /// Text after the conversation, such as the purpose of this call. Sent with the user's role, because
    /// parts of it may be untrusted.
    pub tail: String,
    /// The conversation, oldest first. The result of every tool call follows it immediately.
    pub messages: Vec<Rc<Message>>,
    /// The contents of the users' files in the conversation.
    pub media: Rc<RequestMedia>,
    /// The available tools.
    pub tools: Tools,
    /// Maximum number of output tokens; if absent, the provider's default.
    pub max_output_tokens: Option<u32>,
    /// How much the model should reason.
    pub thinking: Thinking,
    /// The tenant of the session, for models whose credentials are the tenant's; `None` for work of the deployment.
    pub tenant: Option<TenantId>,
    /// Whether tool calls are disabled. The tools stay in the prompt, because messages refer to them and the
    /// provider's cache needs an unchanged start.
    pub tools_off: bool,
}

/// The price of a model, in US dollars per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Uncached input.
    pub input: f64,
    /// Output, including reasoning.
    pub output: f64,
    /// Input read from the provider's cache; if absent, the price of uncached input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<f64>,
    /// Input written to the provider's cache; if absent, the price of uncached input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
}

impl Price {
    /// Returns the cost of `usage` in US dollars.
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

/// The size of a model's context window, and how its tokenizer relates to the token estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelLimits {
    /// The context window, in tokens: request and response together.
    pub window: u64,
    /// Tokens that the provider counts per 100 estimated tokens.
    pub percent: u64,
}

impl ModelLimits {
    /// Returns the context window in estimated tokens.
    pub fn estimated_window(&self) -> u64 {
        self.window.saturating_mul(100) / self.percent.max(1)
    }
}

impl Default for ModelLimits {
    /// Creates the limits assumed for an unknown model.
    fn default() -> Self {
        Self { window: 128_000, percent: 100 }
    }
}

/// A piece of a streamed response.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// More text.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// More of a tool call's arguments.
    ToolInput {
        /// Index of the call within the response, starting at 0.
        index: usize,
        /// The tool's name.
        name: String,
        /// The piece of JSON text.
        delta: String,
    },
    /// The complete response; always the last event. A stream that ends without it was cut off.
    Done(ModelResponse),
}

/// A complete response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelResponse {
    /// Text, reasoning, and tool calls, in the model's order.
    pub parts: Vec<Part>,
    /// Token counts of the provider.
    pub usage: Usage,
    /// Why the response ended.
    pub finish: FinishReason,
}

/// Why a response ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The response is complete, or a stop sequence was reached.
    #[default]
    Stop,
    /// The model calls tools.
    ToolCalls,
    /// The output limit was reached.
    Length,
    /// The provider filtered or refused the response.
    ContentFilter,
    /// The provider paused a long turn, which continues if the response is sent back unchanged.
    Pause,
}

/// Token counts. Input includes tokens read from and written to the provider's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Usage {
    /// All input tokens.
    pub input_tokens: u64,
    /// All output tokens, including reasoning.
    pub output_tokens: u64,
    /// Input tokens read from the provider's cache.
    pub cache_read_tokens: u64,
    /// Input tokens written to the provider's cache.
    pub cache_write_tokens: u64,
    /// Output tokens used for reasoning.
    pub reasoning_tokens: u64,
    /// Input and output tokens together.
    pub total_tokens: u64,
    /// How much of the context window the last call took.
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

/// The kind of a failed model call, which decides whether a retry makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// Too many requests at the moment.
    RateLimited,
    /// The provider is overloaded or failing at the moment.
    Unavailable,
    /// The connection could not be established, or was lost.
    Network,
    /// The stream ended before the response was complete.
    Cut,
    /// The stream stopped sending data.
    Stalled,
    /// Out of credit, or over a spending limit. A retry makes it worse.
    Billing,
    /// The key is missing or rejected.
    Auth,
    /// The request exceeds the model's context window.
    Overflow,
    /// The provider rejects the request itself.
    Invalid,
}

impl ModelErrorKind {
    /// Returns whether the same request may succeed later.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::RateLimited | Self::Unavailable | Self::Network | Self::Cut | Self::Stalled)
    }

    /// Describes the failure to people, and says what to do.
    pub fn description(self) -> &'static str {
        match self {
            Self::RateLimited => "too many requests at the moment; try again later",
            Self::Unavailable => "not available at the moment; try again later",
            Self::Network => "the connection failed; try again later",
            Self::Cut => "the response was cut off; try again",
            Self::Stalled => "the response stopped arriving; try again",
            Self::Billing => "the account is out of credit or over a limit; the operator has to check it",
            Self::Auth => "the server's key was refused; the operator has to check it",
            Self::Overflow => "the conversation does not fit into the model's context window",
            Self::Invalid => "the request was refused; the server's log says why",
        }
    }

    /// Returns the stable error code for `turn.failed`.
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
    /// The kind of failure.
    pub kind: ModelErrorKind,
    /// The provider's HTTP status, if there was one.
    pub status: Option<u16>,
    /// What happened, for people.
    pub message: String,
    /// The provider's own text, for the operator's log only: it may quote the conversation or name accounts.
    /// Never contains a key.
    pub cause: Option<String>,
    /// The delay requested by the provider.
    pub retry_after: Option<Duration>,
    /// Whether to retry according to the provider (`x-should-retry`), overriding the kind.
    pub should_retry: Option<bool>,
}

impl ModelError {
    /// Creates an error with a kind and a message only.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind, status: None, message, cause: None, retry_after: None, should_retry: None }
    }

    /// Creates the error that a provider has described with `cause`.
    pub fn of_provider(kind: ModelErrorKind, cause: impl Into<String>) -> Self {
        Self { cause: Some(cause.into()), ..Self::new(kind, kind.description()) }
    }

    /// Returns the message and the cause, for the operator's log.
    pub fn for_log(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{} ({cause})", self.message),
            None => self.message.clone(),
        }
    }

    /// Returns whether the same request may be retried.
    pub fn is_retryable(&self) -> bool {
        self.should_retry.unwrap_or_else(|| self.kind.is_retryable())
    }
}
