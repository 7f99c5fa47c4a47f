//! Language models: the providers' wires and the table that names them.
//!
//! A wire is pure (request → bytes, events → pieces); `client` drives it over the ports. To add a
//! provider, write one file and one line in [`TABLE`].

mod answer;
mod anthropic;
pub mod ask;
mod classify;
mod client;
mod demo;
mod openai;
mod pricing;
mod registry;
pub mod retry;
mod settings;
mod sse;
#[cfg(test)]
mod testkit;
mod windows;
mod wire;
mod workers_ai;

pub use anthropic::Anthropic;
pub use demo::Demo;
pub use openai::OpenAi;
pub use pricing::{NegativePrice, Prices};
pub use registry::ModelRegistry;
pub use retry::RetryPolicy;
pub use settings::{Credentials, ModelSettings};
pub use windows::{SmallWindow, Windows};
pub use wire::{Decoder, Endpoint, Wire};

/// A provider: the part of a model id before the first slash.
pub struct Provider {
    /// Its name.
    pub name: &'static str,
    /// The model to use when this provider is configured and nobody chose one.
    pub default_model: Option<&'static str>,
    /// Tokens that its tokenizer makes of a hundred of `types::tokens`. Of `o200k_base` that is a hundred;
    /// what others make of the same texts is known roughly (Anthropic: its own counter for Claude 2, and
    /// what it says of later models; Llama 3: a vocabulary as large as `o200k_base`).
    pub tokens_percent: u64,
    /// How it is reached.
    pub reach: Reach,
}

/// How a provider is reached.
pub enum Reach {
    /// Over HTTP.
    Http {
        /// Its protocol.
        wire: &'static (dyn Wire + Sync),
        /// The secret that holds its key.
        key: &'static str,
        /// Its base URL.
        default_base_url: &'static str,
    },
    /// Through the platform's binding, without a key.
    WorkersAi,
    /// The model inside the Worker.
    Demo,
}

/// All providers. The first one that is configured and has a default model is the default.
pub static TABLE: &[Provider] = &[
    Provider {
        name: "openai",
        default_model: Some("gpt-5-mini"),
        tokens_percent: 100,
        reach: Reach::Http {
            wire: &OpenAi,
            key: "OPENAI_API_KEY",
            default_base_url: "https://api.openai.com/v1",
        },
    },
    Provider {
        name: "anthropic",
        default_model: Some("claude-sonnet-4-5"),
        tokens_percent: 120,
        reach: Reach::Http {
            wire: &Anthropic,
            key: "ANTHROPIC_API_KEY",
            default_base_url: "https://api.anthropic.com",
        },
    },
    Provider { name: "workers-ai", default_model: None, tokens_percent: 105, reach: Reach::WorkersAi },
    Provider { name: "demo", default_model: None, tokens_percent: 100, reach: Reach::Demo },
];
