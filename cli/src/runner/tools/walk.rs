//! The files below the folder, without those that Git ignores.

use super::ToolError;
use crate::runner::root::Root;
use globset::{GlobBuilder, GlobMatcher};
use ignore::{DirEntry, WalkBuilder};
use std::path::{Path, PathBuf};

/// Number of files that a tool looks at.
const MAX_FILES: usize = 20_000;

/// A walk through the files.
pub(super) struct Walk {
    /// Paths relative to the folder, in order.
    pub(super) files: Vec<PathBuf>,
    /// Whether there are more files than a tool looks at.
    pub(super) is_cut: bool,
}

/// Lists the files at a path that match the pattern.
pub(super) fn walk(
    root: &Root,
    path: Option<&str>,
    glob: Option<&str>,
    depth: Option<usize>,
) -> Result<Walk, ToolError> {
    walk_up_to(MAX_FILES, root, path, glob, depth)
}

/// Lists up to `limit` files at a path that match the pattern.
pub(super) fn walk_up_to(
    limit: usize,
    root: &Root,
    path: Option<&str>,
    glob: Option<&str>,
    depth: Option<usize>,
) -> Result<Walk, ToolError> {
    let start = root.relative(path.unwrap_or("."))?;
    let glob = glob.map(matcher).transpose()?;
    let is_wanted = |path: &Path| glob.as_ref().is_none_or(|glob| glob.is_match(path));
    let entries = WalkBuilder::new(root.path().join(&start))
        .hidden(false)
        .require_git(false)
        .follow_links(false)
        .max_depth(depth)
        .sort_by_file_path(Path::cmp)
        .filter_entry(|entry| entry.file_name() != ".git")
        .build();
    let mut walk = Walk { files: Vec::new(), is_cut: false };
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) if error.depth() == Some(0) => return Err(missing(&start, error)),
            // A folder that cannot be read hides only itself.
            Err(_) => continue,
        };
        let Some(path) = file(&entry, root, depth).filter(|path| is_wanted(path)) else { continue };
        if walk.files.len() == limit {
            walk.is_cut = true;
            break;
        }
        walk.files.push(path);
    }
    Ok(walk)
}

/// Returns the path of a file, and with a depth also that of a folder at which the walk ends.
fn file(entry: &DirEntry, root: &Root, depth: Option<usize>) -> Option<PathBuf> {
    let path = entry.path().strip_prefix(root.path()).ok()?;
    let kind = entry.file_type()?;
    let is_end = depth == Some(entry.depth()) && entry.depth() > 0;
    // A path with a slash at its end is that of a folder.
    if kind.is_dir() { is_end.then(|| path.join("")) } else { Some(path.to_owned()) }
}

fn missing(path: &Path, error: ignore::Error) -> ToolError {
    match error.into_io_error() {
        Some(error) => ToolError::file(path, error),
        None => ToolError::Other(format!("{}: cannot be read", path.display())),
    }
}

/// A pattern without a slash matches names in all folders, as in `.gitignore`.
fn matcher(glob: &str) -> Result<GlobMatcher, ToolError> {
    let pattern = if glob.contains('/') { glob.to_owned() } else { format!("**/{glob}") };
    let built = GlobBuilder::new(&pattern).literal_separator(true).build();
    built.map(|glob| glob.compile_matcher()).map_err(|error| ToolError::Other(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn ignored_files_links_and_those_of_git_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("a.rs", ""),
            ("src/b.rs", ""),
            ("src/deep/c.md", ""),
            ("target/x.rs", ""),
            (".gitignore", "target/\n"),
            (".git/config", ""),
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        std::os::unix::fs::symlink("/etc", folder.path().join("src/etc")).unwrap();
        let root = Root::open(folder.path()).unwrap();
        let list = |path, glob, depth| {
            let walk = walk(&root, path, glob, depth).unwrap();
            walk.files.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(list(None, None, None), [".gitignore", "a.rs", "src/b.rs", "src/deep/c.md", "src/etc"]);
        assert_eq!(list(None, Some("*.rs"), None), ["a.rs", "src/b.rs"]);
        assert_eq!(list(Some("src"), Some("src/*.rs"), None), ["src/b.rs"]);
        assert_eq!(list(None, None, Some(1)), [".gitignore", "a.rs", "src/"]);
        assert!(walk(&root, Some("none"), None, None).is_err());
        assert!(walk(&root, Some("../"), None, None).is_err());
    }
}
