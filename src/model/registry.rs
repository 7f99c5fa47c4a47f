//! The models that this deployment can use.

use super::{
    AcceptedMedia, Credentials, CustomProvider, Endpoint, ModelSettings, Prices, Provider, TABLE, Transport,
    Windows, Wire,
    client::{AiModel, ErrorFormatter, HttpModel},
    demo::{self, Demo},
    media_ai::MediaAi,
    media_api::MediaApi,
};
use crate::{
    ports::{
        Ai, Clock, Http, Model, Models,
        media::{MediaModel, MediaPrice, no_media},
    },
    types::{MediaKind, ModelError, ModelErrorKind, ModelLimits, ModelList, Price},
};
use std::{collections::BTreeMap, rc::Rc};

/// A provider's model, or the reason why it cannot be used.
type ProviderModel = Result<Rc<dyn Model>, ModelError>;

/// Resolves model ids (`provider/model`).
pub struct ModelRegistry {
    /// The providers of [`TABLE`], then the custom ones.
    providers: Vec<Entry>,
    default: String,
    /// Whether sessions may use the demo model.
    demo: bool,
    /// The models that sessions may use besides the default one; `None` for all.
    allow: Option<ModelList>,
    prices: Prices,
    windows: Windows,
    media: AcceptedMedia,
    media_prices: BTreeMap<String, MediaPrice>,
}

/// One provider.
struct Entry {
    name: String,
    tokens_percent: u64,
    /// The protocol, if it is reached over HTTP.
    wire: Option<&'static (dyn Wire + Sync)>,
    model: ProviderModel,
    media: Option<Rc<dyn MediaModel>>,
}

/// The ports and settings that models share.
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
        let default = settings.default.clone().or_else(|| first_default(&settings));
        let default = default.unwrap_or_else(|| demo::ID.to_owned());
        let parts = Parts { settings, http, ai, clock };
        let built_in = TABLE.iter().map(|provider| parts.built_in(provider));
        let custom = parts.settings.custom.iter().map(|provider| parts.custom(provider));
        let providers = built_in.chain(custom).collect();
        let ModelSettings { prices, windows, media, media_prices, demo, allow, .. } = parts.settings;
        Self {
            providers,
            demo: demo || default == demo::ID,
            allow,
            default,
            prices,
            windows,
            media,
            media_prices,
        }
    }

    /// Returns the model ids to offer to clients: the default model, and the demo model if sessions may use it.
    pub fn list(&self) -> Vec<String> {
        let mut ids = vec![self.default.clone()];
        if self.default != demo::ID && self.offered(demo::ID).is_ok() {
            ids.push(demo::ID.to_owned());
        }
        ids
    }

    /// Returns the provider's entry and the model's name: everything after the first slash.
    fn find<'a>(&self, id: &'a str) -> Option<(&ProviderModel, &'a str)> {
        let (name, model) = id.split_once('/')?;
        let found = self.provider(name)?;
        let exists =
            !model.trim().is_empty() && (!demo::ID.starts_with(&format!("{name}/")) || id == demo::ID);
        exists.then_some((&found.model, model))
    }

    fn provider(&self, name: &str) -> Option<&Entry> {
        self.providers.iter().find(|entry| entry.name == name)
    }

    /// Returns the error about a model that does not exist. It names the demo model only if sessions may use it.
    fn unknown(&self, id: &str) -> ModelError {
        let demo = demo::ID.split('/').next();
        let known = self.providers.iter().map(|entry| entry.name.as_str());
        let known: Vec<_> = known.filter(|name| self.demo || Some(*name) != demo).collect();
        let known = known.join(", ");
        let hint = if self.demo { format!("; the only demo model is {}", demo::ID) } else { String::new() };
        let message = format!(
            "unknown model {id:?}: a model id is provider/model, where the provider is one of {known}{hint}"
        );
        ModelError::new(ModelErrorKind::Invalid, message)
    }
}

/// Returns the default model of the first provider that has a key, or needs none.
fn first_default(settings: &ModelSettings) -> Option<String> {
    let built_in = TABLE.iter().filter_map(|provider| Some((provider.name, provider.default_model?)));
    let mut built_in = built_in.filter(|(name, _)| settings.of(name).key.is_some());
    let mut custom = settings
        .custom
        .iter()
        .filter(|provider| provider.key.is_none() || settings.of(&provider.name).key.is_some());
    let custom =
        || custom.find_map(|provider| Some((provider.name.as_str(), provider.default_model.as_deref()?)));
    built_in.next().or_else(custom).map(|(name, model)| format!("{name}/{model}"))
}

impl Models for ModelRegistry {
    fn resolve(&self, id: &str) -> Result<(Rc<dyn Model>, String), ModelError> {
        let (found, model) = self.find(id).ok_or_else(|| self.unknown(id))?;
        Ok((found.clone()?, model.to_owned()))
    }

