//! Settings of access.

use super::{Config, Kind, Setting, Topic, ValueError, value};

/// Minimum length of the operator's key, in bytes. A shorter key could be guessed from a value that it
/// encrypts.
const MIN_ADMIN_KEY: usize = 32;

pub const TOPIC: Topic = Topic {
    title: "Access",
    about: "The operator creates the tenants' keys over HTTP, see [operations.md](operations.md#tenants-and-keys).",
    settings: &[
        Setting {
            name: "ADMIN_KEY",
            kind: Kind::Secret(admin_key),
            default: "",
            expects: "a random text of at least 32 bytes, such as the output of `openssl rand -hex 32`",
            doc: "The operator's key. It opens the routes below `/v1/admin/` and no other routes. The server also encrypts \
                  stored secrets with it, such as the `jwks` of tenants. Before you change it, see \
                  [operations.md](operations.md#changing-the-operators-key). Without an `ADMIN_KEY`, the routes below \
                  `/v1/admin/` and `/v1/tickets` do not work. If the `ADMIN_KEY` is too short, these routes respond 501 \
                  `not_configured`; sessions still work. `make dev` creates an `ADMIN_KEY`.",
            example: "",
        },
        Setting {
            name: "DEV_API_KEY",
            kind: Kind::Secret(|config, text| {
                config.dev_api_key = Some(text.to_owned());
                Ok(())
            }),
            default: "",
            expects: "a long random text",
            doc: "A key with every scope for the tenant `dev`, for development. `make dev` creates one. The server accepts \
                  it only if the host of the URL is `localhost`, `127.…` or `[::1]`, or if `DEV` is set. So a deployment \
                  without `DEV` ignores the key.",
            example: "",
        },
        Setting {
            name: "DEV",
            kind: Kind::Variable(|config, text| value::turn_on(&mut config.dev, text)),
            default: "",
            expects: "1",
            doc: "With `1`, the `DEV_API_KEY` is valid for every host, for example in a network of your own. Set it in \
                  `.dev.vars`, and not in deployments: the holder of the key has every scope of the tenant `dev`.",
            example: "",
        },
        Setting {
            name: "CORS_ORIGINS",
            kind: Kind::Variable(|config, text| {
                config.cors_origins = value::names(text).map(str::to_owned).collect();
                Ok(())
            }),
            default: "",
            expects: "origins separated by commas",
            doc: "The origins of web pages that may call the server from a browser, such as \
                  `https://app.example.com`. Not set: none.",
            example: "",
        },
    ],
};

fn admin_key(config: &mut Config, text: &str) -> Result<(), ValueError> {
    if text.len() < MIN_ADMIN_KEY {
        return Err(ValueError::TooShort { found: text.len() });
    }
    config.admin_key = Some(text.to_owned());
    Ok(())
}
