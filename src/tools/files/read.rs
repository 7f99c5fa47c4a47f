//! The `read_file` tool.

use super::{FileAccess, FileToolError, Files, MAX_OUTPUT, key, path};
use crate::agent::{Tool, ToolContext, ToolError};
use crate::types::{Category, Effect, Invalid, Source};
use crate::workspace::{Layer, layout};
use schemars::JsonSchema;
use serde::Deserialize;

/// Maximum number of characters of a line to show.
const MAX_LINE: usize = 1_000;
/// Maximum number of characters for the lines of a result; the rest is for header and notes.
const MAX_LINES_CHARS: usize = MAX_OUTPUT - 800;
/// Number of bytes to read with `byte_offset`.
const MAX_LENGTH: usize = 8_000;

/// The `read_file` tool.
pub struct ReadFile(pub(super) Files);

/// The arguments of `read_file`.
#[derive(Deserialize, JsonSchema)]
pub struct Args {
    /// Path of the file, from the workspace's root, such as `knowledge/KNOWLEDGE.md`.
    path: String,
    /// The first line to read, starting at 1.
    offset: Option<usize>,
    /// Number of lines to read; as many as fit if omitted or 0.
    limit: Option<usize>,
    /// Reads bytes instead of lines, from this offset, starting at 0. For files with very long lines.
    byte_offset: Option<usize>,
    /// Number of bytes to read: 8000 by default and at most.
    byte_length: Option<usize>,
}

impl Tool for ReadFile {
    type Args = Args;
    type Output = String;
    const NAME: &'static str = "read_file";
    const DESCRIPTION: &'static str = "Reads a text file of the workspace. The first line of the result states which lines \
         of the file follow. Each line is preceded by its number and a tab, which are not part of the file.";
    const EFFECT: Effect = Effect::ReadOnly;
    const CATEGORY: Category = Category::Read;

    fn resource_keys(&self, args: &Args) -> Vec<String> {
        vec![key(&args.path)]
    }

    async fn run(&self, args: Args, cx: ToolContext) -> Result<String, ToolError> {
        let read = cx.unless_canceled(apply(&args, &self.0.open(&cx))).await?;
        let text = read.map_err(|error| self.0.failed(&cx, error))?;
        let path = path(&args.path)?;
        if path.as_str().starts_with(layout::KNOWLEDGE) {
            cx.cite(Source::Local { path: path.to_string(), title: None });
        }
        Ok(text)
    }
}

pub(super) async fn apply(args: &Args, access: &FileAccess) -> Result<String, FileToolError> {
    let path = path(&args.path)?;
    let (file, layer) = access.files.read(&path).await.map_err(FileToolError::at(path.as_str()))?;
    let text = std::str::from_utf8(&file.bytes)
        .map_err(|_| ToolError::new(format!("`{path}` is not text: it has {} bytes", file.bytes.len())))?;
    let shared = if layer == Layer::Shared { ", shared by all users" } else { "" };
    let (place, body) = if args.byte_offset.is_some() || args.byte_length.is_some() {
        bytes(text, args.byte_offset.unwrap_or(0), args.byte_length.unwrap_or(MAX_LENGTH))
    } else if text.is_empty() {
        Ok(("empty".to_owned(), String::new()))
    } else {
        lines(text, args.offset.unwrap_or(1).max(1), args.limit.filter(|n| *n > 0).unwrap_or(usize::MAX))
    }
    .map_err(|fault| ToolError::new(format!("`{path}` {fault}")))?;
    Ok(format!("{path}: {place}{shared}\n{body}"))
}

/// Returns the characters that start within these bytes. Adjacent ranges add up to the whole text.
fn bytes(text: &str, offset: usize, length: usize) -> Result<(String, String), Invalid> {
    let total = text.len();
    if offset >= total {
        return Err(Invalid(format!("has {total} bytes; offset {offset} is past the end")));
    }
    let start = text.ceil_char_boundary(offset);
    let end = text.ceil_char_boundary(offset.saturating_add(length.clamp(4, MAX_LENGTH)).min(total));
    let part = text.get(start..end).unwrap_or_default();
    Ok((format!("bytes {start}-{} of {total}", end.saturating_sub(1)), part.to_owned()))
}

