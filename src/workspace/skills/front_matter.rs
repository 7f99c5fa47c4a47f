//! Parses the front matter of a `SKILL.md`: YAML between two lines `---`.

use super::{HEAD_CHARS, MAX_NAME, is_name};
use crate::ports::filesystem::Entry;
use crate::workspace::stored::MAX_INLINE;
use saphyr_parser::{Event, Parser};
use std::{mem, rc::Rc};
use thiserror::Error;

/// Maximum length of a description, in characters.
pub const MAX_DESCRIPTION: usize = 1_024;
/// The line before and after the front matter.
const FENCE: &str = "---";
/// The field of the front matter with further data.
const METADATA: &str = "metadata";
/// The entry of the metadata that marks a learned skill, if it is `true`.
const LEARNED: &str = "learned";

/// Why a skill is malformed. The messages are for its author.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SkillError {
    /// The file is not UTF-8, or is larger than a row holds.
    #[error("SKILL.md is not a text of at most {MAX_INLINE} bytes")]
    NotText,
    /// The first line is not `---`.
    #[error(
        "SKILL.md does not begin with front matter: a line `---`, fields such as `name`, and a line `---`"
    )]
    NoFrontMatter,
    /// The closing line is missing.
    #[error("the front matter has no closing line `---` in the first {HEAD_CHARS} characters")]
    Unclosed,
    /// The front matter is not YAML.
    #[error("the front matter is not valid YAML: {0}")]
    Yaml(String),
    /// The front matter is a list or a scalar, or has an alias.
    #[error("the front matter is not a list of plain fields such as `name: pdf`")]
    Form,
    /// A required field is missing or not text.
    #[error("the front matter has no text in the field `{0}`")]
    Missing(&'static str),
    /// The name has another form.
    #[error("the name {0:?} is not 1 to {MAX_NAME} of a-z, 0-9 and -")]
    Name(String),
    /// The name differs from that of the folder.
    #[error("the name {name:?} is not that of the folder, {folder:?}")]
    OtherName {
        /// The name in the front matter.
        name: String,
        /// The name of the folder.
        folder: String,
    },
    /// The description is blank or too long.
    #[error("the description has {0} characters instead of 1 to {MAX_DESCRIPTION}")]
    Description(usize),
}

/// The fields of the front matter that are used. Others, such as `license`, `allowed-tools` and most of `metadata`, are
/// valid and have no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontMatter {
    name: String,
    description: Rc<str>,
    is_learned: bool,
}

impl FrontMatter {
    /// Returns whether the agent has written the skill.
    pub fn is_learned(&self) -> bool {
        self.is_learned
    }

    /// Returns the number of bytes of its texts.
    pub fn bytes(&self) -> usize {
        self.name.len() + self.description.len()
    }

    /// Returns the description if the skill is in this folder.
    pub fn description_of(self, folder: &str) -> Result<Rc<str>, SkillError> {
        match self.name == folder {
            true => Ok(self.description),
            false => Err(SkillError::OtherName { name: self.name, folder: folder.to_owned() }),
        }
    }
}

/// Reads the front matter in the start of a file.
///
/// # Errors
/// If the skill is malformed.
pub fn read_head(entry: &Entry, start: &[u8]) -> Result<FrontMatter, SkillError> {
    if entry.bytes > MAX_INLINE as u64 || start.is_empty() {
        return Err(SkillError::NotText);
    }
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        // The start may end within a character.
        Err(error) if error.error_len().is_none() && (start.len() as u64) < entry.bytes => {
            std::str::from_utf8(start.get(..error.valid_up_to()).unwrap_or_default())
                .map_err(|_| SkillError::NotText)?
        }
        Err(_) => return Err(SkillError::NotText),
    };
    read_text(text)
}

/// Returns the description in the text of a `SKILL.md`, as the model reads it; `None` if the skill is malformed.
pub fn description(text: &str) -> Option<Rc<str>> {
    read_text(text).ok().map(|front| front.description)
}

/// Reads the front matter of a text, or of its start.
fn read_text(text: &str) -> Result<FrontMatter, SkillError> {
    let end = text.char_indices().nth(HEAD_CHARS).map_or(text.len(), |(end, _)| end);
    let (yaml, _) = split(text.get(..end).unwrap_or_default())?;
    parse(yaml)
}

/// Checks the text of the `SKILL.md` in a folder.
///
/// # Errors
/// If the skill would be malformed.
pub fn check(folder: &str, text: &str) -> Result<(), SkillError> {
    match text.len() > MAX_INLINE {
        true => Err(SkillError::NotText),
        false => read_text(text)?.description_of(folder).map(drop),
    }
}

