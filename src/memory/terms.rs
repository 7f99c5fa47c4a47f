//! Texts become terms: lower-cased words without marks, reduced to their stems; pairs of signs where a
//! script has no spaces; and, for each entry, its day and its speaker.
//!
//! The index and its questions are analysed here and nowhere else, so a database's tokenizer has
//! nothing to decide. A term holds letters, digits and `_`, so none can be taken for an operator of a
//! query language.

use super::{
    fold::{Folded, fold},
    stem::stem,
};
use crate::types::Timestamp;
use chrono::{DateTime, Datelike, Utc};
use std::collections::BTreeSet;

/// Longest term, in characters; what is longer is cut.
pub const MAX_TERM: usize = 32;
/// Words of a speaker's name that are terms.
const MAX_NAME_WORDS: usize = 4;

/// What stands behind an apostrophe and is a word of its own that says nothing.
const ENDINGS: [&str; 6] = ["d", "ll", "m", "re", "s", "ve"];

/// What a piece of a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A word between spaces, not stemmed.
    Word,
    /// A sign that stands alone.
    Lone,
    /// A sign next to others.
    Sign,
    /// Two signs next to each other.
    Pair,
}

/// Calls `each` with every piece of `text`, in order.
pub fn pieces(text: &str, mut each: impl FnMut(&str, Kind)) {
    let mut run = Run::default();
    for c in text.chars() {
        let held = run.term.len();
        match (fold(c, &mut run.term), run.of_signs) {
            (Folded::Nothing, _) => {}
            (Folded::Gap, _) if is_apostrophe(c) && !run.of_signs && !run.term.is_empty() => {
                run.apostrophe = Some(run.term.len());
            }
            (Folded::Gap, _) => run.end(&mut each),
            (Folded::Letter, false) | (Folded::Sign, true) => {}
            // The script changes in mid-run.
            (kind, _) => {
                let new = run.term.split_off(held);
                run.end(&mut each);
                run.term = new;
                run.of_signs = kind == Folded::Sign;
            }
        }
    }
    run.end(&mut each);
}

/// Letters or signs that follow each other.
#[derive(Default)]
struct Run {
    term: String,
    of_signs: bool,
    /// Where in the term the last apostrophe stood.
    apostrophe: Option<usize>,
}

impl Run {
    fn end(&mut self, each: &mut impl FnMut(&str, Kind)) {
        if self.of_signs {
            signs(&self.term, each);
        } else {
            let ending = self.apostrophe.filter(|at| ENDINGS.contains(&&self.term[*at..]));
            let word = &self.term[..ending.unwrap_or(self.term.len())];
            let end = word.char_indices().nth(MAX_TERM).map_or(word.len(), |(at, _)| at);
            if end > 0 {
                each(&word[..end], Kind::Word);
            }
        }
        *self = Self { term: std::mem::take(&mut self.term), ..Self::default() };
        self.term.clear();
    }
}

fn signs(run: &str, each: &mut impl FnMut(&str, Kind)) {
    let starts: Vec<usize> = run.char_indices().map(|(at, _)| at).chain([run.len()]).collect();
    let kind = if starts.len() == 2 { Kind::Lone } else { Kind::Sign };
    for (at, bounds) in starts.windows(2).enumerate() {
        each(&run[bounds[0]..bounds[1]], kind);
        if let Some(end) = starts.get(at + 2) {
            each(&run[bounds[0]..*end], Kind::Pair);
        }
    }
}

fn is_apostrophe(c: char) -> bool {
    matches!(c, '\'' | '’' | 'ʼ')
}

/// The words of `text` as they are written, in order; pairs of signs count as words.
pub fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    pieces(text, |piece, kind| {
        if kind != Kind::Sign {
            words.push(piece.to_owned());
        }
    });
    words
}

/// The length of `text` in words; a sign counts as one.
pub fn length(text: &str) -> u32 {
    let mut length = 0;
    pieces(text, |_, kind| length += u32::from(kind != Kind::Pair));
    length
}

/// The terms under which a part of an entry is found, as the index takes them.
pub fn index(text: &str, at: Timestamp, speaker: Option<&str>) -> String {
    let mut terms = BTreeSet::new();
    pieces(text, |piece, kind| {
        terms.insert(if kind == Kind::Word { stem(piece) } else { piece.to_owned() });
    });
    terms.extend(dates(at));
    terms.extend(speaker.iter().flat_map(|name| by(name)));
    Vec::from_iter(terms).join(" ")
}

/// How often each of `terms` stands in `text`.
pub fn count(text: &str, terms: &[String]) -> Vec<u32> {
    let mut counts = vec![0; terms.len()];
    pieces(text, |piece, kind| {
        // Stems keep the first letter, so most words need not be stemmed.
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

/// The terms of a day: its year, month, weekday and number.
pub fn dates(at: Timestamp) -> [String; 4] {
    let day = i64::try_from(at.0).ok().and_then(DateTime::<Utc>::from_timestamp_millis).unwrap_or_default();
    let month = MONTHS[day.month0() as usize % MONTHS.len()];
    let weekday = DAYS[day.weekday().num_days_from_monday() as usize % DAYS.len()];
    [on(&day.year().to_string()), on(month), on(weekday), on(&day.day().to_string())]
}

/// The terms of a speaker: one for each word of the name.
pub fn by(name: &str) -> Vec<String> {
    words(name).iter().take(MAX_NAME_WORDS).map(|word| by_word(word)).collect()
}

/// The term of a speaker whose name has this word.
pub fn by_word(word: &str) -> String {
    format!("by_{word}")
}

/// The term of a year, month, weekday or day.
pub fn on(word: &str) -> String {
    format!("on_{word}")
}

/// The months, as texts name them.
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
/// The days of the week, as texts name them.
pub const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_folded() {
        assert_eq!(
            words("Caroline's  CAFÉ, don’t: 8th_of 'May'!"),
            ["caroline", "cafe", "dont", "8th", "of", "may"]
        );
        assert_eq!(words("the boys' rock'n'roll 's I'd"), ["the", "boys", "rocknroll", "s", "i"]);
    }

    #[test]
    fn signs_make_pairs() {
        assert_eq!(words("東京都 is 大 in日本"), ["東京", "京都", "is", "大", "in", "日本"]);
        assert_eq!(index("東京a", Timestamp(0), None), "a on_1 on_1970 on_january on_thursday 京 東 東京");
        assert_eq!(length("東京都 is"), 4);
    }

    #[test]
    fn a_row_is_found_by_stem_day_and_speaker() {
        let at = Timestamp::parse("2023-05-08T13:56:00Z").unwrap();
        assert_eq!(
            index("She painted, he paints", at, Some("Ana Luz")),
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
        fn any_text_gives_terms_that_a_query_language_cannot_misread(text in "\\PC{0,200}") {
            for term in index(&text, Timestamp(0), Some(&text)).split(' ') {
                prop_assert!(!term.is_empty() && term.chars().count() <= 2 * MAX_TERM + 3, "{term:?}");
                let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || !c.is_ascii();
                prop_assert!(term.chars().all(plain), "{term:?}");
                prop_assert!(!term.contains(char::is_whitespace));
            }
        }

        #[test]
        fn what_is_asked_is_what_was_stored(text in "(\\PC{0,100}|[a-zé' 日本語한국]{0,100})") {
            let stored = index(&text, Timestamp(0), None);
            let stored: Vec<&str> = stored.split(' ').collect();
            for word in words(&text) {
                let term = stem(&word);
                prop_assert!(stored.contains(&term.as_str()), "{word:?}");
                prop_assert!(count(&text, &[term])[0] > 0);
            }
        }
    }
}
