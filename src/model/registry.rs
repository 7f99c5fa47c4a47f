//! The models that this deployment can reach.

use super::{
    Endpoint, Provider, Reach, TABLE,
    client::{AiModel, HttpModel, Voice},
    demo::{self, Demo},
    pricing::Prices,
    windows::Windows,
};
use crate::{
    ports::{Ai, Clock, Http, Model, Models},
    types::{ModelError, ModelErrorKind, ModelLimits, Price},
};
use std::rc::Rc;

/// A provider's model, or why there is none.
type Found = Result<Rc<dyn Model>, ModelError>;

/// Finds models by their id, `provider/model`.
pub struct ModelRegistry {
    /// In the order of [`TABLE`].
    providers: Vec<(&'static Provider, Found)>,
    default: String,
    prices: Result<Prices, ModelError>,
    windows: Result<Windows, ModelError>,
}

/// What models are made of.
struct Parts<'a> {
    config: &'a dyn Fn(&str) -> Option<String>,
    http: Rc<dyn Http>,
    ai: Option<Rc<dyn Ai>>,
    clock: Rc<dyn Clock>,
}

impl ModelRegistry {
    /// Reads the configuration: each provider's key and base URL, `DEFAULT_MODEL`,
    /// `MODEL_PRICES` and `MODEL_WINDOWS`. When one of the last two is malformed no model is found, and that is why.
    pub fn new(
        config: &dyn Fn(&str) -> Option<String>,
        http: Rc<dyn Http>,
        ai: Option<Rc<dyn Ai>>,
        clock: Rc<dyn Clock>,
    ) -> Self {
        let parts = Parts { config, http, ai, clock };
        let has_key = |p: &&Provider| matches!(p.reach, Reach::Http { key, .. } if parts.get(key).is_some());
        let first =
            TABLE.iter().filter(has_key).find_map(|p| Some(format!("{}/{}", p.name, p.default_model?)));
        let default = parts.get("DEFAULT_MODEL").or(first).unwrap_or_else(|| demo::ID.to_owned());
        let providers = TABLE.iter().map(|provider| (provider, parts.make(provider))).collect();
        let prices = parts.get("MODEL_PRICES").map_or(Ok(Prices::default()), |text| Prices::read(&text));
        let prices = prices.map_err(|why| ModelError::new(ModelErrorKind::Invalid, why));
        let windows = parts.get("MODEL_WINDOWS").map_or(Ok(Windows::default()), |text| Windows::read(&text));
        let windows = windows.map_err(|why| ModelError::new(ModelErrorKind::Invalid, why));
        Self { providers, default, prices, windows }
    }

    /// What keeps every model from being found.
    ///
    /// # Errors
    /// What is wrong with `MODEL_PRICES` or `MODEL_WINDOWS`.
    pub fn check(&self) -> Result<(), &str> {
        self.malformed().map_or(Ok(()), |error| Err(error.message.as_str()))
    }

    fn malformed(&self) -> Option<&ModelError> {
        self.prices.as_ref().err().or(self.windows.as_ref().err())
    }

    /// The ids to offer: the default and the built-in one.
    pub fn list(&self) -> Vec<String> {
        let mut ids = vec![self.default.clone()];
        if self.default != demo::ID {
            ids.push(demo::ID.to_owned());
        }
        ids
    }

    /// Whether `id` names a known provider and a model, configured or not.
    pub fn is_known(&self, id: &str) -> bool {
        self.find(id).is_some()
    }

    /// What became of the provider, and what follows its slash, further slashes included.
    fn find<'a>(&self, id: &'a str) -> Option<(&Found, &'a str)> {
        let (name, model) = id.split_once('/')?;
        let (provider, found) = self.providers.iter().find(|(p, _)| p.name == name)?;
        let exists = !model.trim().is_empty() && (!matches!(provider.reach, Reach::Demo) || id == demo::ID);
        exists.then_some((found, model))
    }
}

impl Models for ModelRegistry {
    fn resolve(&self, id: &str) -> Result<(Rc<dyn Model>, String), ModelError> {
        let Some((found, model)) = self.find(id) else {
            let known: Vec<_> = TABLE.iter().map(|p| p.name).collect();
            let message = format!(
                "no model {id:?}: an id is provider/model, with one of the providers {}; demo has only {}",
                known.join(", "),
                demo::ID
            );
            return Err(ModelError::new(ModelErrorKind::Invalid, message));
        };
        // To run without what was meant would let bounds pass that were meant to hold.
        if let Some(error) = self.malformed() {
            return Err(error.clone());
        }
        Ok((found.clone()?, model.to_owned()))
    }

    fn price(&self, id: &str) -> Option<Price> {
        self.prices.as_ref().ok()?.of(id)
    }

