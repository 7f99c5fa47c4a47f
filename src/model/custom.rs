//! Providers that a deployment adds to the table.

use super::{Anthropic, OpenAi, TABLE, Wire};
use serde::Deserialize;
use thiserror::Error;

/// A provider that a deployment adds: any server that implements the wire of a built-in provider.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomProvider {
    /// The part of its model ids before the first slash.
    pub name: String,
    /// Its base URL.
    pub base_url: String,
    /// The secret that holds its API key; `None` when the server needs no key.
    #[serde(default)]
    pub key: Option<String>,
    /// The model that sessions use when no other provider has a key.
    #[serde(default)]
    pub default_model: Option<String>,
    /// The wire that it implements.
    #[serde(default)]
    pub wire: CustomWire,
}

/// The wire of a custom provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CustomWire {
    /// Chat completions.
    #[default]
    OpenAi,
    /// Messages.
    Anthropic,
}

/// Why a provider cannot be added.
#[derive(Debug, Error)]
pub enum InvalidProvider {
    /// Its name cannot be part of a model id.
    #[error("the name must be 1 to 64 of a–z 0–9 -")]
    Name,
    /// The name is that of a built-in provider.
    #[error("a built-in provider has this name")]
    BuiltIn,
    /// Its base URL is not absolute.
    #[error("`base_url` must start with http:// or https://")]
    BaseUrl,
}

impl CustomProvider {
    /// Returns whether the entry is usable.
    ///
    /// # Errors
    /// Returns what is wrong with the entry.
    pub fn check(&self) -> Result<(), InvalidProvider> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !(1..=64).contains(&self.name.len()) || !self.name.bytes().all(fits) {
            return Err(InvalidProvider::Name);
        }
        // Remote agents have this name in events and usage.
        if self.name == "remote" || TABLE.iter().any(|provider| provider.name == self.name) {
            return Err(InvalidProvider::BuiltIn);
        }
        if !["http://", "https://"].iter().any(|scheme| self.base_url.starts_with(scheme)) {
            return Err(InvalidProvider::BaseUrl);
        }
        Ok(())
    }
}

impl CustomWire {
    pub(super) fn wire(self) -> &'static (dyn Wire + Sync) {
        match self {
            Self::OpenAi => &OpenAi,
            Self::Anthropic => &Anthropic,
        }
    }
}
