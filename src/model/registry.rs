//! The models that this deployment can use.

use super::{
    Credentials, Endpoint, ModelSettings, Prices, Provider, TABLE, Transport, Windows,
    client::{AiModel, ErrorFormatter, HttpModel},
    demo::{self, Demo},
};
use crate::{
    ports::{Ai, Clock, Http, Model, Models},
    types::{ModelError, ModelErrorKind, ModelLimits, Price},
};
use std::rc::Rc;

/// A provider's model, or the reason why it cannot be used.
type ProviderModel = Result<Rc<dyn Model>, ModelError>;

/// Resolves model ids (`provider/model`).
pub struct ModelRegistry {
    /// In the order of [`TABLE`].
    providers: Vec<(&'static Provider, ProviderModel)>,
    default: String,
    prices: Prices,
    windows: Windows,
}

/// What models are built from.
struct Parts {
    settings: ModelSettings,
    http: Rc<dyn Http>,
    ai: Option<Rc<dyn Ai>>,
    clock: Rc<dyn Clock>,
}

impl ModelRegistry {
    /// Builds the models that these settings enable.
    pub fn new(
        settings: ModelSettings,
        http: Rc<dyn Http>,
        ai: Option<Rc<dyn Ai>>,
        clock: Rc<dyn Clock>,
    ) -> Self {
        let has_key = |p: &&Provider| {
            matches!(p.transport, Transport::Http { .. }) && settings.of(p.name).key.is_some()
        };
        let first =
            TABLE.iter().filter(has_key).find_map(|p| Some(format!("{}/{}", p.name, p.default_model?)));
        let default = settings.default.clone().or(first).unwrap_or_else(|| demo::ID.to_owned());
        let parts = Parts { settings, http, ai, clock };
        let providers = TABLE.iter().map(|provider| (provider, parts.make(provider))).collect();
        let ModelSettings { prices, windows, .. } = parts.settings;
        Self { providers, default, prices, windows }
    }

    /// Returns the model ids to offer to clients: the default model and the built-in one.
    pub fn list(&self) -> Vec<String> {
        let mut ids = vec![self.default.clone()];
        if self.default != demo::ID {
            ids.push(demo::ID.to_owned());
        }
        ids
    }

    /// Returns whether `id` names a known provider and a model, whether or not the provider is configured.
    pub fn is_known(&self, id: &str) -> bool {
        self.find(id).is_some()
    }

    /// Returns the provider's entry and the model's name: everything after the first slash.
    fn find<'a>(&self, id: &'a str) -> Option<(&ProviderModel, &'a str)> {
        let (name, model) = id.split_once('/')?;
        let (provider, found) = self.providers.iter().find(|(p, _)| p.name == name)?;
        let exists =
            !model.trim().is_empty() && (!matches!(provider.transport, Transport::Demo) || id == demo::ID);
        exists.then_some((found, model))
    }
}

impl Models for ModelRegistry {
    fn resolve(&self, id: &str) -> Result<(Rc<dyn Model>, String), ModelError> {
        let Some((found, model)) = self.find(id) else {
            let known: Vec<_> = TABLE.iter().map(|p| p.name).collect();
            let message = format!(
                "unknown model {id:?}: a model id is provider/model, where the provider is one of {}; the only demo model is {}",
                known.join(", "),
                demo::ID
            );
            return Err(ModelError::new(ModelErrorKind::Invalid, message));
        };
        Ok((found.clone()?, model.to_owned()))
    }

    fn price(&self, id: &str) -> Option<Price> {
        self.prices.of(id)
    }

    fn limits(&self, id: &str) -> ModelLimits {
        let name = id.split('/').next().unwrap_or_default();
        let percent = TABLE.iter().find(|provider| provider.name == name).map(|p| p.tokens_percent);
        let window = self.windows.of(id);
        let unknown = ModelLimits::default();
        ModelLimits { window: window.unwrap_or(unknown.window), percent: percent.unwrap_or(unknown.percent) }
    }

    fn default_model(&self) -> String {
        self.default.clone()
    }
}

