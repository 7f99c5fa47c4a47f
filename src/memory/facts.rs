//! Facts: lines of a day's log, and lines of `MEMORY.md`.

use super::{
    daily::day_of,
    entries::{Origin, entry},
    terms,
};
use crate::ports::{
    MemoryIndex,
    memory::{Collection, Listing, MemoryResult, NewEntry, NewPart, Removal, Source},
};
use crate::types::{Timestamp, id, text::is_inline};
use crate::workspace::layout::MEMORY;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// Longest fact, in characters.
pub const MAX_FACT: usize = 2_000;
/// Most lines of `MEMORY.md` that are indexed.
const MAX_LINES: usize = 2_000;
/// Entries that one step removes.
const KEYS_AT_ONCE: usize = 200;

/// Something learned about a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFact {
    /// Its id: a fact is stored once.
    pub id: String,
    /// What was learned, in one line.
    pub text: String,
    /// When.
    pub at: Timestamp,
    /// The session it was drawn from.
    pub session: Option<String>,
    /// Whom it is about or from.
    pub speaker: Option<String>,
}

impl NewFact {
    /// As the index takes it.
    pub(super) fn entry(self) -> NewEntry {
        // One part, however long: a fact is a line of its log.
        let terms = terms::index(&self.text, self.at, self.speaker.as_deref());
        let parts = vec![NewPart { length: terms::length(&self.text), text: self.text, terms }];
        NewEntry {
            key: self.id,
            source: Source::Log,
            group: day_of(self.at),
            session: self.session,
            at: self.at,
            speaker: self.speaker,
            parts,
        }
    }
}

/// What was said, in one line that a log can hold.
pub fn line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().filter(|c| is_inline(*c)).take(MAX_FACT).collect()
}

/// The id of a fact that follows from where it was learned, so that learning it again there changes
/// nothing. Learned elsewhere, it is a fact of its own: what was true, false, and is true again was said
/// three times.
pub fn id_of(place: &[&str], text: &str) -> String {
    let mut hash = Sha256::new();
    for part in place.iter().chain(&[text]) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hex: String = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{}{hex}", id::MEMORY)
}

/// What the ids of lines of `MEMORY.md` begin with; no fact of a caller's has such an id.
pub const LINE: &str = "MEMORY.md#";

/// Makes the index hold these lines of `MEMORY.md` and no others. Writes only what differs.
pub(super) async fn replace_lines(
    index: &dyn MemoryIndex,
    facts: &Collection,
    text: &str,
    at: Timestamp,
) -> MemoryResult<()> {
    let mut wanted: BTreeMap<String, &str> = BTreeMap::new();
    let lines = text.lines().map(str::trim);
    for line in lines.filter(|line| line.chars().any(char::is_alphanumeric) && !line.starts_with('#')) {
        let hash = id_of(&[], line).replacen(id::MEMORY, LINE, 1);
        // The same words twice are found once.
        if wanted.len() < MAX_LINES {
            wanted.insert(hash, line);
        }
    }
    let group = Some(MEMORY.to_owned());
    let listing = Listing { group, limit: usize::from(u16::MAX), ..Listing::default() };
    let (mut gone, mut known) = (BTreeSet::new(), BTreeSet::new());
    for entry in index.list(facts, &listing).await? {
        match wanted.contains_key(&entry.key) {
            true => known.insert(entry.key),
            false => gone.insert(entry.key),
        };
    }
    let gone: Vec<String> = gone.into_iter().collect();
    let new: Vec<NewEntry> = wanted
        .into_iter()
        .filter(|(key, _)| !known.contains(key))
        .map(|(key, line)| {
            let group = MEMORY.to_owned();
            entry(Origin { key, source: Source::Memory, group, session: None, at, speaker: None }, line)
        })
        .collect();
    // New lines first: what stays known is found all the time.
    if !new.is_empty() {
        index.add(facts, &new).await?;
    }
    for keys in gone.chunks(KEYS_AT_ONCE) {
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
    fn an_id_names_the_place_and_the_words() {
        let id = id_of(&["s", "1"], "x");
        assert_eq!(id, id_of(&["s", "1"], "x"));
        assert!(id != id_of(&["s1", ""], "x") && id != id_of(&["s", "1"], "y") && id.len() == 36);
    }
}