    fn offered(&self, id: &str) -> Result<(Rc<dyn Model>, String), ModelError> {
        if id == demo::ID && !self.demo {
            return Err(self.unknown(id));
        }
        let found = self.resolve(id)?;
        match &self.allow {
            Some(allow) if id != self.default => allow.check(id).map(|()| found),
            _ => Ok(found),
        }
    }

    fn price(&self, id: &str) -> Option<Price> {
        self.prices.of(id)
    }

    fn limits(&self, id: &str) -> ModelLimits {
        let name = id.split('/').next().unwrap_or_default();
        let percent = self.provider(name).map(|entry| entry.tokens_percent);
        let window = self.windows.of(id);
        let unknown = ModelLimits::default();
        ModelLimits { window: window.unwrap_or(unknown.window), percent: percent.unwrap_or(unknown.percent) }
    }

    fn takes(&self, id: &str, kind: MediaKind) -> bool {
        let wire = id.split('/').next().and_then(|name| self.provider(name)?.wire);
        self.media.takes(id, kind) && wire.is_none_or(|wire| wire.carries(kind))
    }

    fn media(&self, id: &str) -> Result<(Rc<dyn MediaModel>, String), ModelError> {
        let (_, model) = self.resolve(id)?;
        let entry = id.split('/').next().and_then(|name| self.provider(name));
        let media = entry.and_then(|entry| entry.media.clone());
        Ok((media.ok_or_else(|| no_media(id))?, model))
    }

    fn media_price(&self, id: &str) -> MediaPrice {
        self.media_prices.get(id).copied().unwrap_or_default()
    }

    fn default_model(&self) -> String {
        self.default.clone()
    }
}

impl Parts {
    fn built_in(&self, provider: &Provider) -> Entry {
        let name = provider.name;
        let Credentials { key, base_url } = self.settings.of(name);
        let wire = match &provider.transport {
            Transport::Http { wire, .. } => Some(*wire),
            Transport::WorkersAi | Transport::Demo => None,
        };
        let mut media = None;
        let model = match &provider.transport {
            // A self-hosted server may need no key; the public one always does.
            Transport::Http { key: secret, .. } if key.is_none() && base_url.is_none() => {
                Err(no_key(name, secret))
            }
            Transport::Http { wire: own, default_base_url, .. } => {
                let base_url = base_url.unwrap_or_else(|| (*default_base_url).to_owned());
                let endpoint = Endpoint { base_url, key };
                media = own.has_media_api().then(|| self.media_api(name, endpoint.clone()));
                Ok(self.http(name, *own, endpoint))
            }
            Transport::WorkersAi => {
                media = self.media_ai(name);
                self.workers_ai(name)
            }
            Transport::Demo => Ok(Rc::new(Demo::new(self.clock.clone())) as Rc<dyn Model>),
        };
        Entry { name: name.to_owned(), tokens_percent: provider.tokens_percent, wire, model, media }
    }

    fn custom(&self, provider: &CustomProvider) -> Entry {
        let (name, wire) = (&provider.name, provider.wire.wire());
        let endpoint = Endpoint { base_url: provider.base_url.clone(), key: self.settings.of(name).key };
        let model = match &provider.key {
            Some(secret) if endpoint.key.is_none() => Err(no_key(name, secret)),
            _ => Ok(self.http(name, wire, endpoint.clone())),
        };
        let media = wire.has_media_api().then(|| self.media_api(name, endpoint));
        let tokens_percent = ModelLimits::default().percent;
        Entry { name: name.clone(), tokens_percent, wire: Some(wire), model, media }
    }

    fn http(&self, name: &str, wire: &'static (dyn Wire + Sync), endpoint: Endpoint) -> Rc<dyn Model> {
        let errors = ErrorFormatter { provider: name.into(), key: endpoint.key.as_deref().map(Rc::from) };
        let (http, clock) = (self.http.clone(), self.clock.clone());
        Rc::new(HttpModel { wire, endpoint, http, clock, errors })
    }

    fn media_api(&self, name: &str, endpoint: Endpoint) -> Rc<dyn MediaModel> {
        let errors = ErrorFormatter { provider: name.into(), key: endpoint.key.as_deref().map(Rc::from) };
        let (http, clock) = (self.http.clone(), self.clock.clone());
        Rc::new(MediaApi { endpoint, http, clock, errors })
    }

    fn media_ai(&self, name: &str) -> Option<Rc<dyn MediaModel>> {
        let errors = ErrorFormatter { provider: name.into(), key: None };
        Some(Rc::new(MediaAi { ai: self.ai.clone()?, errors }))
    }

    fn workers_ai(&self, name: &str) -> ProviderModel {
        let ai = self.ai.clone().ok_or_else(|| {
            let why = format!("the provider {name} is not available: add an AI binding to the Worker");
            ModelError::new(ModelErrorKind::Auth, why)
        })?;
        let errors = ErrorFormatter { provider: name.into(), key: None };
        Ok(Rc::new(AiModel { ai, clock: self.clock.clone(), errors }))
    }
}

