//! Regular expressions for lines, matched in time linear in the text and in steps of bounded work.
//!
//! The engine is the lazy DFA of the crate `regex`. It examines each byte once, and its state between two
//! bytes is a number, so a search can pause anywhere in a line, however long the line is. Most transitions
//! between states are known; computing a new one takes a thousand times longer. Some expressions need a new
//! one for almost every byte, so new transitions are counted as work of their own.
//!
//! `\w`, `\d`, `\s` and `\b` cover ASCII only, because tables of Unicode's classes make expressions and
//! Worker a lot larger. `\p{…}` is not supported.

#[cfg(test)]
mod tests;

use super::pace::{Pace, WorkExceeded};
use crate::types::Invalid;
use regex_automata::{
    Anchored,
    hybrid::{
        LazyStateID,
        dfa::{Cache, DFA},
    },
    nfa::thompson::{self, WhichCaptures},
    util::start,
};
use regex_syntax::{Error, ParserBuilder};
use std::mem;

/// Maximum size of a compiled expression, in bytes. Counted repetitions need much space.
const MAX_SIZE: usize = 64 << 10;
/// Memory for the states and transitions of a search, in bytes. They are discarded when it is full.
const CACHE_SIZE: usize = 256 << 10;
/// Maximum nesting of groups.
const MAX_DEPTH: u32 = 32;
/// Work of starting a line.
const LINE_WORK: u64 = 16;
/// Work between two calls of [`Pace::spend`], much less than a slice.
const STEP: u64 = 1 << 16;

/// A compiled expression.
#[derive(Debug)]
pub struct Pattern {
    dfa: DFA,
    /// Work of computing a transition.
    transition_work: u64,
}

impl Pattern {
    /// Compiles a regular expression.
    ///
    /// # Errors
    /// Returns what is wrong with the expression.
    pub fn regex(text: &str, ignore_case: bool) -> Result<Self, Invalid> {
        let mut parser = ParserBuilder::new().case_insensitive(ignore_case).nest_limit(MAX_DEPTH).build();
        let parsed = parser.parse(&with_ascii_classes(text)?).map_err(|error| match error {
            Error::Parse(error) => error.kind().to_string(),
            Error::Translate(error) => error.kind().to_string(),
            error => error.to_string(),
        })?;
        let limits =
            thompson::Config::new().nfa_size_limit(Some(MAX_SIZE)).which_captures(WhichCaptures::None);
        let nfa = thompson::Compiler::new().configure(limits).build_from_hir(&parsed);
        let nfa = nfa.map_err(|error| match error.size_limit() {
            Some(_) => "its repetitions are too large".to_owned(),
            None => error.to_string(),
        })?;
        // Measured: it grows with the number of states that the expression can be in at the same time.
        let transition_work = 512 + nfa.memory_usage() as u64 / 4;
        // A cache must hold a few states of any expression; the limit of the size bounds these.
        let cache = DFA::config().cache_capacity(CACHE_SIZE).skip_cache_capacity_check(true);
        let dfa = DFA::builder().configure(cache).build_from_nfa(nfa);
        // Of the errors, only this one is possible with these settings.
        let dfa = dfa.map_err(|_| r"boundaries such as \< are not supported; use \b")?;
        Ok(Self { dfa, transition_work })
    }

    /// Compiles a literal text.
    ///
    /// # Errors
    /// Returns an error when the text is too long.
    pub fn literal(text: &str, ignore_case: bool) -> Result<Self, Invalid> {
        Self::regex(&regex_syntax::escape(text), ignore_case)
    }

    /// Starts a search.
    pub fn matcher(&self) -> Matcher<'_> {
        Matcher { pattern: self, cache: self.dfa.create_cache() }
    }
}

/// A search for a pattern, with the transitions that it has computed so far.
pub struct Matcher<'a> {
    pattern: &'a Pattern,
    cache: Cache,
}

/// A position in a line.
struct Position {
    state: LazyStateID,
    at: usize,
}

/// Where a step ended.
enum Step {
    /// At the end of a match.
    Match(usize),
    /// At the end of the line, or where no match can follow.
    NoMatch,
    /// Within the line.
    Paused(Position),
}

impl Matcher<'_> {
    /// Returns the byte offset in a line at which the first match is certain: the end of the match, or of
    /// its shortest form.
    ///
    /// # Errors
    /// The work exceeds a limit.
    pub async fn find(&mut self, line: &str, pace: &mut Pace) -> Result<Option<usize>, WorkExceeded> {
        let mut work = LINE_WORK;
        let start = start::Config::new().anchored(Anchored::No);
        // No transition fails, because the cache may be cleared any number of times.
        let start = self.pattern.dfa.start_state(&mut self.cache, &start);
        let mut position = Position { state: start.map_err(|_| WorkExceeded::Search)?, at: 0 };
        loop {
            let step = self.step(line.as_bytes(), position, &mut work)?;
            pace.spend(mem::take(&mut work)).await?;
            match step {
                Step::Match(at) => return Ok(Some(at)),
                Step::NoMatch => return Ok(None),
                Step::Paused(reached) => position = reached,
            }
        }
    }

    /// Examines a part of a line, and adds the work to `work`. Does not await, so that the loop is fast.
    fn step(&mut self, line: &[u8], from: Position, work: &mut u64) -> Result<Step, WorkExceeded> {
        let (Pattern { dfa, transition_work }, cache) = (self.pattern, &mut self.cache);
        let Position { mut state, at: from } = from;
        for (at, byte) in line.iter().enumerate().skip(from) {
            if *work >= STEP {
                return Ok(Step::Paused(Position { state, at }));
            }
            *work += 1;
            let mut next = dfa.next_state_untagged(cache, state, *byte);
            if next.is_tagged() {
                if next.is_unknown() {
                    *work += transition_work;
                    next = dfa.next_state(cache, state, *byte).map_err(|_| WorkExceeded::Search)?;
                }
                // Matches are recognized one byte after their end.
                if next.is_match() {
                    return Ok(Step::Match(at));
                }
                if next.is_dead() {
                    return Ok(Step::NoMatch);
                }
            }
            state = next;
        }
        let end = dfa.next_eoi_state(cache, state).map_err(|_| WorkExceeded::Search)?;
        Ok(if end.is_match() { Step::Match(line.len()) } else { Step::NoMatch })
    }
}

/// Replaces the classes of words, digits and spaces, and the boundaries of words, by those of ASCII.
///
/// # Errors
/// Returns an error when the expression has other classes of Unicode.
fn with_ascii_classes(pattern: &str) -> Result<String, Invalid> {
    let mut replaced = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            replaced.push(c);
            continue;
        }
        match chars.next() {
            Some('w') => replaced.push_str("[[:word:]]"),
            Some('W') => replaced.push_str("[[:^word:]]"),
            Some('d') => replaced.push_str("[[:digit:]]"),
            Some('D') => replaced.push_str("[[:^digit:]]"),
            Some('s') => replaced.push_str("[[:space:]]"),
            Some('S') => replaced.push_str("[[:^space:]]"),
            Some('b') => replaced.push_str(r"(?-u:\b)"),
            Some('B') => replaced.push_str(r"(?-u:\B)"),
            Some('p' | 'P') => {
                return Err(r"classes such as \p{L} are not supported; list the characters".into());
            }
            other => {
                replaced.push('\\');
                replaced.extend(other);
            }
        }
    }
    Ok(replaced)
}
