//! `local_apply_patch`.

use super::{ToolError, parse};
use crate::runner::root::Root;
use diffy::patch_set::{FileOperation, FilePatch, ParseOptions, PatchSet};
use serde::Deserialize;
use serde_json::Value;
use std::path::PathBuf;

#[derive(Deserialize)]
struct ApplyPatch {
    patch: String,
}

/// What becomes of a file.
enum Change {
    Write { path: PathBuf, content: String, verb: &'static str },
    Remove(PathBuf),
}

pub(super) fn apply(args: Value, root: &Root) -> Result<String, ToolError> {
    let ApplyPatch { patch } = parse(args)?;
    let patch = if patch.ends_with('\n') { patch } else { patch + "\n" };
    let is_git = patch.lines().any(|line| line.starts_with("diff --git "));
    let options = if is_git { ParseOptions::gitdiff() } else { ParseOptions::unidiff() };
    let mut changes = Vec::new();
    for file in PatchSet::parse(&patch, options) {
        let file = file.map_err(|error| ToolError::Other(format!("the patch cannot be read: {error}")))?;
        changes.extend(check(&file, root, &changes)?);
    }
    if changes.is_empty() {
        return Err(ToolError::Other("the patch changes no file: it must be a unified diff".into()));
    }
    commit(changes, root)
}

/// Computes what a file's part of the patch changes, without a change.
fn check(file: &FilePatch<'_, str>, root: &Root, earlier: &[Change]) -> Result<Vec<Change>, ToolError> {
    let operation = file.operation();
    let is_prefixed = |path: &str| path == "/dev/null" || path.starts_with("a/") || path.starts_with("b/");
    let paths = match operation {
        FileOperation::Delete(path) | FileOperation::Create(path) => [path, path],
        FileOperation::Modify { original, modified } => [original, modified],
        FileOperation::Rename { from, to } | FileOperation::Copy { from, to } => [from, to],
    };
    // The paths of a rename or copy have no prefixes.
    let is_moved = operation.is_rename() || operation.is_copy();
    let strip = !is_moved && paths.iter().all(|path| is_prefixed(path));
    let [from, to] = paths.map(|path| root.relative(if strip { &path[2..] } else { path }));
    let (from, to) = (from?, to?);
    if earlier.iter().any(|change| change.path() == &to) {
        return Err(ToolError::Other(format!("{}: occurs twice in the patch", to.display())));
    }
    let is_new = operation.is_create();
    if (is_new || is_moved) && root.exists(&to) {
        return Err(ToolError::Other(format!("{}: exists already", to.display())));
    }
    let old = if is_new { String::new() } else { root.text(&from)? };
    let Some(patch) = file.patch().as_text() else {
        return Err(ToolError::Other(format!("{}: is not text", to.display())));
    };
    let misfit = |error| ToolError::Other(format!("{}: the patch does not fit: {error}", from.display()));
    let content = diffy::apply(&old, patch).map_err(misfit)?;
    if operation.is_delete() {
        if !content.is_empty() {
            return Err(ToolError::Other(format!(
                "{}: has more lines than the patch removes",
                from.display()
            )));
        }
        return Ok(vec![Change::Remove(from)]);
    }
    let verb = if is_new || operation.is_copy() { "created" } else { "changed" };
    let write = Change::Write { path: to.clone(), content, verb };
    let leaves = operation.is_rename() || operation.is_modify() && from != to;
    Ok(if leaves { vec![write, Change::Remove(from)] } else { vec![write] })
}

/// Makes the changes. Everything that can fail for want of space or permission is done before the first one.
fn commit(changes: Vec<Change>, root: &Root) -> Result<String, ToolError> {
    let (mut prepared, mut removed, mut text) = (Vec::new(), Vec::new(), String::new());
    for change in &changes {
        match change {
            Change::Write { path, content, verb } => {
                prepared.push(root.prepare(path, content)?);
                text += &format!("{verb} {}\n", path.display());
            }
            Change::Remove(path) => {
                removed.push(path);
                text += &format!("removed {}\n", path.display());
            }
        }
    }
    prepared.into_iter().try_for_each(crate::runner::root::Prepared::commit)?;
    removed.into_iter().try_for_each(|path| root.remove(path))?;
    Ok(text)
}

impl Change {
    fn path(&self) -> &PathBuf {
        match self {
            Self::Write { path, .. } | Self::Remove(path) => path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs;

    fn folder() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.txt"), "one\ntwo\nthree\n").unwrap();
        fs::write(folder.path().join("old.txt"), "bye\n").unwrap();
        let root = Root::open(folder.path()).unwrap();
        (folder, root)
    }

    const CHANGE: &str = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n";

    #[test]
    fn files_are_changed_created_and_removed() {
        let (folder, root) = folder();
        let patch = format!(
            "{CHANGE}--- /dev/null\n+++ b/sub/new.txt\n@@ -0,0 +1 @@\n+hi\n--- a/old.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n"
        );
        let text = apply(json!({"patch": patch}), &root).unwrap();
        assert_eq!(text, "changed a.txt\ncreated sub/new.txt\nremoved old.txt\n");
        assert_eq!(fs::read_to_string(folder.path().join("a.txt")).unwrap(), "one\n2\nthree\n");
        assert_eq!(fs::read_to_string(folder.path().join("sub/new.txt")).unwrap(), "hi\n");
        assert!(!folder.path().join("old.txt").exists());
    }

    #[test]
    fn the_form_of_git_and_paths_without_prefixes_are_read() {
        let (folder, root) = folder();
        let plain = CHANGE.replace("a/a.txt", "a.txt").replace("b/a.txt", "a.txt");
        assert_eq!(apply(json!({"patch": plain.trim_end()}), &root).unwrap(), "changed a.txt\n");
        let moved = "diff --git a/old.txt b/moved.txt\nsimilarity index 100%\nrename from old.txt\nrename to moved.txt\n";
        assert_eq!(apply(json!({"patch": moved}), &root).unwrap(), "changed moved.txt\nremoved old.txt\n");
        assert_eq!(fs::read_to_string(folder.path().join("moved.txt")).unwrap(), "bye\n");
    }

    #[test]
    fn a_patch_that_does_not_fit_changes_nothing() {
        let (folder, root) = folder();
        let outside = "--- /dev/null\n+++ b/../x\n@@ -0,0 +1 @@\n+hi\n";
        let hook = "--- /dev/null\n+++ b/.git/hooks/x\n@@ -0,0 +1 @@\n+hi\n";
        let misfit = "--- a/old.txt\n+++ b/old.txt\n@@ -1 +1 @@\n-hello\n+hi\n";
        let existing = "--- /dev/null\n+++ b/old.txt\n@@ -0,0 +1 @@\n+hi\n";
        for rest in [outside, hook, misfit, existing, CHANGE] {
            let error = apply(json!({"patch": format!("{CHANGE}{rest}")}), &root).unwrap_err();
            assert_eq!(
                fs::read_to_string(folder.path().join("a.txt")).unwrap(),
                "one\ntwo\nthree\n",
                "{error}"
            );
        }
        assert!(apply(json!({"patch": "please change a.txt"}), &root).is_err());
        let names = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 2, "no other file is left behind");
    }
}
