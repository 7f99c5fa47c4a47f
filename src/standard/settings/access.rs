//! Settings of access.

use super::{Kind, Setting, Topic, value};

pub const TOPIC: Topic = Topic {
    title: "Access",
    about: "The operator creates the tenants' keys over HTTP, see [operations.md](operations.md#tenants-and-keys).",
    settings: &[
        Setting {
            name: "ADMIN_KEY",
            kind: Kind::Secret(|config, text| {
                config.admin_key = Some(text.to_owned());
                Ok(())
            }),
            default: "",
            expects: "a long random text",
            doc: "The operator's key. It opens the routes below `/v1/admin/` and no other routes. The server also signs \
                  tickets with it, and encrypts the JWT secrets of tenants. When you change the key, tickets are \
                  no longer valid, and these secrets must be set again. Without it, the routes below \
                  `/v1/admin/` and `/v1/tickets` do not work. `make dev` creates one.",
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
            doc: "A key with every scope for the tenant `dev`, for development. `make dev` creates one. Leave it out of \
                  deployments.",
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
