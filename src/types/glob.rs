//! Validation of glob patterns.

use super::Invalid;

/// Maximum number of patterns that the braces of one pattern may expand to.
const MAX_ALTERNATIVES: u64 = 1_000;

/// Checks a pattern with `*`, `**`, `?`, `[a-z]` and `{a,b}`.
///
/// # Errors
/// The pattern is malformed or expands to too many patterns. The message is for its author.
pub fn check(pattern: &str) -> Result<(), Invalid> {
    fast_glob::validate(pattern).map_err(|fault| fault.to_string())?;
    match alternatives(pattern) > MAX_ALTERNATIVES {
        true => Err(Invalid(format!(
            "its braces expand to more than {MAX_ALTERNATIVES} patterns; use fewer braces"
        ))),
        false => Ok(()),
    }
}

/// Returns whether patterns admit a text: none of `deny` matches, and one of `allow` does if there are any.
pub fn admits(allow: &[String], deny: &[String], text: &str) -> bool {
    let is_in = |patterns: &[String]| patterns.iter().any(|pattern| fast_glob::glob_match(pattern, text));
    !is_in(deny) && (allow.is_empty() || is_in(allow))
}

/// Counts the patterns that the braces of a pattern expand to. The counts of adjacent groups multiply.
pub fn alternatives(pattern: &str) -> u64 {
    // Per group: the count of its finished alternatives and of the current one. `around` holds the outer
    // groups.
    let (mut before, mut now, mut around) = (0_u64, 1_u64, Vec::new());
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '[' => {
                // Inside a set, braces and commas are literal; so is a bracket in first position.
                chars.next_if(|c| "^!".contains(*c));
                let mut is_first = true;
                while let Some(c) = chars.next() {
                    match c {
                        ']' if !is_first => break,
                        '\\' => drop(chars.next()),
                        _ => {}
                    }
                    is_first = false;
                }
            }
            '{' => {
                around.push((before, now));
                (before, now) = (0, 1);
            }
            ',' if !around.is_empty() => (before, now) = (before.saturating_add(now), 1),
            '}' => {
                if let Some((outer, factor)) = around.pop() {
                    (before, now) = (outer, before.saturating_add(now).saturating_mul(factor));
                }
            }
            _ => {}
        }
    }
    now
}
