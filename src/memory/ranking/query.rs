//! Parses queries into terms, dates and names.

use super::{MAX_DATES, MAX_WORDS};
use crate::memory::{
    stem::stem,
    stop_words::{is_first_person, is_stop_word},
    terms::{self, DAYS, MONTHS},
};
use crate::ports::memory::Statistics;
use std::collections::BTreeMap;

/// A parsed query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedQuery {
    /// Words that are not stop words, not stemmed.
    words: Vec<String>,
    /// Date terms.
    dates: Vec<String>,
    /// Possible speakers: the word of the query, if there is one, and the speaker term.
    speakers: Vec<(Option<String>, String)>,
}

impl ParsedQuery {
    /// Parses a query. Only the start of a long query counts.
    pub fn parse(text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(MAX_BYTES)];
        let all = terms::words(text);
        let mut words: Vec<String> =
            distinct(all.iter().filter(|word| !is_stop_word(word)).cloned()).collect();
        let dates = dates(&all);
        if words.is_empty() && dates.is_empty() {
            words = distinct(all.iter().cloned()).collect();
        }
        words.truncate(MAX_WORDS);
        let mut speakers: Vec<_> =
            words.iter().map(|word| (Some(word.clone()), terms::speaker_term(word))).collect();
        if all.iter().any(|word| is_first_person(word)) {
            speakers.push((None, terms::speaker_term("user")));
        }
        Self { words, dates, speakers }
    }

    /// Returns the terms whose frequencies [`ParsedQuery::weighted_by`] needs: at most [`super::MAX_TERMS`].
    pub fn terms_needed(&self) -> Vec<String> {
        let words = self.words.iter().map(|word| stem(word));
        let speakers = self.speakers.iter().map(|(_, term)| term.clone());
        distinct(words.chain(self.dates.iter().cloned()).chain(speakers)).collect()
    }

    /// Combines the query with the statistics of a collection for the terms of [`ParsedQuery::terms_needed`].
    pub fn weighted_by(&self, statistics: &Statistics) -> WeightedQuery {
        let terms_needed = self.terms_needed();
        let frequency: BTreeMap<&str, u64> =
            terms_needed.iter().map(String::as_str).zip(statistics.frequency.iter().copied()).collect();
        let known = |term: &String| frequency.get(term.as_str()).is_some_and(|count| *count > 0);
        let named: Vec<_> = self.speakers.iter().filter(|(_, term)| known(term)).cloned().collect();
        let is_name = |word: &&String| named.iter().any(|(name, _)| name.as_ref() == Some(*word));
        // A known name selects a speaker. As a word it would find entries that address or mention the person.
        let mut picked: Vec<String> =
            self.words.iter().filter(|word| !is_name(word)).map(|word| stem(word)).collect();
        picked.extend(self.dates.iter().cloned());
        picked.retain(&known);
        if picked.is_empty() {
            picked.extend(self.words.iter().map(|word| stem(word)));
            picked.extend(named.iter().map(|(_, term)| term.clone()));
            picked.retain(&known);
        }
        let count = |term: String| Term {
            frequency: frequency.get(term.as_str()).copied().unwrap_or_default(),
            text: term,
        };
        let mut terms: Vec<Term> = distinct(picked.into_iter()).map(count).collect();
        terms.sort_by(|a, b| (a.frequency, &a.text).cmp(&(b.frequency, &b.text)));
        let speakers = distinct(named.into_iter().map(|(_, term)| term)).map(count).collect();
        WeightedQuery {
            terms,
            speakers,
            documents: statistics.documents,
            length: statistics.length,
            groups: statistics.groups,
        }
    }
}

/// Maximum length of a query, in bytes.
const MAX_BYTES: usize = 4_000;

/// A query with the statistics of a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightedQuery {
    /// Terms that occur in the collection, rarest first.
    pub terms: Vec<Term>,
    /// Named speakers that occur in the collection.
    pub speakers: Vec<Term>,
    /// Number of parts in the collection.
    pub documents: u64,
    /// Sum of the lengths of all parts.
    pub length: u64,
    /// Number of groups in the collection.
    pub groups: u64,
}

/// A term and its frequency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The term.
    pub text: String,
    /// Number of parts of the collection that contain the term.
    pub frequency: u64,
}

fn distinct<T: Clone + Ord>(items: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let mut seen = std::collections::BTreeSet::new();
    items.filter(move |item| seen.insert(item.clone()))
}

