//! Patterns of paths: the one place that says which are allowed.

/// Patterns that one pattern with braces may stand for.
const MAX_ALTERNATIVES: u64 = 1_000;

/// Checks a pattern with `*`, `**`, `?`, `[a-z]` and `{a,b}`.
///
/// # Errors
/// What is wrong with it, for whoever wrote it.
pub fn check(pattern: &str) -> Result<(), String> {
    fast_glob::validate(pattern).map_err(|fault| fault.to_string())?;
    match alternatives(pattern) > MAX_ALTERNATIVES {
        true => Err(format!("its braces stand for more than {MAX_ALTERNATIVES} patterns: use fewer of them")),
        false => Ok(()),
    }
}

/// How many patterns the braces stand for: groups behind each other multiply.
fn alternatives(pattern: &str) -> u64 {
    // Of this group, and of those around it: the patterns of the alternatives before, and of this one.
    let (mut before, mut now, mut around) = (0_u64, 1_u64, Vec::new());
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '[' => {
                // In a set, braces and commas are characters; so is a bracket that comes first.
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
