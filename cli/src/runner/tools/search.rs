//! `local_search`.

use super::{ToolError, parse, walk::walk};
use crate::runner::root::Root;
use grep_regex::RegexMatcherBuilder;
use grep_searcher::{BinaryDetection, SearcherBuilder, sinks::Lossy};
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write as _;

/// Number of lines that one call returns.
const MAX_MATCHES: usize = 50;
/// Length of a line in the result, in characters.
const MAX_LINE: usize = 300;

#[derive(Deserialize)]
struct Search {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
}

pub(super) fn search(args: Value, root: &Root) -> Result<String, ToolError> {
    let Search { pattern, path, glob, ignore_case } = parse(args)?;
    let mut matcher = RegexMatcherBuilder::new();
    matcher.case_insensitive(ignore_case).line_terminator(Some(b'\n'));
    let matcher = matcher.build(&pattern).map_err(|error| ToolError::Other(error.to_string()))?;
    let walk = walk(root, path.as_deref(), glob.as_deref(), None)?;
    let mut searcher = SearcherBuilder::new().binary_detection(BinaryDetection::quit(0)).build();
    let (mut text, mut matches) = (String::new(), 0);
    for path in &walk.files {
        // A link that leads out, or a file that has just been removed, has no matches.
        let Ok(file) = root.file(path) else { continue };
        let sink = Lossy(|number, line| {
            matches += 1;
            if matches <= MAX_MATCHES {
                let line: String = line.trim_end().chars().take(MAX_LINE).collect();
                let _ = writeln!(text, "{}:{number}: {line}", path.display());
            }
            Ok(matches <= MAX_MATCHES)
        });
        searcher.search_file(&matcher, &file.into_std(), sink)?;
        if matches > MAX_MATCHES {
            text += "[there are more matches; narrow the pattern, the path or the glob]\n";
            return Ok(text);
        }
    }
    if matches == 0 {
        text += "[nothing found]\n";
    }
    if walk.is_cut {
        text += "[the folder has more files than were searched; name a subfolder]\n";
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    #[test]
    fn matching_lines_are_listed_up_to_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.txt"), "one\nTwo\nthree\n").unwrap();
        fs::write(folder.path().join("b.bin"), "t\0\nthree\n").unwrap();
        fs::write(folder.path().join("c.md"), "x\n".repeat(99)).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("users")).unwrap();
        let root = Root::open(folder.path()).unwrap();
        let search = |args| search(args, &root).unwrap();
        assert_eq!(search(json!({"pattern": "^t"})), "a.txt:3: three\n");
        let all = search(json!({"pattern": "^t", "ignore_case": true, "glob": "*.txt"}));
        assert_eq!(all, "a.txt:2: Two\na.txt:3: three\n");
        assert_eq!(search(json!({"pattern": "root:"})), "[nothing found]\n");
        let many = search(json!({"pattern": "x", "path": "c.md"}));
        assert_eq!(many.lines().count(), MAX_MATCHES + 1);
    }
}
