//! The settings of models.

use super::{AcceptedMedia, CustomProvider, Prices, TABLE, Windows};
use crate::{ports::media::MediaPrice, types::ModelList};
use std::collections::BTreeMap;

/// Model settings of a deployment.
#[derive(Clone, Default)]
pub struct ModelSettings {
    /// Providers in addition to those of the table.
    pub custom: Vec<CustomProvider>,
    /// The default model of sessions, as `provider/model`.
    pub default: Option<String>,
    /// Whether sessions may name the demo model. They may always use it if it is the default.
    pub demo: bool,
    /// The models that sessions may use besides the default one; `None` for all.
    pub allow: Option<ModelList>,
    /// Prices that take precedence over the built-in ones.
    pub prices: Prices,
    /// Context windows that take precedence over the built-in ones.
    pub windows: Windows,
    /// What models take besides text, which takes precedence over the built-in list.
    pub media: AcceptedMedia,
    /// What models for images and audio cost besides their tokens.
    pub media_prices: BTreeMap<String, MediaPrice>,
    credentials: BTreeMap<String, Credentials>,
}

/// Key and address of a provider that is reached over HTTP.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The API key.
    pub key: Option<String>,
    /// Base URL that replaces the provider's own.
    pub base_url: Option<String>,
}

impl ModelSettings {
    /// Returns the credentials of a provider, for changes.
    pub fn credentials(&mut self, provider: &str) -> &mut Credentials {
        self.credentials.entry(provider.to_owned()).or_default()
    }

    /// Returns whether there is a provider of this name, configured or not.
    pub fn has_provider(&self, name: &str) -> bool {
        TABLE.iter().any(|provider| provider.name == name)
            || self.custom.iter().any(|provider| provider.name == name)
    }

    /// Returns the credentials of a provider; empty when none are set.
    pub(super) fn of(&self, provider: &str) -> Credentials {
        self.credentials.get(provider).cloned().unwrap_or_default()
    }
}
