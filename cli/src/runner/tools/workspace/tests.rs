use super::*;
use crate::runner::tools::compute;
use edge_harness::{
    ports::{Filesystem as _, filesystem::Precondition},
    types::FilePath,
};
use pretty_assertions::assert_eq;
use serde_json::json;
use std::{fs, os::unix::fs::symlink, path::Path};
use tempfile::TempDir;

/// A folder `inner` next to a file `secret`.
fn folder() -> (TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir_all(inner.join("src")).unwrap();
    fs::write(folder.path().join("secret"), "secret text").unwrap();
    fs::write(inner.join("a.txt"), "one\ntwo\n").unwrap();
    fs::write(inner.join("src/b.rs"), "fn two() {}\n").unwrap();
    let root = Root::open(&inner).unwrap();
    (folder, root)
}

/// Makes these calls, and returns their results; errors begin with `!`.
fn said(root: &Root, calls: &[(&str, Value)]) -> Vec<String> {
    let call = |(name, args): &(&str, Value)| match compute(name, args, root) {
        Ok(text) => text,
        Err(error) => format!("!{error}"),
    };
    calls.iter().map(call).collect()
}

#[test]
fn each_tool_works_on_the_folder_with_the_results_of_the_server() {
    let (folder, root) = folder();
    let said = said(
        &root,
        &[
            ("write_file", json!({"path": "/notes/a.md", "content": "one\ntwo\n"})),
            ("write_file", json!({"path": "notes/a.md", "content": "other"})),
            ("write_file", json!({"path": "notes/a.md", "content": "one\ntwo\nthree\n", "overwrite": true})),
            ("edit_file", json!({"path": "notes/a.md", "old_string": "two", "new_string": "2"})),
            ("read_file", json!({"path": "notes/a.md", "offset": 2})),
            ("grep_files", json!({"pattern": "THREE", "ignore_case": true})),
            ("grep_files", json!({"pattern": "two", "path": "src"})),
            ("grep_files", json!({"pattern": "two", "path": "a.txt"})),
            ("glob_files", json!({"pattern": "*.md"})),
            ("move_file", json!({"from": "notes/a.md", "to": "b.md"})),
            ("move_file", json!({"from": "b.md", "to": "a.txt"})),
            ("list_files", json!({})),
            ("list_files", json!({"path": "src"})),
            ("list_files", json!({"path": "none"})),
            ("delete_file", json!({"path": "b.md"})),
            ("delete_file", json!({"path": "b.md"})),
            ("read_file", json!({"path": "b.md"})),
        ],
    );
    assert_eq!(
        said,
        [
            "wrote 8 bytes to notes/a.md",
            "!`notes/a.md` already exists, with 8 bytes; read it and use edit_file, or set overwrite to replace it",
            "wrote 14 bytes to notes/a.md",
            "replaced 1 occurrence in notes/a.md, now 12 bytes",
            "notes/a.md: lines 2-3 of 3\n     2\t2\n     3\tthree\n",
            "notes/a.md:3:three",
            "src/b.rs:1:fn two() {}",
            "a.txt:2:two",
            "notes/a.md",
            "moved notes/a.md to b.md",
            "!`a.txt` already exists; choose another path or delete it",
            "a.txt (8 bytes)\nb.md (12 bytes)\nsrc/b.rs (12 bytes)",
            "src/b.rs (12 bytes)",
            "nothing found",
            "deleted b.md",
            "no such file: b.md; nothing to delete",
            "!no such file: `b.md`; use list_files to see the files",
        ]
    );
    assert_eq!(fs::read_to_string(folder.path().join("inner/a.txt")).unwrap(), "one\ntwo\n");
}

