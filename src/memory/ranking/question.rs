//! What a question asks for: terms, days, and whom it names.

use super::{MAX_DATES, MAX_WORDS};
use crate::memory::{
    stem::stem,
    stop_words::{is_first_person, is_stop_word},
    terms::{self, DAYS, MONTHS},
};
use crate::ports::memory::Statistics;
use std::collections::BTreeMap;

/// A question, analysed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Its words that say something, as they are written.
    words: Vec<String>,
    /// The days that it names.
    dates: Vec<String>,
    /// Who may be named: the word, where there is one, and the speaker's term.
    speakers: Vec<(Option<String>, String)>,
}

impl Question {
    /// Reads a question. Of a long one only the beginning counts.
    pub fn read(text: &str) -> Self {
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
            words.iter().map(|word| (Some(word.clone()), terms::by_word(word))).collect();
        if all.iter().any(|word| is_first_person(word)) {
            speakers.push((None, terms::by_word("user")));
        }
        Self { words, dates, speakers }
    }

    /// The terms whose frequencies [`Question::weigh`] needs: at most [`super::MAX_ASKED`].
    pub fn asked(&self) -> Vec<String> {
        let words = self.words.iter().map(|word| stem(word));
        let speakers = self.speakers.iter().map(|(_, term)| term.clone());
        distinct(words.chain(self.dates.iter().cloned()).chain(speakers)).collect()
    }

    /// Says what the question comes down to in a collection with these numbers, which are those of
    /// [`Question::asked`].
    pub fn weigh(&self, statistics: &Statistics) -> Weighed {
        let asked = self.asked();
        let frequency: BTreeMap<&str, u64> =
            asked.iter().map(String::as_str).zip(statistics.frequency.iter().copied()).collect();
        let known = |term: &String| frequency.get(term.as_str()).is_some_and(|count| *count > 0);
        let named: Vec<_> = self.speakers.iter().filter(|(_, term)| known(term)).cloned().collect();
        let is_name = |word: &&String| named.iter().any(|(name, _)| name.as_ref() == Some(*word));
        // A name picks a speaker. As a word it would find those who talk to or about her.
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
        Weighed {
            terms,
            speakers,
            documents: statistics.documents,
            length: statistics.length,
            groups: statistics.groups,
        }
    }
}

/// Longest question, in bytes.
const MAX_BYTES: usize = 4_000;

/// A question as it is put to one collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Weighed {
    /// Terms that the collection has, rarest first.
    pub terms: Vec<Term>,
    /// Speakers that are named and that it has.
    pub speakers: Vec<Term>,
    /// Parts in the collection.
    pub documents: u64,
    /// The sum of their lengths.
    pub length: u64,
    /// Groups in the collection.
    pub groups: u64,
}

/// A term and in how many parts it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The term.
    pub text: String,
    /// In how many parts of the collection it stands.
    pub frequency: u64,
}

fn distinct<T: Clone + Ord>(items: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let mut seen = std::collections::BTreeSet::new();
    items.filter(move |item| seen.insert(item.clone()))
}

/// The terms of the days that are named: years, months, weekdays; days of the month beside a month.
fn dates(words: &[String]) -> Vec<String> {
    let month = |word: &str| {
        let full = |m: &&&str| **m == word || word.len() >= 3 && word.len() <= 4 && m.starts_with(word);
        MONTHS.iter().find(full).copied()
    };
    let year =
        |word: &str| word.len() == 4 && (word.starts_with("19") || word.starts_with("20")) && digits(word);
    let mut found = Vec::new();
    let mut numbers = Vec::new();
    let mut read = 0;
    for (at, word) in words.iter().enumerate() {
        let next = |n: usize| words.get(at + n).filter(|word| word.len() <= 2 && digits(word));
        if at < read {
            continue;
        } else if year(word) {
            found.push(word.clone());
            // 2023-05-08
            if let (Some(m), Some(d)) = (next(1), next(2)) {
                let name = m.parse::<usize>().ok().and_then(|m| MONTHS.get(m.wrapping_sub(1)));
                found.extend(name.map(|name| (*name).to_owned()));
                numbers.extend(day(d));
                read = at + 3;
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
    distinct(found.into_iter()).take(MAX_DATES).map(|word| terms::on(&word)).collect()
}

/// Whether `may` is a month: more often it is a verb.
fn is_month(before: Option<&String>, behind: Option<&String>) -> bool {
    const LEADS: [&str; 11] =
        ["by", "during", "early", "in", "last", "late", "next", "of", "since", "this", "until"];
    before.is_some_and(|word| LEADS.contains(&word.as_str()) || day(word).is_some())
        || behind.is_some_and(|word| day(word).is_some() || word.len() == 4 && digits(word))
}

fn digits(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_digit())
}

/// The day of a month: `8`, `08` or `8th`.
fn day(word: &str) -> Option<String> {
    let bare = ["st", "nd", "rd", "th"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
    let number: u8 = bare.parse().ok().filter(|_| digits(bare))?;
    (1..=31).contains(&number).then(|| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weighed(text: &str, counts: &[(&str, u64)]) -> (Vec<String>, Vec<String>) {
        let question = Question::read(text);
        let count = |term: &String| counts.iter().find(|(t, _)| t == term).map_or(0, |(_, n)| *n);
        let frequency = question.asked().iter().map(count).collect();
        let weighed = question.weigh(&Statistics { documents: 100, length: 900, groups: 5, frequency });
        let texts = |terms: Vec<Term>| terms.into_iter().map(|term| term.text).collect();
        (texts(weighed.terms), texts(weighed.speakers))
    }

    #[test]
    fn stop_words_and_unknown_words_go_and_the_rarest_comes_first() {
        let (terms, speakers) =
            weighed("What did she paint in the garden shed?", &[("paint", 9), ("shed", 2)]);
        assert_eq!((terms, speakers), (vec!["shed".into(), "paint".into()], vec![]));
    }

    #[test]
    fn a_name_picks_a_speaker_and_is_no_word() {
        let counts = [("by_ana", 50), ("ana", 20), ("paint", 9), ("by_user", 3)];
        assert_eq!(weighed("Ana paints?", &counts), (vec!["paint".into()], vec!["by_ana".into()]));
        assert_eq!(weighed("my paintings", &counts), (vec!["paint".into()], vec!["by_user".into()]));
        assert_eq!(weighed("Ana", &counts).0, ["ana", "by_ana"]);
    }

    #[test]
    fn a_question_of_stop_words_is_asked_as_it_stands() {
        assert_eq!(weighed("who are you", &[("who", 3), ("you", 2)]).0, ["you", "who"]);
        assert_eq!(weighed("  ?!", &[]), (vec![], vec![]));
    }

    #[test]
    fn days_are_read() {
        let read = |text: &str| dates(&terms::words(text)).join(" ");
        assert_eq!(read("on May 8th, 2023"), "on_may on_2023 on_8");
        assert_eq!(read("since 2023-05-08"), "on_2023 on_may on_8");
        assert_eq!(read("May I ask 3 things in June?"), "on_june on_3");
        assert_eq!(read("you may go"), "");
        assert_eq!(read("Friday, 12 Sept"), "on_friday on_september on_12");
        assert_eq!(read("the 8th of them, 2024"), "on_2024");
    }
}
