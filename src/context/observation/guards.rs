//! Detects degenerate responses of a model, such as endless repetition.

use std::collections::BTreeMap;

/// Length of the windows that are compared, in bytes.
const WINDOW: usize = 200;
/// Maximum percentage of repeated windows.
const MAX_EQUAL: usize = 40;
/// Maximum length of a line, in bytes.
const MAX_LINE: usize = 50_000;
/// Minimum length of lines that are compared, in bytes. Shorter lines may legitimately repeat.
const MIN_LINE: usize = 40;
/// Minimum length of a text that is checked, in bytes.
const MIN_TEXT: usize = 1_000;
/// Base of the rolling hash: any odd number.
const BASE: u64 = 0x0100_0000_01b3;

/// Returns whether a text repeats itself more than notes do.
pub fn is_degenerate(text: &str) -> bool {
    text.len() >= MIN_TEXT
        && (text.lines().any(|line| line.len() > MAX_LINE) || repeats_windows(text) || repeats_lines(text))
}

/// Returns whether too many windows, one starting at each byte, occur earlier in the text.
fn repeats_windows(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (mut hash, mut first) = (0_u64, 1_u64);
    let mut hashes = Vec::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        hash = hash.wrapping_mul(BASE).wrapping_add(u64::from(*byte) + 1);
        match at.checked_sub(WINDOW).and_then(|leaving| bytes.get(leaving)) {
            Some(leaving) => hash = hash.wrapping_sub((u64::from(*leaving) + 1).wrapping_mul(first)),
            None => first = first.wrapping_mul(BASE),
        }
        if at + 1 >= WINDOW {
            hashes.push(hash);
        }
    }
    let all = hashes.len();
    hashes.sort_unstable();
    hashes.dedup();
    (all - hashes.len()) * 100 > all * MAX_EQUAL
}

/// Returns whether a single line makes up more than half of all long lines.
fn repeats_lines(text: &str) -> bool {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all = 0;
    for line in text.lines().map(str::trim).filter(|line| line.len() >= MIN_LINE) {
        all += 1;
        *counts.entry(line).or_default() += 1;
    }
    all > 3 && counts.values().any(|count| count * 2 > all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(count: usize) -> String {
        (0..count)
            .map(|n| format!("* 🔴 (14:{:02}) User described trip number {n} to Oslo\n", n % 60))
            .collect()
    }

    #[test]
    fn long_and_similar_notes_are_accepted() {
        for text in [String::new(), "* same\n".repeat(30), notes(10), notes(2_000)] {
            assert!(!is_degenerate(&text), "{}", text.len());
        }
    }

    #[test]
    fn loops_of_any_length_are_detected() {
        for period in [1, 7, 37, 199, 200, 333, 1_000] {
            let unit: String = notes(40).chars().filter(char::is_ascii).take(period).collect();
            let text = notes(20) + &unit.repeat(20_000 / period);
            assert!(is_degenerate(&text), "{period}");
        }
        assert!(is_degenerate(&("x".repeat(25_000) + &"y".repeat(25_001))));
        let line = "* 🔴 (14:30) User wants a table of all the trips";
        let often: String =
            (0..60).map(|n| format!("{line}\n{}", if n % 2 == 0 { "" } else { "a\n" })).collect();
        assert!(is_degenerate(&often));
    }
}