/// Divides the text of a `SKILL.md` into the YAML of its front matter and what follows.
///
/// # Errors
/// If there is no front matter.
pub fn split(text: &str) -> Result<(&str, &str), SkillError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut at = 0;
    let mut yaml_from = None;
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_end() == FENCE;
        match yaml_from {
            None if is_fence => yaml_from = Some(at + line.len()),
            None => break,
            Some(from) if is_fence => {
                let (yaml, body) = (text.get(from..at), text.get(at + line.len()..));
                return Ok((yaml.unwrap_or_default(), body.unwrap_or_default()));
            }
            Some(_) => {}
        }
        at += line.len();
    }
    Err(if yaml_from.is_some() { SkillError::Unclosed } else { SkillError::NoFrontMatter })
}

/// Parses the YAML. Reads the parser's events and keeps few texts only, so that neither depth nor aliases cost memory.
fn parse(yaml: &str) -> Result<FrontMatter, SkillError> {
    let (mut name, mut description, mut is_learned) = (None, None, false);
    // The field whose value comes next, in the outermost mapping and in `metadata`.
    let mut field: Option<String> = None;
    let mut entry: Option<String> = None;
    let mut depth = 0_usize;
    for event in Parser::new_from_str(yaml) {
        let (event, _) = event.map_err(|error| SkillError::Yaml(error.to_string()))?;
        match event {
            Event::Alias(_) => return Err(SkillError::Form),
            Event::SequenceStart(..) if depth == 0 => return Err(SkillError::Form),
            // A key that is no text.
            Event::SequenceStart(..) | Event::MappingStart(..) if depth == 1 && field.is_none() => {
                return Err(SkillError::Form);
            }
            Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
            Event::SequenceEnd | Event::MappingEnd => {
                depth = depth.saturating_sub(1);
                entry = None;
                if depth == 1 {
                    field = None;
                }
            }
            Event::Scalar(text, ..) if depth == 1 => match mem::take(&mut field).as_deref() {
                None => field = Some(text.into_owned()),
                Some("name") => name = Some(text.into_owned()),
                Some("description") => description = Some(text.into_owned()),
                Some(_) => {}
            },
            Event::Scalar(text, ..) if depth == 2 && field.as_deref() == Some(METADATA) => {
                match mem::take(&mut entry) {
                    None => entry = Some(text.into_owned()),
                    Some(entry) => is_learned |= entry == LEARNED && text == "true",
                }
            }
            Event::Scalar(text, ..) if depth == 0 && !text.is_empty() => return Err(SkillError::Form),
            _ => {}
        }
    }
    let name = name.ok_or(SkillError::Missing("name"))?;
    let description = description.ok_or(SkillError::Missing("description"))?;
    if !is_name(&name) {
        return Err(SkillError::Name(name));
    }
    let description = description.trim();
    match description.chars().count() {
        1..=MAX_DESCRIPTION => Ok(FrontMatter { name, description: description.into(), is_learned }),
        count => Err(SkillError::Description(count)),
    }
}

