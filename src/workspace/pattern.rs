//! Regular expressions for lines, matched in time linear in the text.
//!
//! The time is still proportional to the product of text and expression size, so searches also have a work
//! budget. The engine is small: `\w`, `\d`, `\s` and `\b` cover ASCII only, and `\p{…}` is not supported.

#[cfg(test)]
mod tests;

use crate::types::Invalid;
use regex_lite::{Regex, RegexBuilder};
use std::borrow::Cow;

/// Smallest and largest size limit of a compiled expression, in bytes. Counted repetitions need much space.
const SIZES: (usize, usize) = (256, 64 << 10);
/// Maximum nesting of groups.
const MAX_DEPTH: u32 = 32;

/// A compiled expression.
#[derive(Debug)]
pub struct Pattern {
    regex: Regex,
    /// Size of the compiled expression in bytes, rounded up by less than a factor of two.
    size: u64,
    ignore_case: bool,
}

/// Work budget of a search: bytes of text times bytes of the compiled expression.
pub struct WorkBudget {
    /// Remaining work.
    pub left: u64,
}

/// The work budget of a search is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkExceeded;

impl Pattern {
    /// Compiles an expression.
    ///
    /// # Errors
    /// Returns what is wrong with the expression.
    pub fn parse(text: &str, ignore_case: bool) -> Result<Self, Invalid> {
        let text = if ignore_case { lower(text) } else { text.into() };
        let mut size = SIZES.0;
        loop {
            let mut builder = RegexBuilder::new(&text);
            builder.case_insensitive(ignore_case).size_limit(size).nest_limit(MAX_DEPTH);
            match builder.build() {
                Ok(regex) => return Ok(Self { regex, size: size as u64, ignore_case }),
                Err(error) if !error.to_string().contains("size limit") => {
                    return Err(error.to_string().into());
                }
                Err(_) if size >= SIZES.1 => return Err("its repetitions are too large".into()),
                Err(_) => size *= 2,
            }
        }
    }

    /// Returns the byte offset of the first match in a line.
    ///
    /// # Errors
    /// Returns an error when the remaining work does not suffice for the line.
    pub fn find(&self, line: &str, work: &mut WorkBudget) -> Result<Option<usize>, WorkExceeded> {
        let needed = (line.len() as u64 + 1).saturating_mul(self.size);
        work.left = work.left.checked_sub(needed).ok_or(WorkExceeded)?;
        let line = if self.ignore_case { lower(line) } else { line.into() };
        Ok(self.regex.find(&line).map(|found| found.start()))
    }
}

/// Lowercases non-ASCII letters, whose case the engine cannot ignore. Keeps letters whose lower-case form has
/// another length, so that byte offsets stay valid.
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
