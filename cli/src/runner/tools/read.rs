//! `local_read`.

use super::{ToolError, parse};
use crate::runner::root::Root;
use serde::Deserialize;
use serde_json::Value;

/// Number of lines that one call returns.
const MAX_LINES: usize = 400;

#[derive(Deserialize)]
struct Read {
    path: String,
    first_line: Option<usize>,
    lines: Option<usize>,
}

pub(super) fn read(args: Value, root: &Root) -> Result<String, ToolError> {
    let Read { path, first_line, lines } = parse(args)?;
    let text = root.text(&root.relative(&path)?)?;
    let skipped = first_line.unwrap_or(1).max(1) - 1;
    let wanted = lines.unwrap_or(MAX_LINES).clamp(1, MAX_LINES);
    let total = text.lines().count();
    let shown: String = text.split_inclusive('\n').skip(skipped).take(wanted).collect();
    let end = (skipped + wanted).min(total);
    Ok(if total == 0 {
        "[the file is empty]".into()
    } else if skipped >= total {
        format!("[the file has only {total} lines]")
    } else if end < total {
        format!("{shown}[lines {} to {end} of {total}; continue with first_line {}]", skipped + 1, end + 1)
    } else {
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_part_of_a_file_says_where_it_continues() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "one\ntwo\nthree").unwrap();
        std::fs::write(folder.path().join("empty"), "").unwrap();
        let root = Root::open(folder.path()).unwrap();
        let read = |args| read(args, &root).unwrap();
        assert_eq!(read(json!({"path": "a"})), "one\ntwo\nthree");
        let part = read(json!({"path": "a", "first_line": 2, "lines": 1}));
        assert_eq!(part, "two\n[lines 2 to 2 of 3; continue with first_line 3]");
        assert_eq!(read(json!({"path": "a", "first_line": 9})), "[the file has only 3 lines]");
        assert_eq!(read(json!({"path": "empty"})), "[the file is empty]");
    }
}
