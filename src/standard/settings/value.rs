//! Parsers of values that several settings share.

use super::Config;
use crate::model::{NegativePrice, SmallWindow};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::str::FromStr;
use thiserror::Error;
use url::Url;

/// Why the value of a setting is invalid.
#[derive(Debug, Error)]
pub enum ValueError {
    /// The value has another form.
    #[error("found {0:?}")]
    Unexpected(String),
    /// The value is not JSON, or JSON of another shape.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A price is negative.
    #[error(transparent)]
    Price(#[from] NegativePrice),
    /// A context window is too small.
    #[error(transparent)]
    Window(#[from] SmallWindow),
    /// The list is too long.
    #[error("found {found} entries, at most {most} are allowed")]
    TooMany {
        /// Its length.
        found: usize,
        /// The longest allowed.
        most: usize,
    },
    /// A secret is too short. The message does not contain it.
    #[error("found {found} bytes")]
    TooShort {
        /// Its length, in bytes.
        found: usize,
    },
    /// Two entries have the same name.
    #[error("{0:?} occurs twice")]
    Twice(String),
    /// One entry is wrong.
    #[error("{entry:?}: {why}")]
    Entry {
        /// The entry, or the place in it.
        entry: String,
        /// What is wrong with it.
        why: String,
    },
}

impl ValueError {
    /// Creates an error about one entry of a value.
    pub fn entry(entry: impl Into<String>, why: impl ToString) -> Self {
        Self::Entry { entry: entry.into(), why: why.to_string() }
    }
}

/// Parses a number that is at least `least`.
pub fn number<T: FromStr + PartialOrd>(text: &str, least: T) -> Result<T, ValueError> {
    let number = text.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| ValueError::Unexpected(text.to_owned()))
}

/// Sets a flag, whose setting is either `1` or absent.
pub fn turn_on(flag: &mut bool, text: &str) -> Result<(), ValueError> {
    *flag = text == "1";
    if *flag { Ok(()) } else { Err(ValueError::Unexpected(text.to_owned())) }
}

/// Parses the address of a deployment: an `http(s)` URL without a path. Returns it without a slash at the end.
pub fn origin(text: &str) -> Result<String, ValueError> {
    let origin = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let origin = origin.map(|url| url.origin().ascii_serialization());
    origin
        .filter(|origin| *origin == text.trim_end_matches('/'))
        .ok_or_else(|| ValueError::Unexpected(text.to_owned()))
}

/// Parses JSON. Directly as a `T`, because a field that occurs twice is then an error.
pub fn json<T: DeserializeOwned>(text: &str) -> Result<T, ValueError> {
    Ok(serde_json::from_str(text)?)
}

/// Parses a JSON list of at most `most` entries.
pub fn list<T: DeserializeOwned>(text: &str, most: usize) -> Result<Vec<T>, ValueError> {
    let entries: Vec<T> = json(text)?;
    bounded(entries, most)
}

/// Refuses a list of more than `most` entries.
pub fn bounded<T>(entries: Vec<T>, most: usize) -> Result<Vec<T>, ValueError> {
    match entries.len() <= most {
        true => Ok(entries),
        false => Err(ValueError::TooMany { found: entries.len(), most }),
    }
}

/// Refuses a name that occurs twice.
pub fn distinct<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), ValueError> {
    let mut seen = BTreeSet::new();
    match names.into_iter().find(|name| !seen.insert(*name)) {
        None => Ok(()),
        Some(name) => Err(ValueError::Twice(name.to_owned())),
    }
}

/// Parses names separated by commas; blank ones are skipped.
pub fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// Parses the id of a model, `provider/model`, whose provider exists.
pub fn model(config: &Config, text: &str) -> Result<String, ValueError> {
    match text.split_once('/') {
        Some((provider, name)) if !name.is_empty() && config.models.has_provider(provider) => {
            Ok(text.to_owned())
        }
        _ => Err(ValueError::Unexpected(text.to_owned())),
    }
}

/// The values that [`model`] accepts.
pub const A_MODEL: &str =
    "provider/model, where the provider is one of openai, anthropic, workers-ai, demo and PROVIDERS";