/// Writes the `SKILL.md` of a skill that the agent proposes, with the mark of learned ones.
pub fn write(name: &str, description: &str, body: &str) -> String {
    // A JSON string is a YAML string.
    let description = serde_json::Value::from(description);
    let metadata = format!("{METADATA}: {{{LEARNED}: \"true\"}}");
    format!("{FENCE}\nname: {name}\ndescription: {description}\n{metadata}\n{FENCE}\n\n{}\n", body.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{FilePath, Timestamp};
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    /// Reads a whole file, cut as the table does.
    fn read(text: &str) -> Result<FrontMatter, SkillError> {
        let path = FilePath::parse("skills/pdf/SKILL.md").expect("a path");
        let bytes = text.len() as u64;
        let entry = Entry { path, bytes, etag: "e".into(), updated_at: Timestamp(0) };
        let start: String = text.chars().take(HEAD_CHARS).collect();
        read_head(&entry, start.as_bytes())
    }

    fn front(name: &str, description: &str) -> Result<FrontMatter, SkillError> {
        Ok(FrontMatter { name: name.to_owned(), description: description.into(), is_learned: false })
    }

    #[test]
    fn the_front_matter_of_published_skills_is_valid() {
        for text in [
            "---\nname: pdf\ndescription: Fills in forms.\n---\n\n# PDF\n",
            "---\r\nname: pdf\r\ndescription: Fills in forms.\r\n---\r\nText",
            "\u{feff}---\nname: \"pdf\"\ndescription: >-\n  Fills in\n  forms.\n---",
            "---\nlicense: MIT\nmetadata:\n  version: \"1.0\"\n  name: other\n  tags: [a, {b: c}]\n\
             allowed-tools:\n  - read_file\nname: pdf\ndescription: 'Fills in forms.'\ncompatibility: any\n--- \nText",
        ] {
            assert_eq!(read(text), front("pdf", "Fills in forms."), "{text}");
        }
    }

    #[test]
    fn a_malformed_skill_says_what_is_wrong() {
        let long = format!("---\nname: pdf\ndescription: {}\n---\n", "x".repeat(MAX_DESCRIPTION + 1));
        let far = format!("---\nname: pdf\ndescription: d\nlicense: {}\n---\n", "x".repeat(HEAD_CHARS));
        for (text, error) in [
            ("", SkillError::NotText),
            ("# PDF", SkillError::NoFrontMatter),
            ("\n---\nname: pdf\n---\n", SkillError::NoFrontMatter),
            ("---\nname: pdf\ndescription: d\n", SkillError::Unclosed),
            (&far, SkillError::Unclosed),
            ("---\n---\n", SkillError::Missing("name")),
            ("---\nname: pdf\n---\n", SkillError::Missing("description")),
            ("---\nname: [pdf]\ndescription: d\n---\n", SkillError::Missing("name")),
            ("---\nname: pdf\ndescription: ''\n---\n", SkillError::Description(0)),
            (&long, SkillError::Description(MAX_DESCRIPTION + 1)),
            ("---\nname: PDF forms\ndescription: d\n---\n", SkillError::Name("PDF forms".into())),
            ("---\n- name\n- pdf\n---\n", SkillError::Form),
            ("---\njust text\n---\n", SkillError::Form),
            ("---\n? [a]\n: b\nname: pdf\ndescription: d\n---\n", SkillError::Form),
            ("---\na: &a [x, x]\nb: [*a, *a]\nname: pdf\ndescription: d\n---\n", SkillError::Form),
        ] {
            assert_eq!(read(text), Err(error), "{text}");
        }
        let yaml = read("---\nname: pdf\ndescription: Use when: always\n---\n").expect_err("two colons");
        assert!(yaml.to_string().starts_with("the front matter is not valid YAML: "), "{yaml}");
    }

    #[test]
    fn only_the_entry_of_the_metadata_marks_a_learned_skill() {
        for (fields, is_learned) in [
            ("metadata: {learned: \"true\"}", true),
            ("metadata:\n  version: [1, {learned: no}]\n  learned: true", true),
            ("metadata: {learned: \"false\"}", false),
            ("metadata: {x: learned, true: y}", false),
            ("metadata: {x: {learned: \"true\"}}", false),
            ("metadata: learned", false),
            ("other: {learned: \"true\"}", false),
            ("learned: \"true\"", false),
        ] {
            let front = read(&format!("---\nname: pdf\n{fields}\ndescription: d\n---\n")).expect(fields);
            assert_eq!(front.is_learned(), is_learned, "{fields}");
        }
    }

    #[test]
    fn a_file_that_is_no_text_is_malformed() {
        let path = FilePath::parse("skills/pdf/SKILL.md").expect("a path");
        let entry = |bytes| Entry { path: path.clone(), bytes, etag: "e".into(), updated_at: Timestamp(0) };
        for (bytes, start) in [(4, &b"\xff\xfe\0\0"[..]), (9, b""), (MAX_INLINE as u64 + 1, b"---\n")] {
            assert_eq!(read_head(&entry(bytes), start), Err(SkillError::NotText));
        }
    }

    #[test]
    fn the_name_is_that_of_the_folder() {
        let front = read("---\nname: pdf\ndescription: d\n---\n").expect("front matter");
        assert_eq!(front.clone().description_of("pdf"), Ok("d".into()));
        let error = front.description_of("doc").expect_err("another folder").to_string();
        assert_eq!(error, "the name \"pdf\" is not that of the folder, \"doc\"");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(description in "[ -~é山\\n\"\\\\:#'-]{1,200}", body in "[a-z#\\n-]{0,60}") {
            prop_assume!(!description.trim().is_empty());
            let text = write("pdf", &description, &body);
            let learned = front("pdf", description.trim()).map(|front| FrontMatter { is_learned: true, ..front });
            prop_assert_eq!(read(&text), learned);
            let (_, rest) = split(&text).expect("front matter");
            prop_assert_eq!(rest.trim(), body.trim());
        }

        #[test]
        fn no_text_panics(text in "(---\n)?[a-z:\\[\\]{}&*!|>?%@`'\" \n-]{0,200}(\n---\n)?") {
            drop(read(&text));
        }
    }
}
