//! The `edit_file` tool.

use super::{FileAccess, FileToolError, Files, checked, key, path};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::ports::{
    FileError,
    filesystem::{MAX_FILE, Precondition},
};
use crate::types::{Category, Effect, Invalid};
use schemars::JsonSchema;
use serde::Deserialize;

/// Maximum number of attempts if other writers change the file.
const MAX_ATTEMPTS: usize = 5;

/// The `edit_file` tool.
pub struct EditFile(pub(super) Files);

/// The arguments of `edit_file`.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// Path of the file, from the workspace's root.
    path: String,
    /// The text to replace, exactly as in the file, without line numbers.
    old_string: String,
    /// The replacement.
    new_string: String,
    /// Whether to replace all occurrences; otherwise `old_string` must occur exactly once.
    #[serde(default)]
    replace_all: bool,
}

impl Tool for EditFile {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "edit_file";
    const DESCRIPTION: &'static str =
        "Replaces an exact text in a file of the workspace: its only occurrence, or all of them.";
    const EFFECT: Effect = Effect::LocalWrite;
    const CATEGORY: Category = Category::Edit;

    fn resource_keys(&self, args: &Args) -> Vec<String> {
        vec![key(&args.path)]
    }

    async fn run(&self, args: Args, cx: ToolContext) -> Result<String, ToolError> {
        apply(&args, &self.0.open(&cx)).await.map_err(|error| self.0.failed(&cx, error))
    }
}

pub(super) async fn apply(args: &Args, access: &FileAccess) -> Result<String, FileToolError> {
    let (path, files) = (path(&args.path)?, &access.files);
    let failed = FileToolError::at(path.as_str());
    for _ in 0..MAX_ATTEMPTS {
        let (file, _) = files.read(&path).await.map_err(&failed)?;
        let text =
            std::str::from_utf8(&file.bytes).map_err(|_| ToolError::new(format!("`{path}` is not text")))?;
        let edited = edit(text, &args.old_string, &args.new_string, args.replace_all);
        let (edited, places) = edited.map_err(|fault| ToolError::new(format!("`{path}`: {fault}")))?;
        let note = checked(&path, edited.as_bytes());
        // Written only if the file is unchanged since it was read, so that no concurrent change is lost.
        match files.write(&path, edited.into(), &Precondition::IfMatch(file.entry.etag)).await {
            Ok(entry) => {
                let s = if places == 1 { "" } else { "s" };
                let bytes = entry.bytes;
                return Ok(format!("replaced {places} occurrence{s} in {path}, now {bytes} bytes{note}"));
            }
            Err(FileError::Conflict) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Err(ToolError::new(format!("`{path}` is being changed concurrently; try again")).into())
}

/// Returns the edited text and the number of replacements.
fn edit(text: &str, old: &str, new: &str, all: bool) -> Result<(String, usize), Invalid> {
    if old.is_empty() {
        return Err("old_string is empty; give the text to replace, or use write_file for a new file".into());
    }
    if old == new {
        return Err("old_string and new_string are equal".into());
    }
    let places = match text.matches(old).count() {
        // With overlapping occurrences, it is ambiguous which one is meant.
        1 if !all && overlaps(text, old) => 2,
        places => places,
    };
    let bytes = size_after([text.len(), places, old.len(), new.len()].map(|size| size as u64));
    match places {
        // read_file shows lines without their ends, so the model's text may lack the carriage returns.
        0 if text.contains("\r\n") && old.contains('\n') && !old.contains("\r\n") => {
            let as_here = |lines: &str| lines.replace("\r\n", "\n").replace('\n', "\r\n");
            edit(text, &as_here(old), &as_here(new), all)
        }
        0 => {
            Err("old_string was not found; read the file and copy the text exactly, including whitespace"
                .into())
        }
        // Checked before the text is built, which could exceed the memory.
        _ if (all || places == 1) && bytes > MAX_FILE as u64 => Err(Invalid(format!(
            "the file would have {bytes} bytes; at most {MAX_FILE} are allowed; replace less"
        ))),
        1 => Ok((text.replacen(old, new, 1), 1)),
        places if all => Ok((text.replace(old, new), places)),
        places => Err(Invalid(format!(
            "old_string occurs {places} times; add surrounding text until it is unique, or set replace_all"
        ))),
    }
}

/// Returns the size of the edited text in bytes, in 64 bits because it may exceed a 32-bit address space.
fn size_after([text, places, old, new]: [u64; 4]) -> u64 {
    text.saturating_sub(places.saturating_mul(old)).saturating_add(places.saturating_mul(new))
}

/// Returns whether `old` occurs again after the start of its first occurrence, overlapping or not.
fn overlaps(text: &str, old: &str) -> bool {
    let step = old.chars().next().map_or(1, char::len_utf8);
    let remaining = text.find(old).and_then(|at| text.get(at + step..));
    remaining.is_some_and(|remaining| remaining.contains(old))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_is_exact_and_unique() {
        let done = |text, places| Ok((String::from(text), places));
        assert_eq!(edit("a b a", "b", "c", false), done("a c a", 1));
        assert_eq!(edit("a b a", "a", "c", true), done("c b c", 2));
        assert_eq!(edit("a b a", "b", "", true), done("a  a", 1));
        assert_eq!(edit("a\r\nb\r\nc", "a\nb", "x\ny", false), done("x\r\ny\r\nc", 1));
        for (old, new, word) in
            [("", "x", "empty"), ("a", "a", "equal"), ("a", "x", "2 times"), ("A", "x", "not found")]
        {
            assert!(edit("a b a", old, new, false).expect_err(old).0.contains(word));
        }
        assert_eq!(edit("a\r\nb\r\n", "a\nb", "x\r\ny\nz", false), done("x\r\ny\r\nz\r\n", 1));
    }

    #[test]
    fn overlapping_occurrences_are_ambiguous() {
        assert!(edit("ééé", "éé", "x", false).expect_err("two").0.contains("2 times"));
        assert_eq!(edit("ééé", "éé", "x", true), Ok(("xé".into(), 1)));
    }

    #[test]
    fn an_edit_that_exceeds_the_maximum_size_is_rejected() {
        let (text, new) = ("a".repeat(MAX_FILE), "b".repeat(MAX_FILE));
        assert!(edit(&text, "a", &new, true).expect_err("large").0.contains("replace less"));
        assert!(edit("ab", "a", &new, false).expect_err("large").0.contains("replace less"));
        assert_eq!(edit("ab", "ab", &new, false).expect("the maximum size").0.len(), MAX_FILE);
        assert!(edit(&text, "a", "", true).expect("nothing").0.is_empty());
        // In 32 bits, these would wrap or overflow.
        for (sizes, expected) in [
            ([10, 1 << 12, 1, 1 << 20], 1 << 32),
            ([1 << 22, 1 << 22, 1, 1 << 22], 1 << 44),
            ([1 << 22, 1 << 20, 3, u64::from(u32::MAX)], (1 << 20) * (u64::from(u32::MAX) + 1)),
            ([5, 2, 3, 7], 14),
            ([u64::MAX, 2, 0, u64::MAX], u64::MAX),
        ] {
            assert_eq!(size_after(sizes), expected, "{sizes:?}");
        }
    }
}