#[test]
fn no_path_and_no_link_leads_out_of_the_folder() {
    let (folder, root) = folder();
    let inner = folder.path().join("inner");
    symlink("../secret", inner.join("file")).unwrap();
    symlink("..", inner.join("up")).unwrap();
    symlink("../new", inner.join("dangling")).unwrap();
    let edit = |path: &str| json!({"path": path, "old_string": "secret", "new_string": "public"});
    for (name, args) in [
        ("read_file", json!({"path": "file"})),
        ("read_file", json!({"path": "up/secret"})),
        ("read_file", json!({"path": "../secret"})),
        ("edit_file", edit("file")),
        ("edit_file", edit("up/secret")),
        ("write_file", json!({"path": "file", "content": "x", "overwrite": true})),
        ("write_file", json!({"path": "up/secret", "content": "x", "overwrite": true})),
        ("write_file", json!({"path": "dangling", "content": "x", "overwrite": true})),
        ("write_file", json!({"path": "up/other", "content": "x"})),
        ("move_file", json!({"from": "up/secret", "to": "mine"})),
        ("move_file", json!({"from": "file", "to": "mine"})),
        ("move_file", json!({"from": "a.txt", "to": "up/a.txt"})),
    ] {
        let result = compute(name, &args, &root);
        assert!(result.is_err(), "{name} {args}: {result:?}");
    }
    let found = said(
        &root,
        &[
            ("grep_files", json!({"pattern": "secret"})),
            ("grep_files", json!({"pattern": "secret", "path": "up"})),
            ("list_files", json!({})),
            ("delete_file", json!({"path": "up/secret"})),
        ],
    );
    assert_eq!(found[..3], ["nothing found", "nothing found", "a.txt (8 bytes)\nsrc/b.rs (12 bytes)"]);
    assert_eq!(fs::read_to_string(folder.path().join("secret")).unwrap(), "secret text");
    assert!(!folder.path().join("new").exists() && !folder.path().join("other").exists());
}

#[test]
fn a_link_within_the_folder_is_followed_and_stays_a_link() {
    let (folder, root) = folder();
    let inner = folder.path().join("inner");
    symlink("a.txt", inner.join("link")).unwrap();
    let edit = json!({"path": "link", "old_string": "one", "new_string": "1"});
    assert_eq!(said(&root, &[("edit_file", edit)]), ["replaced 1 occurrence in link, now 6 bytes"]);
    assert_eq!(fs::read_to_string(inner.join("a.txt")).unwrap(), "1\ntwo\n");
    assert!(inner.join("link").is_symlink());
}

#[test]
fn the_files_of_git_are_not_changed() {
    let (folder, root) = folder();
    let git = folder.path().join("inner/.git");
    fs::create_dir(&git).unwrap();
    fs::write(git.join("config"), "[core]\n").unwrap();
    for (name, args) in [
        ("write_file", json!({"path": ".git/hooks/x", "content": "x"})),
        ("edit_file", json!({"path": ".git/config", "old_string": "core", "new_string": "x"})),
        ("delete_file", json!({"path": ".git/config"})),
        ("move_file", json!({"from": ".git/config", "to": "config"})),
        ("move_file", json!({"from": "a.txt", "to": ".git/a"})),
    ] {
        let error = compute(name, &args, &root).unwrap_err().to_string();
        assert!(error.contains("only by Git"), "{name}: {error}");
    }
    assert_eq!(fs::read_to_string(git.join("config")).unwrap(), "[core]\n");
    assert!(!said(&root, &[("list_files", json!({}))])[0].contains(".git/"));
}

#[test]
fn a_file_that_changes_or_appears_at_the_same_time_is_not_overwritten() {
    let (folder, root) = folder();
    let (inner, files) = (folder.path().join("inner"), Folder::new(root));
    let path = |text: &str| FilePath::parse(text).unwrap();
    let read = block_on(files.read(&path("a.txt"))).unwrap();
    fs::write(inner.join("a.txt"), "ONE\ntwo\n").unwrap();
    let stale = Precondition::IfMatch(read.entry.etag);
    let written = block_on(files.write(&path("a.txt"), "mine".into(), &stale));
    assert_eq!(written, Err(FileError::Conflict));
    assert_eq!(block_on(files.delete(&path("a.txt"), &stale)), Err(FileError::Conflict));
    let created = block_on(files.write(&path("src/b.rs"), "mine".into(), &Precondition::CreateOnly));
    assert_eq!(created, Err(FileError::Conflict));
    assert_eq!(block_on(files.rename(&path("a.txt"), &path("src/b.rs"))), Err(FileError::Conflict));
    assert_eq!(fs::read_to_string(inner.join("a.txt")).unwrap(), "ONE\ntwo\n");
    assert_eq!(fs::read_to_string(inner.join("src/b.rs")).unwrap(), "fn two() {}\n");
    // No temporary file is left.
    assert_eq!(fs::read_dir(&inner).unwrap().count(), 2);
}

