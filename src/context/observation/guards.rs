//! Answers of a model that has lost its way: they are thrown away.

use std::collections::BTreeMap;

/// Windows that are compared, in bytes.
const WINDOW: usize = 200;
/// Percentage of equal windows that is too much.
const MAX_EQUAL: usize = 40;
/// Longest line, in bytes.
const MAX_LINE: usize = 50_000;
/// Lines of so many bytes are compared; shorter ones may well be equal.
const LONG_LINE: usize = 40;
/// Shorter texts, in bytes, cannot have lost their way far.
const LEAST: usize = 1_000;
/// Base of the hash of a window: any odd number.
const BASE: u64 = 0x0100_0000_01b3;

/// Whether a text repeats itself as no notes do.
pub fn is_degenerate(text: &str) -> bool {
    text.len() >= LEAST
        && (text.lines().any(|line| line.len() > MAX_LINE) || repeats_windows(text) || repeats_lines(text))
}

/// Whether too many windows of the text, one from each byte on, stand in it earlier too.
fn repeats_windows(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (mut hash, mut first) = (0_u64, 1_u64);
    let mut hashes = Vec::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        hash = hash.wrapping_mul(BASE).wrapping_add(u64::from(*byte) + 1);
        match at.checked_sub(WINDOW).and_then(|gone| bytes.get(gone)) {
            Some(gone) => hash = hash.wrapping_sub((u64::from(*gone) + 1).wrapping_mul(first)),
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

/// Whether one long line is more than half of all long lines.
fn repeats_lines(text: &str) -> bool {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all = 0;
    for line in text.lines().map(str::trim).filter(|line| line.len() >= LONG_LINE) {
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
            .map(|n| format!("* 🔴 (14:{:02}) User told of trip number {n} to Oslo\n", n % 60))
            .collect()
    }

    #[test]
    fn notes_may_be_long_and_alike() {
        for text in [String::new(), "* same\n".repeat(30), notes(10), notes(2_000)] {
            assert!(!is_degenerate(&text), "{}", text.len());
        }
    }

    #[test]
    fn a_loop_is_found_whatever_its_length() {
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