impl Parts {
    fn make(&self, provider: &'static Provider) -> ProviderModel {
        let name = provider.name;
        let clock = self.clock.clone();
        let missing = |what: String| Err(ModelError::new(ModelErrorKind::Auth, what));
        match &provider.transport {
            Transport::Http { wire, key: secret, default_base_url } => {
                let Credentials { key, base_url: base } = self.settings.of(name);
                // A self-hosted server may need no key; the public one always does.
                if key.is_none() && base.is_none() {
                    return missing(format!("the provider {name} has no API key: set the secret {secret}"));
                }
                let errors = ErrorFormatter { provider: name, key: key.as_deref().map(Rc::from) };
                let base_url = base.unwrap_or_else(|| (*default_base_url).to_owned());
                let endpoint = Endpoint { base_url, key };
                Ok(Rc::new(HttpModel { wire: *wire, endpoint, http: self.http.clone(), clock, errors }))
            }
            Transport::WorkersAi => match self.ai.clone() {
                Some(ai) => {
                    Ok(Rc::new(AiModel { ai, clock, errors: ErrorFormatter { provider: name, key: None } }))
                }
                None => {
                    missing(format!("the provider {name} is not available: add an AI binding to the Worker"))
                }
            },
            Transport::Demo => Ok(Rc::new(Demo::new(clock))),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{
        ports::{HttpError, HttpRequest, HttpResponse},
        types::Timestamp,
    };
    use async_trait::async_trait;
    use futures::future::LocalBoxFuture;
    use pretty_assertions::assert_eq;

    struct Offline;

    #[async_trait(?Send)]
    impl Http for Offline {
        async fn send(&self, _: HttpRequest) -> Result<HttpResponse, HttpError> {
            Err(HttpError("offline".into()))
        }
    }

    impl Clock for Offline {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }
        fn sleep(&self, _: u64) -> LocalBoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    fn registry(set: impl Fn(&mut ModelSettings)) -> ModelRegistry {
        let mut settings = ModelSettings::default();
        set(&mut settings);
        ModelRegistry::new(settings, Rc::new(Offline), None, Rc::new(Offline))
    }

    fn key(settings: &mut ModelSettings, provider: &'static str) {
        settings.credentials(provider).key = Some("k".into());
    }

    #[test]
    fn the_default_model_follows_the_settings() {
        let default = |set: &dyn Fn(&mut ModelSettings)| registry(set).default_model();
        assert_eq!(default(&|_| ()), "demo/echo");
        assert_eq!(default(&|s| key(s, "openai")), "openai/gpt-5-mini");
        assert_eq!(default(&|s| key(s, "anthropic")), "anthropic/claude-sonnet-4-5");
        let both = |s: &mut ModelSettings| ["anthropic", "openai"].map(|name| key(s, name));
        assert_eq!(
            default(&|s| {
                both(s);
            }),
            "openai/gpt-5-mini"
        );
        let named = |s: &mut ModelSettings| {
            key(s, "openai");
            s.default = Some("workers-ai/@cf/x".into());
        };
        assert_eq!(default(&named), "workers-ai/@cf/x");
        assert_eq!(registry(|_| ()).list(), ["demo/echo"]);
        assert_eq!(registry(|s| key(s, "openai")).list(), ["openai/gpt-5-mini", "demo/echo"]);
    }

    #[test]
    fn ids_are_resolved_or_explained() {
        let registry = registry(|s| s.credentials("openai").base_url = Some("http://localhost:1/v1".into()));
        let name = |id: &str| registry.resolve(id).map(|(_, name)| name).map_err(|e| (e.kind, e.message));
        // A self-hosted server needs no key.
        assert_eq!(name("openai/org/model:free"), Ok("org/model:free".into()));
        assert_eq!(name("demo/echo"), Ok("echo".into()));
        let (kind, message) = name("anthropic/x").unwrap_err();
        assert_eq!((kind, message.contains("ANTHROPIC_API_KEY")), (ModelErrorKind::Auth, true));
        assert_eq!(name("workers-ai/@cf/meta/llama").unwrap_err().0, ModelErrorKind::Auth);
        for bad in ["", "gpt-5", "openai/", "openai", "other/x", "demo/other", "/x"] {
            let (kind, message) = name(bad).unwrap_err();
            assert_eq!(kind, ModelErrorKind::Invalid, "{bad}");
            assert!(message.contains("openai, anthropic, workers-ai, demo"), "{message}");
            assert!(!registry.is_known(bad), "{bad}");
        }
        assert!(registry.is_known("workers-ai/@cf/meta/llama"));
    }
}
