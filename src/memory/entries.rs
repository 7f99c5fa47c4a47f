//! Converts turns and facts to index entries.

use super::{chunks::chunks, terms};
use crate::ports::memory::{NewEntry, NewPart, Source};
use crate::types::{SessionId, Timestamp};

/// Metadata of a turn or a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Id chosen by the caller.
    pub key: String,
    /// Kind of source.
    pub source: Source,
    /// Group of entries that belong together, such as a session or a day.
    pub group: String,
    /// Session that the entry comes from.
    pub session: Option<SessionId>,
    /// When it was said or learned.
    pub at: Timestamp,
    /// Name of the speaker.
    pub speaker: Option<String>,
}

/// Analyzes `text` and creates an entry.
pub fn entry(origin: Origin, text: &str) -> NewEntry {
    let Origin { key, source, group, session, at, speaker } = origin;
    let part = |text: &str| NewPart {
        text: text.to_owned(),
        terms: terms::index_terms(text, at, speaker.as_deref()),
        length: terms::length(text),
    };
    let parts = chunks(text).into_iter().map(part).collect();
    NewEntry { key, source, group, session, at, speaker, parts }
}
