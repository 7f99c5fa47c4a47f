use super::*;
use pretty_assertions::assert_eq;
use proptest::prelude::*;

fn find(pattern: &str, line: &str) -> Option<usize> {
    let mut work = Work { left: 1_000_000 };
    Pattern::parse(pattern, false).expect(pattern).find(line, &mut work).expect("little work")
}

#[test]
fn expressions_find_what_they_say() {
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
        ("a{2,3}?b", "aaaab", Some(1)),
        ("(?:x|y){2}", "axyb", Some(1)),
        ("\\.md", "amd b.md", Some(5)),
        ("(a*)*$", "aaab", Some(4)),
    ] {
        assert_eq!(find(pattern, line), at, "{pattern} {line}");
    }
    let loud = Pattern::parse("straße [a-z]+", true).expect("a pattern");
    assert_eq!(loud.find("die STRAßE NACH", &mut Work { left: 1_000 }), Ok(Some(4)));
}

#[test]
fn faults_are_told() {
    for (pattern, word) in [
        ("(", "not closed"),
        (")", "closes nothing"),
        ("[a", "not closed"),
        ("[]", "not closed"),
        ("[b-a]", "range"),
        ("a{2", "not closed"),
        ("a{x}", "needs a number"),
        ("a{3,2}", "count"),
        ("a{99999999999999999999}", "count"),
        ("*a", "nothing in front"),
        ("a\\", "nothing behind"),
        ("\\p{L}", "no `\\p`"),
        ("(?=a)", "only `(?:…)`"),
        ("(a{100}){100}", "repeats too much"),
    ] {
        let fault = Pattern::parse(pattern, false).expect_err(pattern);
        assert!(fault.contains(word), "{pattern}: {fault}");
    }
}

#[test]
fn work_is_bounded() {
    let slow = Pattern::parse("(x+x+)+y", false).expect("a pattern");
    let line = "x".repeat(10_000);
    let mut work = Work { left: 1_000_000 };
    assert_eq!(slow.find(&line, &mut work), Ok(None), "linear");
    assert_eq!(slow.find(&line, &mut Work { left: 1_000 }), Err(TooMuch));
}

proptest! {
    /// What is found is what others find, where it begins too unless another match ends earlier.
    #[test]
    fn it_agrees_with_the_reference(
        pattern in "(\\^?([ab.]|[ab]\\*|\\(a\\|b+\\)|\\[\\^a\\]|\\[ab-c\\]\\?|\\\\b|\\\\w|\\(ab\\)\\{1,2\\}|é+|\\|){1,6}\\$?)",
        line in "[abcé _]{0,8}",
        ignore_case in any::<bool>(),
    ) {
        let reference = regex::RegexBuilder::new(&pattern).case_insensitive(ignore_case).build();
        let own = Pattern::parse(&pattern, ignore_case);
        match (reference, own) {
            (Ok(reference), Ok(own)) => {
                let found = own.find(&line, &mut Work { left: 100_000 }).expect("little work");
                prop_assert_eq!(found.is_some(), reference.is_match(&line), "{} {:?}", pattern, line);
                if let Some(at) = found {
                    prop_assert!(reference.find_at(&line, at).is_some_and(|hit| hit.start() == at));
                }
            }
            (Ok(_), Err(fault)) => prop_assert!(false, "{} {}", pattern, fault),
            (Err(_), _) => {}
        }
    }

    #[test]
    fn nothing_breaks_it(pattern in "\\PC{0,30}|[\\\\(){}\\[\\]|*+?^$.a0-9,-]{0,30}", line in "\\PC{0,30}") {
        if let Ok(pattern) = Pattern::parse(&pattern, false) {
            let _ = pattern.find(&line, &mut Work { left: 100_000 });
        }
    }
}
