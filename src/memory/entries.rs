//! Turns and facts become entries of the index.

use super::{chunks::chunks, terms};
use crate::ports::memory::{NewEntry, NewPart, Source};
use crate::types::Timestamp;

/// What is known of a turn or a fact beside its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The caller's id.
    pub key: String,
    /// Where it comes from.
    pub source: Source,
    /// What it stands together with.
    pub group: String,
    /// Its session.
    pub session: Option<String>,
    /// When it was said or learned.
    pub at: Timestamp,
    /// Who said it.
    pub speaker: Option<String>,
}

/// Analyses `text` and makes an entry of it.
pub fn entry(origin: Origin, text: &str) -> NewEntry {
    let Origin { key, source, group, session, at, speaker } = origin;
    let part = |text: &str| NewPart {
        text: text.to_owned(),
        terms: terms::index(text, at, speaker.as_deref()),
        length: terms::length(text),
    };
    let parts = chunks(text).into_iter().map(part).collect();
    NewEntry { key, source, group, session, at, speaker, parts }
}