#[test]
fn binary_and_large_files_are_refused_and_do_not_end_a_search() {
    let (folder, root) = folder();
    let inner = folder.path().join("inner");
    fs::write(inner.join("0.bin"), [0xff, 0xfe, b'o', b'n', b'e']).unwrap();
    // More than all files that a search reads.
    fs::File::create(inner.join("0.log")).unwrap().set_len(300 << 20).unwrap();
    let said = said(
        &root,
        &[
            ("read_file", json!({"path": "0.bin"})),
            ("read_file", json!({"path": "0.log"})),
            ("edit_file", json!({"path": "0.bin", "old_string": "one", "new_string": "two"})),
            ("grep_files", json!({"pattern": "^one"})),
            ("write_file", json!({"path": "big", "content": "x".repeat((4 << 20) + 1)})),
        ],
    );
    assert_eq!(said[0], "!`0.bin` is not text: it has 5 bytes");
    assert_eq!(said[1], "!`0.log` has more than 8 MiB");
    assert_eq!(said[2], "!`0.bin` is not text");
    assert_eq!(
        said[3],
        "a.txt:1:one\n[1 files of more than 8388608 bytes were left out]\n[1 binary files were skipped]"
    );
    assert!(said[4].contains("a file may have at most 4194304"), "{}", said[4]);
    assert!(!inner.join("big").exists());
}

#[test]
fn lists_leave_out_what_git_ignores_and_continue_after_a_path() {
    let (folder, root) = folder();
    let inner = folder.path().join("inner");
    fs::write(inner.join(".gitignore"), "target/\n").unwrap();
    fs::create_dir(inner.join("target")).unwrap();
    fs::write(inner.join("target/out"), "one\n").unwrap();
    fs::create_dir(inner.join("many")).unwrap();
    for number in 0..250 {
        fs::write(inner.join(format!("many/{number:03}")), "x").unwrap();
    }
    let said = said(
        &root,
        &[
            ("grep_files", json!({"pattern": "one"})),
            ("list_files", json!({"path": "many"})),
            ("list_files", json!({"path": "many", "after": "many/199"})),
            ("read_file", json!({"path": "target/out"})),
            ("delete_file", json!({"path": "target/out"})),
        ],
    );
    assert_eq!(said[0], "a.txt:1:one");
    assert!(
        said[1].ends_with("many/199 (1 bytes)\n[more files follow; set after to the last path of this list]")
    );
    assert!(said[2].starts_with("many/200 (1 bytes)\n") && said[2].ends_with("many/249 (1 bytes)"));
    assert_eq!(said[3..], ["target/out: lines 1-1 of 1\n     1\tone\n", "deleted target/out"]);
    assert!(!Path::new(&inner.join("target/out")).exists());
}

#[test]
fn more_files_are_searched_than_on_the_server() {
    let (folder, root) = folder();
    let inner = folder.path().join("inner/many");
    fs::create_dir(&inner).unwrap();
    for number in 0..600 {
        fs::write(inner.join(number.to_string()), if number == 599 { "needle" } else { "hay" }).unwrap();
    }
    assert_eq!(said(&root, &[("grep_files", json!({"pattern": "needle"}))]), ["many/599:1:needle"]);
}

#[test]
fn wrong_arguments_are_explained() {
    let (_folder, root) = folder();
    let error = compute("read_file", &json!({"file": "a.txt"}), &root).unwrap_err().to_string();
    assert!(error.starts_with("the arguments do not match the schema"), "{error}");
}
