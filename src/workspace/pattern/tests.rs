use super::*;
use pretty_assertions::assert_eq;
use proptest::prelude::*;
use std::time::{Duration, Instant};

const LARGE_BUDGET: u64 = 1 << 30;

fn find(pattern: &str, ignore_case: bool, line: &str) -> Option<usize> {
    let pattern = Pattern::parse(pattern, ignore_case).expect(pattern);
    pattern.find(line, &mut WorkBudget { left: LARGE_BUDGET }).expect("little work")
}

#[test]
fn expressions_find_their_matches() {
    for (pattern, line, at) in [
        ("needle", "hay needle hay", Some(4)),
        ("", "", Some(0)),
        ("^$", "", Some(0)),
        ("^a", "ba", None),
        ("a$", "aba", Some(2)),
        ("fn \\w+\\(", "pub fn find(x)", Some(4)),
        ("\\bcat\\b", "concat cat", Some(7)),
        ("\\d{4}-\\d{2}", "on 2026-11-20", Some(3)),
        ("[^a-c]", "abcd", Some(3)),
        ("[]x-]+", "ab]-x", Some(2)),
        ("colou?r|grey", "a grey wall", Some(2)),
        ("(ab)*c", "ababc", Some(0)),
        ("é.山", "aéx山", Some(1)),
        ("(?:x|y){2}", "axyb", Some(1)),
        ("\\.md", "amd b.md", Some(5)),
    ] {
        assert_eq!(find(pattern, false, line), at, "{pattern} {line}");
    }
    for (pattern, line, at) in [
        ("straße [a-z]+", "die STRAßE NACH", Some(4)),
        ("äö$", "é ÄÖ", Some(3)),
        ("[À-Ö]x", "öX", Some(0)),
        ("\\W[É]", "a É", Some(1)),
        ("İ", "İ", Some(0)),
    ] {
        assert_eq!(find(pattern, true, line), at, "{pattern} {line}");
    }
}

#[test]
fn errors_are_explained() {
    for (pattern, word) in [
        ("(", "closing"),
        (")", "without matching"),
        ("[a", "closing"),
        ("[b-a]", "range"),
        ("a{2", "unclosed"),
        ("a{3,2}", "bigger"),
        ("*a", "repetition"),
        ("\\p{L}", "not supported"),
        ("(?=a)", "not supported"),
        ("(a{100}){100}", "repetitions are too large"),
        (&"(".repeat(100), "nesting"),
    ] {
        let fault = Pattern::parse(pattern, false).expect_err(pattern);
        assert!(fault.0.contains(word), "{pattern}: {fault}");
    }
}

#[test]
fn no_expression_takes_long_to_compile() {
    let begun = Instant::now();
    for pattern in [
        "(){1000}{1000}{1000}{1000}",
        "(?:){1000}{1000}{1000}{1000}",
        "(?:$){1000}{1000}{1000}",
        "(a{0}){1000}{1000}{1000}",
        "(?:(?:)*){4000000000}",
    ] {
        assert!(Pattern::parse(pattern, false).expect_err(pattern).0.contains("repetitions are too large"));
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn work_is_bounded() {
    let slow = Pattern::parse("(x+x+)+y", false).expect("a pattern");
    let line = "x".repeat(10_000);
    assert_eq!(slow.find(&line, &mut WorkBudget { left: LARGE_BUDGET }), Ok(None), "linear");
    // The cost of a character counts the parts of the expression, and the ranges of its sets.
    let cost = |pattern: &str| {
        let mut work = WorkBudget { left: LARGE_BUDGET };
        Pattern::parse(pattern, false).expect(pattern).find(&line, &mut work).expect("little work");
        LARGE_BUDGET - work.left
    };
    assert!(cost("(x*x*){40}y") > 10 * cost("x*y"));
    assert!(cost("[acegikmoqsuwyACEGIKMOQSUWY]{20}y") >= 2 * cost("[ac]{20}y"));
    let left = &mut WorkBudget { left: cost("x*y") };
    let plain = Pattern::parse("x*y", false).expect("a pattern");
    assert_eq!((plain.find(&line, left), plain.find("", left)), (Ok(None), Err(WorkExceeded)));
}

proptest! {
    #[test]
    fn arbitrary_input_never_panics(
        pattern in "\\PC{0,30}|[\\\\(){}\\[\\]|*+?^$.a0-9,-]{0,30}",
        line in "\\PC{0,30}",
        ignore_case in any::<bool>(),
    ) {
        if let Ok(pattern) = Pattern::parse(&pattern, ignore_case) {
            let found = pattern.find(&line, &mut WorkBudget { left: LARGE_BUDGET });
            prop_assert!(found.is_ok_and(|at| at.is_none_or(|at| line.is_char_boundary(at))));
        }
    }
}
