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
            doc: "How often facts are extracted from new messages. `always`: after each turn. A number: at most once in that \
                  many seconds for each user; one extraction then covers all messages since the last one. `never`: \
                  no facts are extracted.",
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
            doc: "The model that extracts facts and merges them into `MEMORY.md`. Not set: the session's model extracts, and \
                  the default model merges.",
            example: "",
        },
    ],
};