/// Returns the terms of the dates in a query: years, months, weekdays, and days of the month if there is a
/// month.
fn dates(words: &[String]) -> Vec<String> {
    let month = |word: &str| {
        let full = |m: &&&str| **m == word || word.len() >= 3 && word.len() <= 4 && m.starts_with(word);
        MONTHS.iter().find(full).copied()
    };
    let year =
        |word: &str| word.len() == 4 && (word.starts_with("19") || word.starts_with("20")) && digits(word);
    let mut found = Vec::new();
    let mut numbers = Vec::new();
    let mut skip_to = 0;
    for (at, word) in words.iter().enumerate() {
        let next = |n: usize| words.get(at + n).filter(|word| word.len() <= 2 && digits(word));
        if at < skip_to {
            continue;
        } else if year(word) {
            found.push(word.clone());
            // 2023-05-08
            if let (Some(m), Some(d)) = (next(1), next(2)) {
                let name = m.parse::<usize>().ok().and_then(|m| MONTHS.get(m.wrapping_sub(1)));
                found.extend(name.map(|name| (*name).to_owned()));
                numbers.extend(day(d));
                skip_to = at + 3;
            }
        } else if DAYS.contains(&word.as_str()) {
            found.push(word.clone());
        } else if let Some(name) = month(word)
            && (name != "may" || is_month(at.checked_sub(1).and_then(|at| words.get(at)), words.get(at + 1)))
        {
            found.push(name.to_owned());
        } else {
            numbers.extend(day(word));
        }
    }
    if found.iter().any(|word| MONTHS.contains(&word.as_str())) {
        found.extend(numbers);
    }
    distinct(found.into_iter()).take(MAX_DATES).map(|word| terms::date_term(&word)).collect()
}

/// Returns whether `may` is a month here. More often it is a verb.
fn is_month(before: Option<&String>, after: Option<&String>) -> bool {
    const LEADS: [&str; 11] =
        ["by", "during", "early", "in", "last", "late", "next", "of", "since", "this", "until"];
    before.is_some_and(|word| LEADS.contains(&word.as_str()) || day(word).is_some())
        || after.is_some_and(|word| day(word).is_some() || word.len() == 4 && digits(word))
}

fn digits(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_digit())
}

/// Parses the day of a month: `8`, `08` or `8th`.
fn day(word: &str) -> Option<String> {
    let bare = ["st", "nd", "rd", "th"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
    let number: u8 = bare.parse().ok().filter(|_| digits(bare))?;
    (1..=31).contains(&number).then(|| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weighted(text: &str, counts: &[(&str, u64)]) -> (Vec<String>, Vec<String>) {
        let parsed = ParsedQuery::parse(text);
        let count = |term: &String| counts.iter().find(|(t, _)| t == term).map_or(0, |(_, n)| *n);
        let frequency = parsed.terms_needed().iter().map(count).collect();
        let weighted = parsed.weighted_by(&Statistics { documents: 100, length: 900, groups: 5, frequency });
        let texts = |terms: Vec<Term>| terms.into_iter().map(|term| term.text).collect();
        (texts(weighted.terms), texts(weighted.speakers))
    }

    #[test]
    fn stop_words_and_unknown_words_are_dropped_and_the_rarest_comes_first() {
        let (terms, speakers) =
            weighted("What did she paint in the garden shed?", &[("paint", 9), ("shed", 2)]);
        assert_eq!((terms, speakers), (vec!["shed".into(), "paint".into()], vec![]));
    }

    #[test]
    fn a_name_selects_a_speaker_instead_of_a_word() {
        let counts = [("by_ana", 50), ("ana", 20), ("paint", 9), ("by_user", 3)];
        assert_eq!(weighted("Ana paints?", &counts), (vec!["paint".into()], vec!["by_ana".into()]));
        assert_eq!(weighted("my paintings", &counts), (vec!["paint".into()], vec!["by_user".into()]));
        assert_eq!(weighted("Ana", &counts).0, ["ana", "by_ana"]);
    }

    #[test]
    fn a_query_of_stop_words_keeps_them() {
        assert_eq!(weighted("who are you", &[("who", 3), ("you", 2)]).0, ["you", "who"]);
        assert_eq!(weighted("  ?!", &[]), (vec![], vec![]));
    }

    #[test]
    fn dates_are_parsed() {
        let parse = |text: &str| dates(&terms::words(text)).join(" ");
        assert_eq!(parse("on May 8th, 2023"), "on_may on_2023 on_8");
        assert_eq!(parse("since 2023-05-08"), "on_2023 on_may on_8");
        assert_eq!(parse("May I ask 3 things in June?"), "on_june on_3");
        assert_eq!(parse("you may go"), "");
        assert_eq!(parse("Friday, 12 Sept"), "on_friday on_september on_12");
        assert_eq!(parse("the 8th of them, 2024"), "on_2024");
    }
}
