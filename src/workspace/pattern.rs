//! Regular expressions for lines, in time linear in the text whatever the expression is.
//!
//! Linear still means each character times each part of the expression, so searches are also bounded in that.
//! The engine is a small one: `\w`, `\d`, `\s` and `\b` are about ASCII, and there is no `\p{…}`.

#[cfg(test)]
mod tests;

use regex_lite::{Regex, RegexBuilder};
use std::borrow::Cow;

/// Smallest size that is told from smaller ones, in bytes, and the most that an expression may take:
/// counted repetitions take much.
const SIZES: (usize, usize) = (256, 64 << 10);
/// How deep groups may stand in each other.
const MAX_DEPTH: u32 = 32;

/// An expression, ready to look for.
#[derive(Debug)]
pub struct Pattern {
    regex: Regex,
    /// Up to twice the bytes that the expression takes.
    size: u64,
    ignore_case: bool,
}

/// How much searches may do together: bytes of text times bytes of the expression.
pub struct Work {
    /// How much is left.
    pub left: u64,
}

/// A search would do more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuch;

impl Pattern {
    /// Reads an expression.
    ///
    /// # Errors
    /// What is wrong with it, for whoever wrote it.
    pub fn parse(text: &str, ignore_case: bool) -> Result<Self, String> {
        let text = if ignore_case { lower(text) } else { text.into() };
        let mut size = SIZES.0;
        loop {
            let mut builder = RegexBuilder::new(&text);
            builder.case_insensitive(ignore_case).size_limit(size).nest_limit(MAX_DEPTH);
            match builder.build() {
                Ok(regex) => return Ok(Self { regex, size: size as u64, ignore_case }),
                Err(error) if !error.to_string().contains("size limit") => return Err(error.to_string()),
                Err(_) if size >= SIZES.1 => return Err("it repeats too much".into()),
                Err(_) => size *= 2,
            }
        }
    }

    /// Where it stands first in a line.
    ///
    /// # Errors
    /// When there is not enough work left for the line.
    pub fn find(&self, line: &str, work: &mut Work) -> Result<Option<usize>, TooMuch> {
        let needed = (line.len() as u64 + 1).saturating_mul(self.size);
        work.left = work.left.checked_sub(needed).ok_or(TooMuch)?;
        let line = if self.ignore_case { lower(line) } else { line.into() };
        Ok(self.regex.find(&line).map(|found| found.start()))
    }
}

/// The text with its letters beyond ASCII in lower case, which the engine knows nothing about; each stays
/// as long as it is, so that places stay where they are.
fn lower(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return text.into();
    }
    let letter = |c: char| {
        let mut lower = c.to_lowercase();
        match (lower.next(), lower.next()) {
            (Some(small), None) if !c.is_ascii() && small.len_utf8() == c.len_utf8() => small,
            _ => c,
        }
    };
    text.chars().map(letter).collect::<String>().into()
}
