//! Settings of memory.

use super::{Kind, Setting, Topic, value};
use crate::memory::Flush;
use std::time::Duration;

pub const TOPIC: Topic = Topic {
    title: "Memory",
    about: "The memory of users across sessions, see [memory.md](memory.md).",
    settings: &[
        Setting {
            name: "MEMORY_FLUSH",
            kind: Kind::Variable(|config, text| {
                config.memory.flush = match text {
                    "always" => Flush::Every(Duration::ZERO),
                    "never" => Flush::Never,
                    seconds => Flush::Every(Duration::from_secs(value::number::<u32>(seconds, 0)?.into())),
                };
                Ok(())
            }),
            default: "always",
            expects: "always, never or a whole number of seconds",
            doc: "When facts are extracted from new messages: after every turn, never, or at most once in this many \
                  seconds for each user. Facts of messages in between are extracted together.",
            example: "",
        },
        Setting {
            name: "MEMORY_MODEL",
            kind: Kind::Variable(|config, text| {
                config.memory.model = Some(value::model(config, text)?);
                Ok(())
            }),
            default: "",
            expects: value::A_MODEL,
            doc: "The model that extracts facts and consolidates them. Empty: the session's model extracts, the \
                  default model consolidates.",
            example: "",
        },
    ],
};
