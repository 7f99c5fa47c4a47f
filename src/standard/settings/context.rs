//! Settings of the context window and of large outputs.

use super::{Config, Kind, Setting, Topic, ValueError, faults::MIN_OBSERVED, value};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How the context window is kept within its bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Strategy {
    /// By replacing older messages by a summary.
    #[default]
    Compaction,
    /// By replacing older messages by notes.
    Observation,
    /// By hiding the oldest messages.
    None,
}

pub const TOPIC: Topic = Topic {
    title: "Long conversations",
    about: "How a long conversation is kept within the model's context window, see [memory.md](memory.md#long-conversations), \
            and how large outputs of tools are stored.",
    settings: &[
        Setting {
            name: "CONTEXT_STRATEGY",
            kind: Kind::Variable(|config, text| {
                config.strategy = match text {
                    "compaction" => Strategy::Compaction,
                    "observation" => Strategy::Observation,
                    "none" => Strategy::None,
                    other => return Err(ValueError::Unexpected(other.to_owned())),
                };
                Ok(())
            }),
            default: "compaction",
            expects: "compaction, observation or none",
            doc: "`compaction` replaces older messages in the prompt with a summary, `observation` with notes. With `none`, \
                  the prompt has only the newest `CONTEXT_MESSAGES` messages.",
            example: "",
        },
        Setting {
            name: "CONTEXT_MESSAGES",
            kind: Kind::Variable(|config, text| {
                config.agent.context_messages = value::number(text, 1)?;
                Ok(())
            }),
            default: "100",
            expects: "a whole number from 1",
            doc: "With the strategy `none`: maximum number of messages in the prompt.",
            example: "",
        },
        Setting {
            name: "CONTEXT_RESERVE",
            kind: Kind::Variable(|config, text| {
                config.compaction.reserve = tokens(text)?;
                Ok(())
            }),
            default: "20000",
            expects: "a whole number of tokens",
            doc: "Number of tokens of the model's context window that compaction keeps free for the response. The server \
                  uses at most half of the window for this.",
            example: "",
        },
        Setting {
            name: "COMPACT_AT_MESSAGES",
            kind: Kind::Variable(|config, text| {
                config.compaction.compact_at(value::number(text, 0)?);
                Ok(())
            }),
            default: "100",
            expects: "a whole number of messages",
            doc: "Number of messages at which the conversation is compacted. 0: the number of messages does not matter.",
            example: "",
        },
        Setting {
            name: "COMPACT_AT_TOKENS",
            kind: Kind::Variable(|config, text| {
                config.compaction.at_tokens = tokens(text)?;
                Ok(())
            }),
            default: "0",
            expects: "a whole number of tokens",
            doc: "Number of tokens of a model request (instructions, tools and messages) at which the conversation is \
                  compacted. 0: the model's context window minus `CONTEXT_RESERVE`.",
            example: "",
        },
        Setting {
            name: "COMPACT_KEEP_MESSAGES",
            kind: Kind::Variable(keep_messages),
            default: "",
            expects: "a whole number of messages, less than COMPACT_AT_MESSAGES",
            doc: "Maximum number of messages that compaction keeps unchanged at the end of the conversation. The last step and \
                  the user's last message always stay unchanged. Not set: 20, or half of `COMPACT_AT_MESSAGES` if that is less.",
            example: "",
        },
        Setting {
            name: "COMPACT_KEEP_TOKENS",
            kind: Kind::Variable(|config, text| {
                config.compaction.keep_tokens = tokens(text)?;
                Ok(())
            }),
            default: "0",
            expects: "a whole number of tokens",
            doc: "Maximum number of tokens of the messages that compaction keeps unchanged. 0: a quarter of the tokens at \
                  which it compacts (see `COMPACT_AT_TOKENS`), but at least 2,000 and at most 8,000.",
            example: "",
        },
        Setting {
            name: "COMPACTION_MODEL",
            kind: Kind::Variable(|config, text| {
                config.compaction.model = Some(value::model(config, text)?);
                Ok(())
            }),
            default: "",
            expects: value::A_MODEL,
            doc: "The model that writes summaries. Not set: the session's model.",
            example: "",
        },
        Setting {
            name: "OBSERVE_AT",
            kind: Kind::Variable(|config, text| {
                config.observation.observe_at = value::number(text, MIN_OBSERVED)?;
                Ok(())
            }),
            default: "30000",
            expects: "a whole number of tokens from 500",
            doc: "With the strategy `observation`: number of tokens of messages in the prompt at which notes replace the older \
                  ones. With a small context window, this happens earlier: when the messages fill half of the \
                  space that instructions and tools leave free in the window.",
            example: "",
        },
        Setting {
            name: "REFLECT_AT",
            kind: Kind::Variable(|config, text| {
                config.observation.reflect_at = value::number(text, MIN_OBSERVED)?;
                Ok(())
            }),
            default: "40000",
            expects: "a whole number of tokens from 500",
            doc: "With the strategy `observation`: number of tokens of notes at which a shorter version replaces them. With a \
                  small context window, this happens earlier: when the notes fill a third of the space that instructions \
                  and tools leave free in the window.",
            example: "",
        },
        Setting {
            name: "OBSERVER_MODEL",
            kind: Kind::Variable(|config, text| {
                config.observation.observer = Some(value::model(config, text)?);
                Ok(())
            }),
            default: "",
            expects: value::A_MODEL,
            doc: "The model that takes notes. Not set: the session's model.",
            example: "",
        },
        Setting {
            name: "REFLECTOR_MODEL",
            kind: Kind::Variable(|config, text| {
                config.observation.reflector = Some(value::model(config, text)?);
                Ok(())
            }),
            default: "",
            expects: value::A_MODEL,
            doc: "The model that rewrites notes. Not set: the session's model.",
            example: "",
        },
        Setting {
            name: "OBSERVE_IDLE_MINUTES",
            kind: Kind::Variable(|config, text| {
                let minutes: u32 = value::number(text, 1)?;
                config.observation.idle_after = Some(Duration::from_mins(minutes.into()));
                Ok(())
            }),
            default: "",
            expects: "a whole number of minutes from 1",
            doc: "With the strategy `observation`: the number of idle minutes after which the notes, which are taken in \
                  advance, replace the messages even before `OBSERVE_AT` is reached. By then the \
                  provider has dropped the prompt from its cache, so changing the prompt costs nothing extra. Not set: \
                  the notes replace the messages only at `OBSERVE_AT`.",
            example: "",
        },
        Setting {
            name: "ARTIFACT_TTL_S",
            kind: Kind::Variable(|config, text| {
                config.agent.artifact_ttl = Duration::from_secs(value::number(text, 0)?);
                Ok(())
            }),
            default: "3600",
            expects: "a whole number of seconds",
            doc: "How long a tool output of more than 12,000 characters is kept. The model gets a reference to it, the \
                  *artifact*, and a preview. `EVICT_OVER` sets which outputs are kept longer.",
            example: "",
        },
        Setting {
            name: "EVICT_OVER",
            kind: Kind::Variable(|config, text| {
                let characters: usize = value::number(text, 0)?;
                config.agent.evict_over = Some(characters).filter(|characters| *characters > 0);
                Ok(())
            }),
            default: "80000",
            expects: "a whole number of characters",
            doc: "A tool output of more characters than this is stored until its session is deleted, instead of for \
                  `ARTIFACT_TTL_S`. Its preview in the prompt has its start and its end. 0: no output is stored longer \
                  than `ARTIFACT_TTL_S`.",
            example: "",
        },
    ],
};

fn tokens(text: &str) -> Result<u64, ValueError> {
    value::number(text, 0).map(u32::into)
}

fn keep_messages(config: &mut Config, text: &str) -> Result<(), ValueError> {
    let (keep, at) = (value::number(text, 0)?, config.compaction.at_messages);
    if at > 0 && keep >= at {
        return Err(ValueError::Unexpected(text.to_owned()));
    }
    config.compaction.keep_messages = keep;
    Ok(())
}
