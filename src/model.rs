//! Language models: the wires of the providers and the table of known providers.
//!
//! A wire is pure: it turns a request into bytes and stream events into response pieces. `client` runs a wire
//! over the ports. To add a provider, write one file and add one entry to [`TABLE`].

mod anthropic;
mod classify;
mod client;
mod custom;
mod demo;
mod media;
mod media_ai;
mod media_api;
pub mod one_shot;
mod openai;
mod pricing;
mod registry;
mod response;
pub mod retry;
mod settings;
#[cfg(test)]
mod testkit;
mod windows;
mod wire;
mod workers_ai;

pub use anthropic::Anthropic;
pub use custom::{CustomProvider, CustomWire, InvalidProvider};
pub use demo::Demo;
pub use media::AcceptedMedia;
pub use openai::OpenAi;
pub use pricing::{NegativePrice, Prices};
pub use registry::ModelRegistry;
pub use retry::RetryPolicy;
pub use settings::{Credentials, ModelSettings};
pub use windows::{SmallWindow, Windows};
pub use wire::{Decoder, Endpoint, Wire};

/// A service that serves models, named by the part of a model id before the first slash.
pub struct Provider {
    /// Name, as written in model ids.
    pub name: &'static str,
    /// Model to use when this provider is configured and `DEFAULT_MODEL` is not set.
    pub default_model: Option<&'static str>,
    /// Tokens that this provider counts for every 100 tokens of the estimate in `session::tokens`. The estimate
    /// follows `o200k_base`, so OpenAI is 100. The others are approximate: Anthropic's value comes from its
    /// published Claude 2 tokenizer and its notes on later models, Llama 3's from a vocabulary as large as
    /// that of `o200k_base`.
    pub tokens_percent: u64,
    /// How requests reach the provider.
    pub transport: Transport,
}

/// How requests reach a provider.
pub enum Transport {
    /// Over HTTP.
    Http {
        /// Wire of the provider.
        wire: &'static (dyn Wire + Sync),
        /// Name of the secret that holds the API key.
        key: &'static str,
        /// Base URL when the settings give none.
        default_base_url: &'static str,
    },
    /// Through the Worker's AI binding, which needs no key.
    WorkersAi,
    /// The model that is built into the Worker.
    Demo,
}

/// All providers. The default model is that of the first configured provider that has one.
pub static TABLE: &[Provider] = &[
    Provider {
        name: "openai",
        default_model: Some("gpt-5-mini"),
        tokens_percent: 100,
        transport: Transport::Http {
            wire: &OpenAi,
            key: "OPENAI_API_KEY",
            default_base_url: "https://api.openai.com/v1",
        },
    },
    Provider {
        name: "anthropic",
        default_model: Some("claude-sonnet-4-5"),
        tokens_percent: 120,
        transport: Transport::Http {
            wire: &Anthropic,
            key: "ANTHROPIC_API_KEY",
            default_base_url: "https://api.anthropic.com",
        },
    },
    Provider {
        name: "workers-ai",
        default_model: None,
        tokens_percent: 105,
        transport: Transport::WorkersAi,
    },
    Provider { name: "demo", default_model: None, tokens_percent: 100, transport: Transport::Demo },
];
