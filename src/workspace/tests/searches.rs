//! The results and bounds of searches.

use super::{Stage, grep, path, prefix, put};
use crate::ports::filesystem::Precondition;
use crate::types::PathPrefix;
use crate::workspace::{
    pattern::Pattern,
    search::{Grep, MAX_HITS, SearchResult, check_glob, matches_glob},
};
use bytes::Bytes;
use futures::executor::block_on;
use pretty_assertions::assert_eq;

#[test]
fn searches_are_bounded_and_note_their_bounds() {
    let stage = Stage::new();
    let (tree, workspace) = (stage.tree(), stage.of("u"));
    put(&*tree, "a.txt", &"needle\n".repeat(MAX_HITS + 1));
    let lines = |grep: Grep| block_on(workspace.grep(&grep, &mut stage.pace())).expect("lines");
    let found = lines(grep("needle", false, "", None));
    assert_eq!((found.hits.len(), found.notes.len()), (MAX_HITS, 1));
    put(&*tree, "b/one-line.json", &format!("{}Needle{}", "é".repeat(5_000), "é".repeat(5_000)));
    put(&*tree, "b/binary", "needle");
    let not_text = Bytes::from_static(b"needle\xff");
    block_on(tree.write(&path("b/binary"), not_text, &Precondition::Any)).expect("written");
    let found = lines(grep("NEEDLE", true, "b/", None));
    assert_eq!((found.hits.len(), found.hits[0].number, found.notes.len()), (1, 1, 1));
    assert!(found.hits[0].text.contains("Needle") && found.hits[0].text.len() < 400);
    let none = lines(grep("needle", false, "b/", Some("*.md")));
    assert_eq!(none, SearchResult { hits: vec![], notes: vec![] });

    put(&*tree, "c/one.md", "fn one(x)\nfn two(y)\n3.5 ÄÖ\n");
    let numbers = |grep: Grep| lines(grep).hits.iter().map(|line| line.number).collect::<Vec<_>>();
    assert_eq!(numbers(grep(r"^fn \w+\((x|z)\)", false, "c/one", None)), [1]);
    assert_eq!(numbers(grep("äö$", true, "c/one", None)), [3]);
    let literal = |text: &str, ignore_case: bool| {
        let pattern = Pattern::literal(text, ignore_case).expect("a text");
        numbers(Grep { pattern, prefix: prefix("c/one"), glob: None })
    };
    assert_eq!(
        (literal("(y)", false), literal("FN TWO(", true), literal("3,5", true)),
        (vec![2], vec![2], vec![])
    );
}

#[test]
fn globs_match_names_or_paths() {
    let folder = |text| PathPrefix::folder(text).expect("a folder");
    for (pattern, start, at, expected) in [
        ("*.md", "", "a.md", true),
        ("*.md", "", "deep/er/a.md", true),
        ("*.md", "", "a.txt", false),
        ("skills/*/SKILL.md", "", "skills/x/SKILL.md", true),
        ("skills/*.md", "", "skills/x/SKILL.md", false),
        ("**/*.md", "", "a.md", true),
        ("**/*.md", "", "x/y/a.md", true),
        ("/x/**", "", "x/y/a.md", true),
        ("*/SKILL.md", "skills", "skills/x/SKILL.md", true),
        ("{a,b}.[mt]*", "", "b.txt", true),
        ("a?c", "", "abc", true),
        ("[", "", "[", false),
        (&"{a,b}".repeat(40), "", &"a".repeat(41), false),
        (&"*a".repeat(99), "", &"a".repeat(500), true),
        (&"*a".repeat(99), "", &"b".repeat(500), false),
    ] {
        assert_eq!(matches_glob(pattern, &folder(start), &path(at)), expected, "{pattern} {start} {at}");
    }
}

#[test]
fn invalid_globs_are_rejected() {
    let ten = "{,,,,,,,,,}";
    for (pattern, word) in [
        ("*.{md,txt", "missing '}'"),
        ("a[b", "missing ']'"),
        ("a\\", "trailing backslash"),
        (&"{,,,}".repeat(10), "more than 1000"),
        (&"{a,b}".repeat(11), "10 groups"),
        (&format!("{}{{a,b}}", ten.repeat(3)), "more than 1000"),
        (&"{[}],,,,,,,}".repeat(4), "more than 1000"),
        (&"{[]}],,,,,,,}".repeat(4), "more than 1000"),
        (&"{\\},,,,,,,}".repeat(4), "more than 1000"),
        (&"{{,,,,,,,},{,,,,,,,}}".repeat(3), "more than 1000"),
    ] {
        let fault = check_glob(pattern).expect_err(pattern);
        assert!(fault.0.contains(word), "{pattern}: {fault}");
    }
    for pattern in [
        "*",
        "**/*.{ts,tsx,js}",
        "[{,]*",
        "a,b,c",
        "\\{a",
        "}{a,b}",
        &ten.repeat(3),
        &"{{,,,,,,,},{,,,,,,,}}".repeat(2),
        "!*.md",
    ] {
        assert_eq!(check_glob(pattern), Ok(()), "{pattern}");
    }
}
