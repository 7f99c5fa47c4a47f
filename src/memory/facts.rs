//! Facts: lines of daily logs and lines of `MEMORY.md`.

use super::{
    entries::{Origin, entry},
    terms,
};
use crate::ports::{
    MemoryIndex,
    memory::{Collection, Listing, MemoryResult, NewEntry, NewPart, Removal, Source},
};
use crate::types::{FactId, GeneratedId, SessionId, Timestamp, text::is_inline};
use crate::workspace::layout::MEMORY;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum length of a fact, in characters.
pub const MAX_FACT: usize = 2_000;
/// Maximum number of indexed lines of `MEMORY.md`.
const MAX_LINES: usize = 2_000;
/// Maximum number of entries removed per request.
const REMOVE_BATCH: usize = 200;

/// A fact to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFact {
    /// Id; a fact is stored once per id.
    pub id: String,
    /// The statement, in one line.
    pub text: String,
    /// When it was learned.
    pub at: Timestamp,
    /// Session that the fact was extracted from.
    pub session: Option<SessionId>,
    /// Person whom the fact is about or who stated it.
    pub speaker: Option<String>,
}

impl NewFact {
    /// Converts the fact to an index entry.
    pub(super) fn entry(self) -> NewEntry {
        // A single part regardless of length, because a fact is one line of its log.
        let terms = terms::index_terms(&self.text, self.at, self.speaker.as_deref());
        let parts = vec![NewPart { length: terms::length(&self.text), text: self.text, terms }];
        NewEntry {
            key: self.id,
            source: Source::Log,
            group: self.at.date(),
            session: self.session,
            at: self.at,
            speaker: self.speaker,
            parts,
        }
    }
}

/// Reduces a text to a single line of at most [`MAX_FACT`] characters.
pub fn line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().filter(|c| is_inline(*c)).take(MAX_FACT).collect()
}

/// Computes the id of a fact from the place where it was learned and its text, so that processing the same
/// place again changes nothing. The same statement from another place is a separate fact: a statement may
/// become false and later true again.
pub fn id_of(place: &[&str], text: &str) -> String {
    let mut hash = Sha256::new();
    for part in place.iter().chain(&[text]) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hex: String = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{}{hex}", FactId::PREFIX)
}

/// Prefix of the ids of lines of `MEMORY.md`. Callers cannot use such ids for facts.
pub const LINE: &str = "MEMORY.md#";

/// Makes the index contain exactly these lines of `MEMORY.md`. Writes only the differences.
pub(super) async fn replace_lines(
    index: &dyn MemoryIndex,
    facts: &Collection,
    text: &str,
    at: Timestamp,
) -> MemoryResult<()> {
    let mut wanted: BTreeMap<String, &str> = BTreeMap::new();
    let lines = text.lines().map(str::trim);
    for line in lines.filter(|line| line.chars().any(char::is_alphanumeric) && !line.starts_with('#')) {
        let hash = id_of(&[], line).replacen(FactId::PREFIX, LINE, 1);
        // Duplicate lines are indexed once.
        if wanted.len() < MAX_LINES {
            wanted.insert(hash, line);
        }
    }
    let group = Some(MEMORY.to_owned());
    let listing = Listing { group, limit: usize::from(u16::MAX), ..Listing::default() };
    let (mut removed, mut known) = (BTreeSet::new(), BTreeSet::new());
    for entry in index.list(facts, &listing).await? {
        match wanted.contains_key(&entry.key) {
            true => known.insert(entry.key),
            false => removed.insert(entry.key),
        };
    }
    let removed: Vec<String> = removed.into_iter().collect();
    let new: Vec<NewEntry> = wanted
        .into_iter()
        .filter(|(key, _)| !known.contains(key))
        .map(|(key, line)| {
            let group = MEMORY.to_owned();
            entry(Origin { key, source: Source::Memory, group, session: None, at, speaker: None }, line)
        })
        .collect();
    // Adds before it removes, so that unchanged statements can be found at any time.
    if !new.is_empty() {
        index.add(facts, &new).await?;
    }
    for keys in removed.chunks(REMOVE_BATCH) {
        while index.remove(facts, &Removal::Keys(keys.to_vec())).await? {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn a_fact_is_one_line() {
        assert_eq!(line("  Ann\n\n likes\t tea.\u{202e} "), "Ann likes tea.");
        assert_eq!(line(&"é".repeat(3_000)).chars().count(), MAX_FACT);
    }

    #[test]
    fn an_id_depends_on_the_place_and_the_text() {
        let id = id_of(&["s", "1"], "x");
        assert_eq!(id, id_of(&["s", "1"], "x"));
        assert!(id != id_of(&["s1", ""], "x") && id != id_of(&["s", "1"], "y") && id.len() == 36);
    }
}
