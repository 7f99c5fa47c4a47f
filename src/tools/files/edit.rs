//! `edit_file`.

use super::{Files, key, path};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::ports::{
    FileError,
    filesystem::{MAX_FILE, Precondition},
};
use crate::types::{Category, Effect};
use schemars::JsonSchema;
use serde::Deserialize;

/// How often an edit is tried that others come in between.
const TRIES: usize = 5;

/// `edit_file`.
pub struct EditFile(pub(super) Files);

/// What to change.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// The file, from the workspace's root.
    path: String,
    /// The text to replace, exactly as it stands in the file, without line numbers.
    old_string: String,
    /// What takes its place.
    new_string: String,
    /// Whether all places are replaced; otherwise there must be only one.
    #[serde(default)]
    replace_all: bool,
}

impl Tool for EditFile {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "edit_file";
    const DESCRIPTION: &'static str =
        "Replaces an exact text in a file of the workspace: the only place where it stands, or all of them.";
    const EFFECT: Effect = Effect::LocalWrite;
    const CATEGORY: Category = Category::Edit;

    fn resource_keys(&self, args: &Args) -> Vec<String> {
        vec![key(&args.path)]
    }

    async fn run(&self, args: Args, cx: ToolContext) -> Result<String, ToolError> {
        let path = path(&args.path)?;
        let files = self.0.open(&cx);
        let failed = |error| self.0.failed(&cx, path.as_str(), error);
        for _ in 0..TRIES {
            let (file, _) = files.read(&path).await.map_err(failed)?;
            let text = std::str::from_utf8(&file.bytes)
                .map_err(|_| ToolError::new(format!("`{path}` is not text")))?;
            let edited = edit(text, &args.old_string, &args.new_string, args.replace_all);
            let (edited, places) = edited.map_err(|fault| ToolError::new(format!("`{path}`: {fault}")))?;
            // Against what was read: whoever wrote meanwhile is read first, and no line of theirs is lost.
            match files.write(&path, edited.into(), &Precondition::IfMatch(file.entry.etag)).await {
                Ok(entry) => {
                    let s = if places == 1 { "" } else { "s" };
                    return Ok(format!("replaced {places} place{s} in {path}, now {} bytes", entry.bytes));
                }
                Err(FileError::Conflict) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(ToolError::new(format!("`{path}` is being changed by others all the time: try again")))
    }
}

/// The text with its places replaced, and how many there were.
fn edit(text: &str, old: &str, new: &str, all: bool) -> Result<(String, usize), String> {
    if old.is_empty() {
        return Err("old_string is empty: give the text to replace, or write_file a new file".into());
    }
    if old == new {
        return Err("old_string and new_string are the same".into());
    }
    let places = match text.matches(old).count() {
        // Places may overlap, and then it is open which of them is meant.
        1 if !all && overlaps(text, old) => 2,
        places => places,
    };
    let bytes = size_after([text.len(), places, old.len(), new.len()].map(|size| size as u64));
    match places {
        // Lines are shown without their ends, so a text of several may miss how they end here.
        0 if text.contains("\r\n") && old.contains('\n') && !old.contains("\r\n") => {
            let as_here = |lines: &str| lines.replace("\r\n", "\n").replace('\n', "\r\n");
            edit(text, &as_here(old), &as_here(new), all)
        }
        0 => Err("old_string is not in it: read the file, and copy the text exactly, blanks included".into()),
        // Before it is made: many places and a long text are more than there is memory.
        _ if (all || places == 1) && bytes > MAX_FILE as u64 => {
            Err(format!("it would have {bytes} bytes, and a file may have {MAX_FILE}: replace less"))
        }
        1 => Ok((text.replacen(old, new, 1), 1)),
        places if all => Ok((text.replace(old, new), places)),
        places => Err(format!(
            "old_string stands in it {places} times: add text around it until it is unique, or set replace_all"
        )),
    }
}

/// The bytes of a text with so many places replaced: more than an address may count, where those are short.
fn size_after([text, places, old, new]: [u64; 4]) -> u64 {
    text.saturating_sub(places.saturating_mul(old)).saturating_add(places.saturating_mul(new))
}

/// Whether a text starts once more behind the start of its first place.
fn overlaps(text: &str, old: &str) -> bool {
    let step = old.chars().next().map_or(1, char::len_utf8);
    let behind = text.find(old).and_then(|at| text.get(at + step..));
    behind.is_some_and(|behind| behind.contains(old))
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
            [("", "x", "empty"), ("a", "a", "same"), ("a", "x", "2 times"), ("A", "x", "not in")]
        {
            assert!(edit("a b a", old, new, false).expect_err(old).contains(word));
        }
        assert_eq!(edit("a\r\nb\r\n", "a\nb", "x\r\ny\nz", false), done("x\r\ny\r\nz\r\n", 1));
    }

    #[test]
    fn places_that_overlap_are_several() {
        assert!(edit("ééé", "éé", "x", false).expect_err("two").contains("2 times"));
        assert_eq!(edit("ééé", "éé", "x", true), Ok(("xé".into(), 1)));
    }

    #[test]
    fn what_would_be_too_large_is_not_made() {
        let (text, new) = ("a".repeat(MAX_FILE), "b".repeat(MAX_FILE));
        assert!(edit(&text, "a", &new, true).expect_err("large").contains("replace less"));
        assert!(edit("ab", "a", &new, false).expect_err("large").contains("replace less"));
        assert_eq!(edit("ab", "ab", &new, false).expect("as large as may be").0.len(), MAX_FILE);
        assert!(edit(&text, "a", "", true).expect("nothing").0.is_empty());
        // In 32 bits these would be small, or come to a stop.
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
