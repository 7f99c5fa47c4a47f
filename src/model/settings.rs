//! The settings of models.

use super::{Prices, Windows};
use std::collections::BTreeMap;

/// What a deployment sets about models.
#[derive(Clone, Default)]
pub struct ModelSettings {
    /// The model of sessions that name none, as `provider/model`.
    pub default: Option<String>,
    /// Prices that take precedence over the built-in ones.
    pub prices: Prices,
    /// Context windows that take precedence over the built-in ones.
    pub windows: Windows,
    credentials: BTreeMap<&'static str, Credentials>,
}

/// How a provider is reached over HTTP.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The API key.
    pub key: Option<String>,
    /// A base URL in place of the provider's own.
    pub base_url: Option<String>,
}

impl ModelSettings {
    /// The credentials of a provider, to be changed.
    pub fn credentials(&mut self, provider: &'static str) -> &mut Credentials {
        self.credentials.entry(provider).or_default()
    }

    /// The credentials of a provider; empty when none are set.
    pub(super) fn of(&self, provider: &str) -> Credentials {
        self.credentials.get(provider).cloned().unwrap_or_default()
    }
}
