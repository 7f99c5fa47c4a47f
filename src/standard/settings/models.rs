//! Settings of models.

use super::{Config, Kind, Setting, Topic, ValueError, value};
use crate::model::{AcceptedMedia, CustomProvider, NegativePrice, Prices, Windows};
use crate::ports::media::MediaPrice;
use crate::types::{ModelList, model_list::check_pattern};
use std::collections::BTreeMap;

/// Maximum number of models that take over.
pub const MAX_FALLBACKS: usize = 4;
/// Maximum number of custom providers.
const MAX_PROVIDERS: usize = 16;

pub const TOPIC: Topic = Topic {
    title: "Models",
    about: "The id of a model is `provider/model`, such as `openai/gpt-5-mini`. The built-in model `demo/echo` needs no \
            provider; it replies until you configure one.",
    settings: &[
        Setting {
            name: "OPENAI_API_KEY",
            kind: Kind::Secret(|config, text| {
                config.models.credentials("openai").key = Some(text.to_owned());
                Ok(())
            }),
            default: "",
            expects: "a key of the provider",
            doc: "Enables the models of OpenAI, or of any server that implements its chat completions.",
            example: "",
        },
        Setting {
            name: "OPENAI_BASE_URL",
            kind: Kind::Variable(|config, text| {
                config.models.credentials("openai").base_url = Some(text.to_owned());
                Ok(())
            }),
            default: "",
            expects: "a URL",
            doc: "The base URL of `openai/…` models, `https://api.openai.com/v1` unless you set it. With a base URL of your \
            own, you may leave out the key; then set `DEFAULT_MODEL`, too.",
            example: "",
        },
        Setting {
            name: "ANTHROPIC_API_KEY",
            kind: Kind::Secret(|config, text| {
                config.models.credentials("anthropic").key = Some(text.to_owned());
                Ok(())
            }),
            default: "",
            expects: "a key of the provider",
            doc: "Enables the models of Anthropic.",
            example: "",
        },
        Setting {
            name: "ANTHROPIC_BASE_URL",
            kind: Kind::Variable(|config, text| {
                config.models.credentials("anthropic").base_url = Some(text.to_owned());
                Ok(())
            }),
            default: "",
            expects: "a URL",
            doc: "The base URL of `anthropic/…` models, `https://api.anthropic.com` unless you set it. If you set it, \
                  `ANTHROPIC_API_KEY` is optional.",
            example: "",
        },
        Setting {
            name: "AI",
            kind: Kind::Binding,
            default: "",
            expects: "an AI binding",
            doc: "Enables the models of Workers AI, as `workers-ai/@cf/…`. To add the binding, uncomment `[ai]` and the line \
                  below it in `wrangler.toml`. Workers AI has no local simulation: use it in a deployment.",
            example: "",
        },
        Setting {
            name: "PROVIDERS",
            kind: Kind::Variable(providers),
            default: "",
            expects: r#"a JSON list of at most 16 {"name", "base_url", "key"?, "default_model"?, "wire"?}"#,
            doc: "Your own providers, in addition to the built-in ones: servers that implement the chat completions of \
                  OpenAI or, with `\"wire\": \"anthropic\"`, the messages of Anthropic. `name` is the first part of \
                  their model ids. `key` names the secret with the API key; leave it out when the server needs none.",
            example: r#"[{"name": "mistral", "base_url": "https://api.mistral.ai/v1", "key": "MISTRAL_API_KEY",
  "default_model": "mistral-small-latest"}]"#,
        },
        Setting {
            name: "DEFAULT_MODEL",
            kind: Kind::Variable(|config, text| {
                config.models.default = Some(value::model(config, text)?);
                Ok(())
            }),
            default: "",
            expects: value::A_MODEL,
            doc: "The default model of sessions. Not set: the first of these that applies.\n\n\
                  1. `openai/gpt-5-mini`, if `OPENAI_API_KEY` is set\n\
                  2. `anthropic/claude-sonnet-4-5`, if `ANTHROPIC_API_KEY` is set\n\
                  3. the `default_model` of the first entry of `PROVIDERS` that has a `default_model`, and either no `key` \
                  or a `key` whose secret is set\n\
                  4. `demo/echo`",
            example: "",
        },
        Setting {
            name: "FALLBACK_MODELS",
            kind: Kind::Variable(fallback_models),
            default: "",
            expects: "at most 4 ids of models separated by commas",
            doc: "The models that take over when a session's model fails before its first token. They are tried in the \
                  order of the list. A model has failed if its provider is not available or does not respond, or if \
                  after retries the provider still says that there are too many requests. \
                  The model that has taken over stays until the end of the turn; the next turn starts with the session's \
                  model again. Models that the tenant may not use are skipped. If the turn has a `max_cost_usd`, models \
                  without a price are skipped, too. The event `model.fallback` and the turn's usage name the model.",
            example: "",
        },
        Setting {
            name: "FALLBACK_FOR_ACCOUNT",
            kind: Kind::Variable(|config, text| value::turn_on(&mut config.agent.fallback_for_account, text)),
            default: "",
            expects: "1",
            doc: "With `1`, the models of `FALLBACK_MODELS` also take over when a provider refuses the key, or the account \
                  is out of credit. Without it, such a turn fails, so that you notice.",
            example: "",
        },
        Setting {
            name: "DEMO_MODEL",
            kind: Kind::Variable(|config, text| value::turn_on(&mut config.models.demo, text)),
            default: "",
            expects: "1",
            doc: "With `1`, sessions, modes, and subagents may use the model `demo/echo`. Without it, they may do so only if \
                  `demo/echo` is the default model. Settings for internal work, such as `COMPACTION_MODEL` and \
                  `JUDGES`, may always name `demo/echo`. Users of this model can call every tool of the agent directly, \
                  so do not set `DEMO_MODEL` in deployments.",
            example: "",
        },
        Setting {
            name: "MODELS_ALLOW",
            kind: Kind::Variable(models_allow),
            default: "",
            expects: "at most 50 of provider/model separated by commas, in which `*` matches any characters",
            doc: "The models that sessions, modes, and subagents may use, such as `openai/gpt-5-mini, anthropic/*`. The \
                  default model is always one of them. Not set: all models of configured providers. The limits of a \
                  tenant can reduce the list further ([tenants](operations.md#limits-of-a-tenant)). Settings for \
                  internal work, such as `COMPACTION_MODEL` and `JUDGES`, may name other models.",
            example: "",
        },
        Setting {
            name: "MODEL_PRICES",
            kind: Kind::Variable(|config, text| {
                config.models.prices = Prices::new(value::json(text)?)?;
                Ok(())
            }),
            default: "",
            expects: r#"JSON {"provider/model": {"input", "output", "cache_read"?, "cache_write"?}} with prices from 0"#,
            doc: "Prices in US dollars per million tokens. They take precedence over the built-in list of well-known \
                  models. The budget `max_cost_usd` needs a price for the session's model.",
            example: r#"{"openai/gpt-x": {"input": 1.25, "output": 10, "cache_read": 0.125}}"#,
        },
        Setting {
            name: "MODEL_WINDOWS",
            kind: Kind::Variable(|config, text| {
                config.models.windows = Windows::new(value::json(text)?)?;
                Ok(())
            }),
            default: "",
            expects: r#"JSON {"provider/model": tokens} with at least 2000 tokens each"#,
            doc: "The context windows of models, in tokens. They take precedence over the built-in list of well-known \
                  models. A model in neither list is assumed to have 128,000 tokens.",
            example: r#"{"openai/mine": 32000}"#,
        },
        Setting {
            name: "IMAGE_MODEL",
            kind: Kind::Variable(|config, text| {
                config.agent.media.image = Some(value::model(config, text)?);
                Ok(())
            }),
            default: "",
            expects: value::A_MODEL,
            doc: "The model of the tools `generate_image` and `edit_image`, of a provider with OpenAI's API or of \
                  Workers AI. Not set: there are no such tools. See [media](extending.md#images-and-audio).",
            example: "openai/gpt-image-1",
        },
        Setting {
            name: "TRANSCRIPTION_MODEL",
            kind: Kind::Variable(|config, text| {
                config.agent.media.transcription = Some(value::model(config, text)?);
                Ok(())
            }),
            default: "",
            expects: value::A_MODEL,
            doc: "The model of the tool `transcribe`. Not set: there is no such tool.",
            example: "openai/gpt-4o-mini-transcribe",
        },
        Setting {
            name: "SPEECH_MODEL",
            kind: Kind::Variable(|config, text| {
                config.agent.media.speech = Some(value::model(config, text)?);
                Ok(())
            }),
            default: "",
            expects: value::A_MODEL,
            doc: "The model of the tool `speak`. Not set: there is no such tool.",
            example: "openai/gpt-4o-mini-tts",
        },
        Setting {
            name: "MEDIA_PRICES",
            kind: Kind::Variable(|config, text| {
                let prices: BTreeMap<String, MediaPrice> = value::json(text)?;
                match prices.iter().find(|(_, price)| price.is_negative()) {
                    Some((id, _)) => return Err(NegativePrice(id.clone()).into()),
                    None => config.models.media_prices = prices,
                }
                Ok(())
            }),
            default: "",
            expects: r#"JSON {"provider/model": {"image"?, "minute"?, "million_characters"?}} with prices from 0"#,
            doc: "What models for images and audio cost in US dollars besides their tokens: for an image, a minute of a \
                  recording, and a million characters that are spoken. The price of tokens is in \
                  [MODEL_PRICES](#model_prices).",
            example: r#"{"openai/whisper-1": {"minute": 0.006}, "openai/tts-1": {"million_characters": 15}}"#,
        },
        Setting {
            name: "MODEL_MEDIA",
            kind: Kind::Variable(|config, text| {
                config.models.media = AcceptedMedia(value::json(text)?);
                Ok(())
            }),
            default: "",
            expects: r#"JSON {"provider/model": [kinds]} with kinds out of "image", "pdf" and "audio""#,
            doc: "What models take besides text in users' messages ([attachments](http-api.md#attachments-and-artifacts)). \
                  It takes precedence over the built-in list of well-known models. A model in neither list takes text \
                  only.",
            example: r#"{"openrouter/google/gemini-2.5-pro": ["image", "pdf", "audio"]}"#,
        },
    ],
};

fn fallback_models(config: &mut Config, text: &str) -> Result<(), ValueError> {
    let models = value::names(text).map(|id| value::model(config, id)).collect::<Result<Vec<_>, _>>()?;
    value::distinct(models.iter().map(String::as_str))?;
    config.agent.fallback_models = value::bounded(models, MAX_FALLBACKS)?;
    Ok(())
}

fn models_allow(config: &mut Config, text: &str) -> Result<(), ValueError> {
    let list = ModelList(value::names(text).map(str::to_owned).collect());
    for pattern in &list.0 {
        check_pattern(pattern).map_err(|why| ValueError::entry(pattern, why))?;
    }
    if let Some(fault) = list.fault() {
        return Err(ValueError::entry(text, fault.detail));
    }
    config.models.allow = Some(list);
    Ok(())
}

fn providers(config: &mut Config, text: &str) -> Result<(), ValueError> {
    let providers: Vec<CustomProvider> = value::list(text, MAX_PROVIDERS)?;
    value::distinct(providers.iter().map(|provider| provider.name.as_str()))?;
    for provider in &providers {
        provider.check().map_err(|why| ValueError::entry(&provider.name, why))?;
    }
    config.models.custom = providers;
    Ok(())
}
