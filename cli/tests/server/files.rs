//! `files` and `skills`.

use crate::{agentctl::Agentctl, support::shared};
use std::fs;

#[test]
fn a_file_is_written_read_and_removed() {
    let cli = Agentctl::new(shared());
    let user = ["--user", "cli-files"];
    let run = |args: &[&str], input: &str| cli.run_with(&[args, &user].concat(), input);
    run(&["files", "put", "-", "notes/a b.md", "--new"], "Tea").expect(0);
    let again = run(&["files", "put", "-", "notes/a b.md", "--new"], "Tea").expect(3);
    assert!(again.err.contains("precondition_failed"), "{again:?}");
    assert_eq!(run(&["files", "get", "notes/a b.md"], "").expect(0).out, "Tea");
    run(&["files", "get", "notes/a b.md", "-o", "copy.md"], "").expect(0);
    assert_eq!(fs::read_to_string(cli.folder().join("copy.md")).unwrap(), "Tea");
    assert_eq!(run(&["files", "ls", "notes/", "--json"], "").expect(0).json()["path"], "notes/a b.md");
    run(&["files", "rm", "notes/a b.md"], "").expect(0);
    run(&["files", "get", "notes/a b.md"], "").expect(4);
    run(&["files", "rm", "../../memory"], "").expect(2);
}

#[test]
fn a_folder_is_compared_pushed_and_pulled() {
    let cli = Agentctl::new(shared());
    let folder = cli.folder().join("site");
    fs::create_dir_all(folder.join("pages")).unwrap();
    fs::write(folder.join("index.md"), "one\ntwo\n").unwrap();
    fs::write(folder.join("pages/a.md"), "a\n").unwrap();
    let run = |args: &[&str]| {
        let place = ["--prefix", "www", "--user", "cli-sync"];
        cli.run(&[&["files"], args, &place].concat())
    };
    assert_eq!(
        run(&["push", "site", "--dry-run"]).expect(0).out,
        "created   index.md\ncreated   pages/a.md\n"
    );
    assert_eq!(run(&["push", "site"]).expect(0).out, "created   index.md\ncreated   pages/a.md\n");
    let same = run(&["push", "site"]).expect(0);
    assert_eq!((same.out.as_str(), same.err.as_str()), ("", "nothing to do\n"));
    run(&["diff", "site"]).expect(0);

    fs::write(folder.join("index.md"), "one\n2\n").unwrap();
    fs::remove_file(folder.join("pages/a.md")).unwrap();
    let diff = run(&["diff", "site"]).expect(1).out;
    assert!(diff.contains("--- a/index.md\n+++ b/index.md\n") && diff.contains("-two\n+2"), "{diff}");
    assert!(!diff.contains("pages/a.md"), "{diff}");
    let diff = run(&["diff", "site", "--delete"]).expect(1).out;
    assert!(diff.contains("--- a/pages/a.md"), "{diff}");
    let kept = run(&["pull", "site"]).expect(1);
    assert!(kept.out.contains("kept      index.md") && kept.out.contains("created   pages/a.md"), "{kept:?}");
    assert_eq!(run(&["pull", "site", "--force"]).expect(0).out, "replaced  index.md\n");
    fs::remove_file(folder.join("pages/a.md")).unwrap();
    assert_eq!(run(&["push", "site", "--delete"]).expect(0).out, "removed   pages/a.md\n");
    run(&["pull", "fresh"]).expect(0);
    assert_eq!(fs::read_to_string(cli.folder().join("fresh/index.md")).unwrap(), "one\ntwo\n");
    run(&["push", "missing"]).expect(2);
    run(&["diff", "missing"]).expect(2);
    cli.run_with(&["files", "put", "-", "www/a/.Git/config", "--user", "cli-sync"], "x").expect(0);
    let refused = run(&["pull", "fresh", "--force"]).expect(1);
    assert!(refused.out.contains("refused   a/.Git/config"), "{refused:?}");
    assert!(!cli.folder().join("fresh/a").exists());
}

#[test]
fn a_skill_is_pushed_as_a_draft_and_promoted() {
    let cli = Agentctl::new(shared());
    let folder = cli.folder().join("greet");
    fs::create_dir_all(&folder).unwrap();
    let run = |args: &[&str]| cli.run(&[&["skills"], args, &["--user", "cli-skills"]].concat());
    run(&["push", "greet"]).expect(2);
    fs::write(
        folder.join("SKILL.md"),
        "---\nname: greet\ndescription: Greets new customers.\n---\n\nSay hello.\n",
    )
    .unwrap();
    run(&["promote", "greet"]).expect(4);
    run(&["push", "greet", "--draft"]).expect(0);
    run(&["promote", "greet", "--version", "00000000000000000000000000000000"]).expect(3);
    run(&["promote", "greet"]).expect(0);
    let skill = run(&["list", "--json"]).expect(0).lines().remove(0);
    assert_eq!((skill["name"].as_str(), skill["draft"].as_bool()), (Some("greet"), Some(false)));
}