/// Returns as many lines as fit, up to `limit`, starting at line `first`.
fn lines(text: &str, first: usize, limit: usize) -> Result<(String, String), Invalid> {
    let (mut body, mut chars, mut at) = (String::new(), 0, 0);
    let (mut total, mut last, mut is_full) = (0, 0, false);
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        total += 1;
        if total < first || total - first >= limit || is_full {
            continue;
        }
        let shown = format!("{total:>6}\t{}\n", cut(line, start));
        chars += shown.chars().count();
        is_full = chars > MAX_LINES_CHARS && last > 0;
        if !is_full {
            last = total;
            body.push_str(&shown);
        }
    }
    if first > total {
        return Err(Invalid(format!("has {total} lines; line {first} does not exist")));
    }
    if last < total {
        body.push_str(&format!("[more lines follow; continue with offset {}]", last + 1));
    }
    Ok((format!("lines {first}-{last} of {total}"), body))
}

/// Returns a line without its end. A very long line is cut, with a note on where to continue.
fn cut(line: &str, start: usize) -> String {
    let line = line.strip_suffix('\n').unwrap_or(line);
    let line = line.strip_suffix('\r').unwrap_or(line);
    let Some((end, _)) = line.char_indices().nth(MAX_LINE) else { return line.to_owned() };
    let (head, rest) = line.split_at(end);
    format!("{head}… [{} more bytes in this line; continue with byte_offset {}]", rest.len(), start + end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_numbered_and_paged() {
        let text = "one\ntwo\r\n\nfour";
        let shown = "     1\tone\n     2\ttwo\n     3\t\n     4\tfour\n";
        assert_eq!(lines(text, 1, usize::MAX), Ok(("lines 1-4 of 4".into(), shown.into())));
        let shown = "     2\ttwo\n     3\t\n[more lines follow; continue with offset 4]";
        assert_eq!(lines(text, 2, 2), Ok(("lines 2-3 of 4".into(), shown.into())));
        assert_eq!(lines(text, 5, 1), Err("has 4 lines; line 5 does not exist".into()));
        assert_eq!(lines("one\n", 1, 9).expect("a line").0, "lines 1-1 of 1");
    }

    #[test]
    fn a_very_long_line_continues_by_bytes() {
        let text = format!("short\n{}\nend", "é".repeat(50_000));
        let (place, body) = lines(&text, 1, usize::MAX).expect("lines");
        assert_eq!(place, "lines 1-3 of 3");
        assert!(body.chars().count() < 1_200);
        assert!(body.contains("[98000 more bytes in this line; continue with byte_offset 2006]"), "{body}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn pages_and_byte_ranges_add_up_to_the_whole_text(
            text in prop::collection::vec("[aé山\\n]{0,700}", 1..30).prop_map(|parts| parts.concat()),
            length in 40..9_000_usize,
        ) {
            prop_assume!(!text.is_empty());
            let total = text.split_inclusive('\n').count();
            let (mut read, mut next) = (String::new(), 1);
            while next <= total {
                let (place, body) = lines(&text, next, usize::MAX).expect("lines");
                prop_assert!(body.chars().count() + place.len() <= MAX_OUTPUT - 600);
                for line in body.lines().filter(|line| !line.starts_with('[')) {
                    read.push_str(line.split_once('\t').expect("a number").1);
                    read.push('\n');
                    next += 1;
                }
            }
            if text.lines().all(|line| line.chars().count() <= MAX_LINE) {
                prop_assert_eq!(read.trim_end_matches('\n'), text.trim_end_matches('\n'));
            }
            let (mut read, mut offset) = (String::new(), 0);
            while offset < text.len() {
                read.push_str(&bytes(&text, offset, length).expect("bytes").1);
                offset += length.min(MAX_LENGTH);
            }
            prop_assert_eq!(read, text);
        }
    }
}
