use super::*;
use crate::platform::in_memory::ManualClock;
use crate::workspace::pace::MAX_WORK;
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use proptest::prelude::*;
use std::rc::Rc;

fn pace() -> Pace {
    Pace::new(Rc::new(ManualClock::default()), Rc::default())
}

/// Returns where the first match is certain, and the work to find it.
fn search(pattern: &Pattern, line: &str) -> (Option<usize>, u64) {
    let mut pace = pace();
    let at = block_on(pattern.matcher().find(line, &mut pace)).expect("little work");
    (at, MAX_WORK - pace.left)
}

fn find(pattern: &str, ignore_case: bool, line: &str) -> Option<usize> {
    search(&Pattern::regex(pattern, ignore_case).expect(pattern), line).0
}

#[test]
fn expressions_find_their_matches() {
    for (pattern, line, at) in [
        ("needle", "hay needle hay", Some(10)),
        ("", "", Some(0)),
        ("^$", "", Some(0)),
        ("^a", "ba", None),
        ("a$", "aba", Some(3)),
        ("fn \\w+\\(", "pub fn find(x)", Some(12)),
        ("\\bcat\\b", "concat cat", Some(10)),
        ("\\d{4}-\\d{2}", "on 2026-11-20", Some(10)),
        ("[^a-c]", "abcd", Some(4)),
        ("[]x-]+", "ab]-x", Some(3)),
        ("colou?r|grey", "a grey wall", Some(6)),
        ("(ab)*c", "ababc", Some(5)),
        ("é.山", "aéx山", Some(7)),
        ("(?:x|y){2}", "axyb", Some(3)),
        ("\\.md", "amd b.md", Some(8)),
        ("\\\\d", "5 \\d", Some(4)),
        ("[\\w-]\\W[^\\S\\d]", "é! a-  ", Some(7)),
        ("é\\Be", "éBe ée", None),
        ("x\\By", "xy", Some(2)),
    ] {
        assert_eq!(find(pattern, false, line), at, "{pattern} {line}");
    }
    for (pattern, line, at) in [
        ("straße [a-z]+", "die STRAßE NACH", Some(13)),
        ("äö$", "é ÄÖ", Some(7)),
        ("[À-Ö]x", "öX", Some(3)),
        ("\\W[É]", "a É", Some(4)),
        ("İ", "İ", Some(2)),
        ("\\bstop\\b", "NONSTOP Stop", Some(12)),
    ] {
        assert_eq!(find(pattern, true, line), at, "{pattern} {line}");
    }
}

#[test]
fn errors_are_explained() {
    for (pattern, word) in [
        ("(", "unclosed"),
        (")", "unopened"),
        ("[a", "unclosed"),
        ("[b-a]", "range"),
        ("a{2", "unclosed"),
        ("a{3,2}", "range"),
        ("*a", "repetition"),
        ("\\p{L}", "not supported"),
        ("(?=a)", "not supported"),
        ("(?-u:\\xff)", "invalid UTF-8"),
        ("\\<a", "use \\b"),
        ("(a{100}){100}", "repetitions are too large"),
        (&format!("{}{}", "(".repeat(90), ")".repeat(90)), "nested"),
    ] {
        let fault = Pattern::regex(pattern, false).expect_err(pattern);
        assert!(fault.0.contains(word), "{pattern}: {fault}");
    }
}

#[test]
fn the_size_of_an_expression_is_bounded() {
    for pattern in [
        "(){1000}{1000}{1000}{1000}",
        "(?:$){1000}{1000}{1000}",
        "(a{0}){1000}{1000}{1000}",
        "(?:(?:)*){4000000000}",
        "(?:a{0,1000}){0,4000000}",
        "((a?){60}){60}",
        "[é-山]{200}",
    ] {
        match Pattern::regex(pattern, true) {
            Ok(pattern) => assert!(pattern.dfa.get_nfa().memory_usage() <= MAX_SIZE),
            Err(fault) => assert_eq!(fault.0, "its repetitions are too large", "{pattern}"),
        }
    }
}

#[test]
fn work_is_counted() {
    let cost = |pattern: &str, line: &str| {
        let (found, work) = search(&Pattern::regex(pattern, false).expect(pattern), line);
        assert_eq!(found, None, "{pattern}");
        work
    };
    let line = "x".repeat(100_000);
    for pattern in ["y", "(x+x+)+y", "(x*){40}y", "[é-山]{20}"] {
        assert!((100_000..250_000).contains(&cost(pattern, &line)), "{pattern}");
    }
    // Every byte leads to a state that has not occurred before.
    let line = &mixed(5_000);
    assert!(cost("[ab]*a[ab]{60}c", line) > 500 * cost("[ab]*c", line));
    assert_eq!(cost("a", ""), LINE_WORK);
}

#[test]
fn memory_is_bounded() {
    let pattern = Pattern::regex("[ab]*a[ab]{60}c", false).expect("a pattern");
    let mut matcher = pattern.matcher();
    assert_eq!(block_on(matcher.find(&mixed(5_000), &mut pace())), Ok(None));
    assert!(matcher.cache.clear_count() > 0 && matcher.cache.memory_usage() <= CACHE_SIZE);
}

/// Returns letters without a pattern.
fn mixed(length: usize) -> String {
    let mut state = 1_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if state >> 63 == 0 { 'a' } else { 'b' }
    };
    (0..length).map(|_| letter()).collect()
}

proptest! {
    #[test]
    fn arbitrary_input_never_panics(
        pattern in "\\PC{0,30}|[\\\\(){}\\[\\]|*+?^$.a0-9,-]{0,30}",
        line in "\\PC{0,30}",
        ignore_case in any::<bool>(),
    ) {
        if let Ok(pattern) = Pattern::regex(&pattern, ignore_case) {
            prop_assert!(search(&pattern, &line).0.is_none_or(|at| at <= line.len()));
        }
    }

    #[test]
    fn literals_are_found_where_they_are(text in "[aé\\\\.*(wb]{1,3}", line in "[aé\\\\.*(wb]{0,12}") {
        let pattern = Pattern::literal(&text, false).expect("a text");
        prop_assert_eq!(search(&pattern, &line).0, line.find(&text).map(|at| at + text.len()));
    }
}