    fn limits(&self, id: &str) -> ModelLimits {
        let name = id.split('/').next().unwrap_or_default();
        let percent = TABLE.iter().find(|provider| provider.name == name).map(|p| p.tokens_percent);
        let window = self.windows.as_ref().ok().and_then(|windows| windows.of(id));
        let unknown = ModelLimits::default();
        ModelLimits { window: window.unwrap_or(unknown.window), percent: percent.unwrap_or(unknown.percent) }
    }

    fn default_model(&self) -> String {
        self.default.clone()
    }
}

impl Parts<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.config)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn make(&self, provider: &'static Provider) -> Found {
        let name = provider.name;
        let clock = self.clock.clone();
        let missing = |what: String| Err(ModelError::new(ModelErrorKind::Auth, what));
        match &provider.reach {
            Reach::Http { wire, key: secret, base_url, default_base_url } => {
                let (key, base) = (self.get(secret), self.get(base_url));
                // A server of one's own may need no key; the public one always does.
                if key.is_none() && base.is_none() {
                    return missing(format!("{name} has no key: set the secret {secret}"));
                }
                let voice = Voice { provider: name, key: key.as_deref().map(Rc::from) };
                let base_url = base.unwrap_or_else(|| (*default_base_url).to_owned());
                let endpoint = Endpoint { base_url, key };
                Ok(Rc::new(HttpModel { wire: *wire, endpoint, http: self.http.clone(), clock, voice }))
            }
            Reach::WorkersAi => match self.ai.clone() {
                Some(ai) => Ok(Rc::new(AiModel { ai, clock, voice: Voice { provider: name, key: None } })),
                None => missing(format!("{name} is not bound: give the Worker an AI binding")),
            },
            Reach::Demo => Ok(Rc::new(Demo::new(clock))),
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

    struct Nothing;

    #[async_trait(?Send)]
    impl Http for Nothing {
        async fn send(&self, _: HttpRequest) -> Result<HttpResponse, HttpError> {
            Err(HttpError("offline".into()))
        }
    }

    impl Clock for Nothing {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }
        fn sleep(&self, _: u64) -> LocalBoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    fn registry(config: &[(&str, &str)]) -> ModelRegistry {
        let find = |name: &str| config.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        ModelRegistry::new(&find, Rc::new(Nothing), None, Rc::new(Nothing))
    }

    #[test]
    fn defaults_follow_the_configuration() {
        let default = |config: &[(&str, &str)]| registry(config).default_model();
        assert_eq!(default(&[]), "demo/echo");
        assert_eq!(default(&[("OPENAI_API_KEY", " ")]), "demo/echo");
        assert_eq!(default(&[("OPENAI_API_KEY", "k")]), "openai/gpt-5-mini");
        assert_eq!(default(&[("ANTHROPIC_API_KEY", "k")]), "anthropic/claude-sonnet-4-5");
        assert_eq!(default(&[("ANTHROPIC_API_KEY", "k"), ("OPENAI_API_KEY", "k")]), "openai/gpt-5-mini");
        assert_eq!(
            default(&[("DEFAULT_MODEL", "workers-ai/@cf/x"), ("OPENAI_API_KEY", "k")]),
            "workers-ai/@cf/x"
        );
        assert_eq!(registry(&[]).list(), ["demo/echo"]);
        assert_eq!(registry(&[("OPENAI_API_KEY", "k")]).list(), ["openai/gpt-5-mini", "demo/echo"]);
    }

    #[test]
    fn ids_are_resolved_or_explained() {
        let registry = registry(&[("OPENAI_BASE_URL", "http://localhost:1/v1")]);
        let name = |id: &str| registry.resolve(id).map(|(_, name)| name).map_err(|e| (e.kind, e.message));
        // A server of one's own needs no key.
        assert_eq!(name("openai/org/model:free"), Ok("org/model:free".into()));
        assert_eq!(name("demo/echo"), Ok("echo".into()));
        let (kind, message) = name("anthropic/x").unwrap_err();
        assert_eq!((kind, message.contains("ANTHROPIC_API_KEY")), (ModelErrorKind::Auth, true));
        assert_eq!(name("workers-ai/@cf/meta/llama").unwrap_err().0, ModelErrorKind::Auth);
        for bad in ["", "gpt-5", "openai/", "openai", "nobody/x", "demo/other", "/x"] {
            let (kind, message) = name(bad).unwrap_err();
            assert_eq!(kind, ModelErrorKind::Invalid, "{bad}");
            assert!(message.contains("openai, anthropic, workers-ai, demo"), "{message}");
            assert!(!registry.is_known(bad), "{bad}");
        }
        assert!(registry.is_known("workers-ai/@cf/meta/llama"));
    }

    #[test]
    fn malformed_prices_are_no_prices() {
        let registry = registry(&[("MODEL_PRICES", "gpt-5: 1")]);
        let error = registry.resolve("demo/echo").map(drop).unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Invalid);
        assert!(error.message.starts_with("MODEL_PRICES is not a JSON object"), "{}", error.message);
        assert_eq!(registry.check(), Err(error.message.as_str()));
        assert_eq!(registry.price("demo/echo"), None);
    }
}
