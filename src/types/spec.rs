//! Specs: Markdown files that say what a run has to achieve.

use super::{FilePath, PathError};

/// The folder of specs in a workspace.
pub const FOLDER: &str = "specs/";
/// Longest name of a spec, in bytes.
const MAX_NAME: usize = 64;
/// Largest spec, in bytes.
pub const MAX_BYTES: usize = 100_000;

/// What a name consists of, for the errors about malformed ones.
pub const NAME_FORM: &str = "expected 1 to 64 of A-Z a-z 0-9 - _";

/// The name of a spec, which is the file `specs/NAME.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecName(String);

impl SpecName {
    /// Parses a name: 1 to 64 letters, digits, `-` and `_`; `None` if it is not valid.
    pub fn parse(text: &str) -> Option<Self> {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let fits = (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(is_valid);
        fits.then(|| Self(text.to_owned()))
    }

    /// Returns the name of the spec in a file of a workspace; `None` for other files.
    pub fn of_path(path: &str) -> Option<Self> {
        Self::parse(path.strip_prefix(FOLDER)?.strip_suffix(".md")?)
    }

    /// Returns the path of the file in a workspace.
    ///
    /// # Errors
    /// None for a valid name.
    pub fn path(&self) -> Result<FilePath, PathError> {
        FilePath::parse(&format!("{FOLDER}{}.md", self.0))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns what is wrong with the text of a spec, in sentences for its author. A valid spec has a heading that starts with
/// "goal", one that contains "constraint" and one that contains "acceptance", of any level and in any case. It may begin
/// with front matter, whose `name` is that of the spec.
pub fn problems(name: &SpecName, text: &[u8]) -> Vec<String> {
    if text.len() > MAX_BYTES {
        return vec![format!("the spec has more than {MAX_BYTES} bytes")];
    }
    let Ok(text) = str::from_utf8(text) else { return vec!["the spec is not UTF-8 text".to_owned()] };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut problems = Vec::new();
    let (fields, body) = match front_matter(text) {
        Some(parts) => parts,
        None => {
            problems.push("the front matter does not end; close it with a line `---`".to_owned());
            ("", text)
        }
    };
    let named = fields.lines().find_map(|line| line.strip_prefix("name:")).map(unquoted);
    if let Some(named) = named.filter(|named| *named != name.as_str()) {
        let named: String = named.chars().take(MAX_NAME).collect();
        problems.push(format!("the front matter has the name {named:?}; expected {:?}", name.as_str()));
    }
    let headings = headings(body);
    let mut require = |has: bool, what: &str| {
        if !has {
            problems.push(format!("no heading {what}"));
        }
    };
    require(headings.iter().any(|text| text.starts_with("goal")), "starts with \"goal\"");
    require(headings.iter().any(|text| text.contains("constraint")), "contains \"constraint\"");
    require(headings.iter().any(|text| text.contains("acceptance")), "contains \"acceptance\"");
    problems
}

/// Splits a text into the lines of its front matter, which may be missing, and the rest. `None` if the front matter has no
/// end.
fn front_matter(text: &str) -> Option<(&str, &str)> {
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    if first.trim_end() != "---" {
        return Some(("", text));
    }
    let mut end = first.len();
    for line in lines {
        let next = end + line.len();
        if line.trim_end() == "---" {
            return Some((text.get(first.len()..end)?, text.get(next..)?));
        }
        end = next;
    }
    None
}

fn unquoted(value: &str) -> &str {
    value.trim().trim_matches(['"', '\''])
}

/// Returns the headings of a Markdown text in lower case. Lines in fenced code are no headings.
fn headings(text: &str) -> Vec<String> {
    let mut headings = Vec::new();
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        let line = line.trim();
        let mark = ["```", "~~~"].into_iter().find(|mark| line.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => headings.extend(heading(line)),
            (Some(_), _) => {}
        }
    }
    headings
}

/// Returns the text of a line such as `## Goal ##`; `None` if it is no heading.
fn heading(line: &str) -> Option<String> {
    let text = line.trim_start_matches('#');
    let is_heading = (1..=6).contains(&(line.len() - text.len())) && text.starts_with([' ', '\t']);
    is_heading.then(|| text.trim_end_matches('#').trim().to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn check(text: &str) -> Vec<String> {
        problems(&SpecName::parse("tea").expect("a name"), text.as_bytes())
    }

    #[test]
    fn names_have_no_way_out_of_the_folder() {
        for name in ["a", "A-b_9", &"x".repeat(64)] {
            let parsed = SpecName::parse(name).expect(name);
            assert_eq!(parsed.path().expect(name).as_str(), format!("specs/{name}.md"));
            assert_eq!(SpecName::of_path(&format!("specs/{name}.md")), Some(parsed));
        }
        for name in ["", ".", "..", "a/b", "a\\b", "a.md", "a b", "ä", "a\0", "a%2F", &"x".repeat(65)] {
            assert_eq!(SpecName::parse(name), None, "{name:?}");
        }
        for path in ["specs/a/b.md", "specs/.md", "specs/a.txt", "a.md", "specs/a"] {
            assert_eq!(SpecName::of_path(path), None, "{path:?}");
        }
    }

    #[test]
    fn the_three_headings_may_have_any_level_and_case() {
        assert_eq!(check("# GOAL of it\n###### Hard constraints ##\n\t## acceptance Criteria\r\n"), [""; 0]);
        let missing = [
            "no heading starts with \"goal\"",
            "no heading contains \"constraint\"",
            "no heading contains \"acceptance\"",
        ];
        assert_eq!(check(""), missing);
        assert_eq!(
            check("#goal\n####### goal\nGoal\n> # goal\n# The goal\n# constraint\n# acceptance"),
            missing[..1]
        );
        assert_eq!(check("# goal\n```\n# constraint\n~~~\n# acceptance\n```\n"), missing[1..]);
        assert_eq!(
            check("# goal\n```\n# constraint\n# acceptance\n"),
            missing[1..],
            "a fence without an end"
        );
    }

    #[test]
    fn front_matter_is_optional_and_names_the_spec() {
        let body = "# Goal\n# Constraints\n# Acceptance\n";
        for front in [
            "---\nname: tea\nowner: Ann\nstatus: draft\n---\n",
            "---\r\nname: 'tea'\r\n---\r\n",
            "---\n---\n",
        ] {
            assert_eq!(check(&format!("{front}{body}")), [""; 0], "{front:?}");
        }
        assert_eq!(check(&format!("\u{feff}{body}")), [""; 0]);
        let other = check(&format!("---\nname: coffee\n# Goal\n---\n{body}"));
        assert_eq!(other, ["the front matter has the name \"coffee\"; expected \"tea\""]);
        let open = check(&format!("---\nname: tea\n{body}"));
        assert_eq!(open, ["the front matter does not end; close it with a line `---`"]);
    }

    #[test]
    fn hostile_texts_have_problems() {
        let name = SpecName::parse("tea").expect("a name");
        assert_eq!(problems(&name, b"# goal\xff"), ["the spec is not UTF-8 text"]);
        assert_eq!(problems(&name, &vec![b'#'; MAX_BYTES + 1]), ["the spec has more than 100000 bytes"]);
        let long = check(&format!("---\nname: {}\n---\n", "ü\u{1b}".repeat(10_000)));
        assert!(long[0].len() < 1_000 && !long[0].contains('\u{1b}'), "{}", long[0]);
        assert_eq!(check("---").len(), 4);
        assert_eq!(check(&"#".repeat(MAX_BYTES)).len(), 3);
    }
}
