//! Converts texts to terms: words in lower case without diacritics, reduced to their stems; pairs of
//! characters for scripts without spaces; and the date and the speaker of each entry.
//!
//! Index and queries are both analyzed here, so that results do not depend on a database's tokenizer. Terms
//! consist of letters, digits and `_`, so none of them can be an operator of a query language.

use super::{
    normalize::{CharKind, normalize},
    stem::stem,
};
use crate::types::Timestamp;
use chrono::{DateTime, Datelike, Utc};
use std::collections::BTreeSet;

/// Maximum length of a term, in characters. Longer terms are truncated.
pub const MAX_TERM: usize = 32;
/// Maximum number of words of a speaker's name that become terms.
const MAX_NAME_WORDS: usize = 4;

/// Suffixes after an apostrophe that are dropped, because they are function words.
const ENDINGS: [&str; 6] = ["d", "ll", "m", "re", "s", "ve"];

/// The kind of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A word between spaces, not stemmed.
    Word,
    /// A single character of an unspaced script, without neighbors.
    SingleChar,
    /// A character of an unspaced script next to others.
    Char,
    /// Two adjacent characters of an unspaced script.
    Bigram,
}

/// Calls `emit` with every piece of `text`, in order.
pub fn pieces(text: &str, mut emit: impl FnMut(&str, Kind)) {
    let mut run = Run::default();
    for c in text.chars() {
        let length = run.term.len();
        match (normalize(c, &mut run.term), run.unspaced) {
            (CharKind::Ignored, _) => {}
            (CharKind::Separator, _) if is_apostrophe(c) && !run.unspaced && !run.term.is_empty() => {
                run.apostrophe = Some(run.term.len());
            }
            (CharKind::Separator, _) => run.end(&mut emit),
            (CharKind::Letter, false) | (CharKind::Unspaced, true) => {}
            // The script changes within a run.
            (kind, _) => {
                let new = run.term.split_off(length);
                run.end(&mut emit);
                run.term = new;
                run.unspaced = kind == CharKind::Unspaced;
            }
        }
    }
    run.end(&mut emit);
}

/// A run of adjacent characters of the same kind.
#[derive(Default)]
struct Run {
    term: String,
    unspaced: bool,
    /// Position of the last apostrophe in the term.
    apostrophe: Option<usize>,
}

impl Run {
    fn end(&mut self, emit: &mut impl FnMut(&str, Kind)) {
        if self.unspaced {
            bigrams(&self.term, emit);
        } else {
            let ending = self.apostrophe.filter(|at| ENDINGS.contains(&&self.term[*at..]));
            let word = &self.term[..ending.unwrap_or(self.term.len())];
            let end = word.char_indices().nth(MAX_TERM).map_or(word.len(), |(at, _)| at);
            if end > 0 {
                emit(&word[..end], Kind::Word);
            }
        }
        *self = Self { term: std::mem::take(&mut self.term), ..Self::default() };
        self.term.clear();
    }
}

fn bigrams(run: &str, emit: &mut impl FnMut(&str, Kind)) {
    let starts: Vec<usize> = run.char_indices().map(|(at, _)| at).chain([run.len()]).collect();
    let kind = if starts.len() == 2 { Kind::SingleChar } else { Kind::Char };
    for (at, bounds) in starts.windows(2).enumerate() {
        emit(&run[bounds[0]..bounds[1]], kind);
        if let Some(end) = starts.get(at + 2) {
            emit(&run[bounds[0]..*end], Kind::Bigram);
        }
    }
}

fn is_apostrophe(c: char) -> bool {
    matches!(c, '\'' | '’' | 'ʼ')
}

/// Returns the words of `text` in order, not stemmed. Pairs of unspaced characters count as words.
pub fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    pieces(text, |piece, kind| {
        if kind != Kind::Char {
            words.push(piece.to_owned());
        }
    });
    words
}

/// Returns the length of `text` in words. Each unspaced character counts as one.
pub fn length(text: &str) -> u32 {
    let mut length = 0;
    pieces(text, |_, kind| length += u32::from(kind != Kind::Bigram));
    length
}

