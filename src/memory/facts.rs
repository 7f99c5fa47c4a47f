//! Facts: lines of a day's log, and lines of `MEMORY.md`.

use super::{
    daily::day_of,
    entries::{Origin, entry},
    terms,
};
use crate::ports::{
    MemoryIndex,
    memory::{Collection, MemoryResult, NewEntry, NewPart, Removal, Source},
};
use crate::types::{Timestamp, id, text::in_line};
use crate::workspace::layout::MEMORY;
use sha2::{Digest, Sha256};

/// Longest fact, in characters.
pub const MAX_FACT: usize = 2_000;
/// Most lines of `MEMORY.md` that are indexed.
const MAX_LINES: usize = 2_000;

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
    words.join(" ").chars().filter(|c| in_line(*c)).take(MAX_FACT).collect()
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

/// Makes the index hold these lines of `MEMORY.md` and no others.
pub(super) async fn replace_lines(
    index: &dyn MemoryIndex,
    facts: &Collection,
    text: &str,
    at: Timestamp,
) -> MemoryResult<()> {
    let group = Removal::Group(MEMORY.to_owned());
    while index.remove(facts, &group).await? {}
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
    let entries: Vec<NewEntry> = lines
        .filter(|(_, line)| line.chars().any(char::is_alphanumeric) && !line.starts_with('#'))
        .take(MAX_LINES)
        .map(|(number, line)| {
            let (key, group) = (format!("{MEMORY}#{number}"), MEMORY.to_owned());
            entry(Origin { key, source: Source::Memory, group, session: None, at, speaker: None }, line)
        })
        .collect();
    if !entries.is_empty() {
        index.add(facts, &entries).await?;
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