fn no_key(name: &str, secret: &str) -> ModelError {
    let why = format!("the provider {name} has no API key: set the secret {secret}");
    ModelError::new(ModelErrorKind::Auth, why)
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
    use std::time::Duration;

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
        fn sleep(&self, _: Duration) -> LocalBoxFuture<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    fn registry(set: impl Fn(&mut ModelSettings)) -> ModelRegistry {
        let mut settings = ModelSettings::default();
        set(&mut settings);
        ModelRegistry::new(settings, Rc::new(Offline), None, Rc::new(Offline))
    }

    fn key(settings: &mut ModelSettings, provider: &str) {
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
        assert_eq!(registry(|s| key(s, "openai")).list(), ["openai/gpt-5-mini"]);
        let with_demo = |s: &mut ModelSettings| {
            key(s, "openai");
            s.demo = true;
        };
        assert_eq!(registry(with_demo).list(), ["openai/gpt-5-mini", "demo/echo"]);
    }

    #[test]
    fn custom_providers_come_after_the_built_in_ones() {
        let custom = |settings: &mut ModelSettings, secret: Option<&str>| {
            settings.custom = vec![CustomProvider {
                name: "mistral".into(),
                base_url: "https://api.mistral.ai/v1".into(),
                key: secret.map(str::to_owned),
                default_model: Some("small".into()),
                wire: Default::default(),
            }];
        };
        let locked = registry(|s| custom(s, Some("MISTRAL_API_KEY")));
        assert_eq!(locked.default_model(), "demo/echo");
        let error = locked.resolve("mistral/small").map(drop).unwrap_err();
        assert!(error.message.ends_with("set the secret MISTRAL_API_KEY"), "{}", error.message);
        for set in [&(|s: &mut ModelSettings| custom(s, None)) as &dyn Fn(&mut ModelSettings), &|s| {
            custom(s, Some("MISTRAL_API_KEY"));
            key(s, "mistral");
        }] {
            let open = registry(set);
            assert_eq!(open.default_model(), "mistral/small");
            assert_eq!(open.resolve("mistral/a/b").map(|(_, model)| model), Ok("a/b".to_owned()));
        }
        let both = registry(|s| {
            custom(s, None);
            key(s, "anthropic");
        });
        assert_eq!(both.default_model(), "anthropic/claude-sonnet-4-5");
    }

    #[test]
    fn no_setting_makes_a_protocol_carry_what_it_cannot() {
        let all = vec![MediaKind::Image, MediaKind::Pdf, MediaKind::Audio];
        let ids = ["openai/gpt-x", "anthropic/claude-x"];
        let registry = registry(|s| {
            s.media = AcceptedMedia(ids.map(|id| (id.to_owned(), all.clone())).into());
        });
        let takes = |id: &str| all.iter().map(|kind| registry.takes(id, *kind)).collect::<Vec<_>>();
        assert_eq!(ids.map(takes), [vec![true; 3], vec![true, true, false]]);
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
        }
    }

    #[test]
    fn sessions_use_only_the_allowed_models_and_the_default_one() {
        let registry = registry(|s| {
            key(s, "openai");
            key(s, "anthropic");
            s.demo = true;
            s.allow = Some(ModelList(vec!["anthropic/*".into(), "openai/gpt-5".into()]));
        });
        for id in ["openai/gpt-5-mini", "openai/gpt-5", "anthropic/claude"] {
            assert!(registry.offered(id).is_ok(), "{id}");
        }
        for id in ["openai/gpt-5-nano", "demo/echo"] {
            let message = registry.offered(id).map(drop).unwrap_err().message;
            let expected =
                format!("the model {id:?} is not available here; available: anthropic/*, openai/gpt-5");
            assert_eq!(message, expected);
            assert!(registry.resolve(id).is_ok(), "settings may name it");
        }
        assert_eq!(registry.list(), ["openai/gpt-5-mini"]);
    }

    #[test]
    fn sessions_use_the_demo_model_only_as_the_default_or_by_a_setting() {
        let offered = |set: &dyn Fn(&mut ModelSettings)| registry(set).offered("demo/echo").map(drop);
        assert_eq!(offered(&|_| ()), Ok(()), "the default without a provider");
        let provider = |s: &mut ModelSettings| key(s, "openai");
        assert_eq!(
            offered(&|s| {
                provider(s);
                s.default = Some("demo/echo".into());
            }),
            Ok(())
        );
        assert_eq!(
            offered(&|s| {
                provider(s);
                s.demo = true;
            }),
            Ok(())
        );
        let registry = registry(provider);
        let unknown = |id: &str| registry.offered(id).map(drop).unwrap_err().message.replace(id, "ID");
        assert_eq!(unknown("demo/echo"), unknown("demo/other"), "refused like a model that does not exist");
        assert!(!unknown("demo/echo").contains("demo"), "{}", unknown("demo/echo"));
        assert!(registry.resolve("demo/echo").is_ok(), "settings may name it");
    }
}