/// Returns the index terms of a part of an entry, separated by spaces.
pub fn index_terms(text: &str, at: Timestamp, speaker: Option<&str>) -> String {
    let mut terms = BTreeSet::new();
    pieces(text, |piece, kind| {
        terms.insert(if kind == Kind::Word { stem(piece) } else { piece.to_owned() });
    });
    terms.extend(date_terms(at));
    terms.extend(speaker.iter().flat_map(|name| speaker_terms(name)));
    Vec::from_iter(terms).join(" ")
}

/// Counts the occurrences of each of `terms` in `text`.
pub fn count(text: &str, terms: &[String]) -> Vec<u32> {
    let mut counts = vec![0; terms.len()];
    pieces(text, |piece, kind| {
        // Stems keep the first letter, so most words need no stemming.
        let first = piece.chars().next();
        if !terms.iter().any(|term| term.chars().next() == first) {
            return;
        }
        let stemmed = if kind == Kind::Word { stem(piece) } else { piece.to_owned() };
        if let Some(at) = terms.iter().position(|term| *term == stemmed) {
            counts[at] += 1;
        }
    });
    counts
}

/// Returns the terms of a date: its year, month, weekday and day of the month.
pub fn date_terms(at: Timestamp) -> [String; 4] {
    let day = i64::try_from(at.0).ok().and_then(DateTime::<Utc>::from_timestamp_millis).unwrap_or_default();
    let month = MONTHS[day.month0() as usize % MONTHS.len()];
    let weekday = DAYS[day.weekday().num_days_from_monday() as usize % DAYS.len()];
    [
        date_term(&day.year().to_string()),
        date_term(month),
        date_term(weekday),
        date_term(&day.day().to_string()),
    ]
}

/// Returns the terms of a speaker: one per word of the name.
pub fn speaker_terms(name: &str) -> Vec<String> {
    words(name).iter().take(MAX_NAME_WORDS).map(|word| speaker_term(word)).collect()
}

/// Returns the term of speakers whose name contains this word.
pub fn speaker_term(word: &str) -> String {
    format!("by_{word}")
}

/// Returns the term of a year, month, weekday or day of the month.
pub fn date_term(word: &str) -> String {
    format!("on_{word}")
}

/// Names of the months.
pub const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
/// Names of the days of the week.
pub const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_normalized() {
        assert_eq!(
            words("Caroline's  CAFÉ, don’t: 8th_of 'May'!"),
            ["caroline", "cafe", "dont", "8th", "of", "may"]
        );
        assert_eq!(words("the boys' rock'n'roll 's I'd"), ["the", "boys", "rocknroll", "s", "i"]);
    }

    #[test]
    fn unspaced_characters_form_pairs() {
        assert_eq!(words("東京都 is 大 in日本"), ["東京", "京都", "is", "大", "in", "日本"]);
        assert_eq!(
            index_terms("東京a", Timestamp(0), None),
            "a on_1 on_1970 on_january on_thursday 京 東 東京"
        );
        assert_eq!(length("東京都 is"), 4);
    }

    #[test]
    fn terms_contain_stems_date_and_speaker() {
        let at = Timestamp::parse("2023-05-08T13:56:00Z").unwrap();
        assert_eq!(
            index_terms("She painted, he paints", at, Some("Ana Luz")),
            "by_ana by_luz he on_2023 on_8 on_may on_monday paint she"
        );
    }

    #[test]
    fn terms_are_counted() {
        let terms = ["paint".to_owned(), "東京".to_owned(), "cat".to_owned()];
        assert_eq!(count("Paint the painted 東京都", &terms), [2, 1, 0]);
    }

    proptest! {
        #[test]
        fn terms_never_contain_operators(text in "\\PC{0,200}") {
            for term in index_terms(&text, Timestamp(0), Some(&text)).split(' ') {
                prop_assert!(!term.is_empty() && term.chars().count() <= 2 * MAX_TERM + 3, "{term:?}");
                let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || !c.is_ascii();
                prop_assert!(term.chars().all(plain), "{term:?}");
                prop_assert!(!term.contains(char::is_whitespace));
            }
        }

        #[test]
        fn queries_and_index_use_the_same_terms(text in "(\\PC{0,100}|[a-zé' 日本語한국]{0,100})") {
            let stored = index_terms(&text, Timestamp(0), None);
            let stored: Vec<&str> = stored.split(' ').collect();
            for word in words(&text) {
                let term = stem(&word);
                prop_assert!(stored.contains(&term.as_str()), "{word:?}");
                prop_assert!(count(&text, &[term])[0] > 0);
            }
        }
    }
}
