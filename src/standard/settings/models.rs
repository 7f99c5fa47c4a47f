//! Settings of models.

use super::{Kind, Setting, Topic, value};
use crate::model::{Prices, Windows};

pub const TOPIC: Topic = Topic {
    title: "Models",
    about: "The id of a model is `provider/model`, such as `openai/gpt-5-mini`. Without a provider's key the built-in \
            model `demo/echo` replies.",
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
            doc: "The base URL of `openai/…` models, `https://api.openai.com/v1` unless you set it. A server of your \
                  own may need no key.",
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
            doc: "The base URL of `anthropic/…` models, `https://api.anthropic.com` unless you set it.",
            example: "",
        },
        Setting {
            name: "AI",
            kind: Kind::Binding,
            default: "",
            expects: "an AI binding",
            doc: "Enables the models of Workers AI, as `workers-ai/@cf/…`. `wrangler.toml` has the two lines as a \
                  comment. Workers AI has no local simulation: use it in a deployment.",
            example: "",
        },
        Setting {
            name: "DEFAULT_MODEL",
            kind: Kind::Variable(|config, text| {
                config.models.default = Some(value::model(text)?);
                Ok(())
            }),
            default: "",
            expects: value::A_MODEL,
            doc: "The model of sessions that name none. Empty: `openai/gpt-5-mini` when there is a key for OpenAI, \
                  otherwise `anthropic/claude-sonnet-4-5` when there is one for Anthropic, otherwise `demo/echo`.",
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
                  models. A model in neither list counts as one with 128,000 tokens.",
            example: r#"{"openai/mine": 32000}"#,
        },
    ],
};
