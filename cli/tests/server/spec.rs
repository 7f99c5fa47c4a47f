//! `spec`: files of a project, and specs of the workspace.

use crate::{
    agentctl::{Agentctl, Ran},
    support::{Script, World, shared},
};
use serde_json::json;
use std::fs;

const SPEC: &str = "# Goal\nTea.\n# Constraints\n# Acceptance criteria\n";

#[test]
fn a_template_is_written_checked_and_uploaded() {
    let cli = Agentctl::new(shared());
    let run = |args: &[&str]| -> Ran { cli.run(&[&["spec"], args, &["--user", "cli-spec"]].concat()) };
    assert_eq!(run(&["new", "fix-1"]).expect(0).out, "wrote specs/fix-1.md\n");
    let file = cli.folder().join("specs/fix-1.md");
    assert!(fs::read_to_string(&file).unwrap().contains("\nname: fix-1\n"));
    run(&["new", "fix-1"]).expect(2);
    run(&["new", "../fix"]).expect(2);
    assert_eq!(run(&["validate", "specs/fix-1.md"]).expect(0).out, "specs/fix-1.md: ok\n");
    assert!(run(&["list"]).expect(0).err.contains("nothing found"), "the check stores nothing");

    fs::write(&file, "# Goal\n# Constraints\n").unwrap();
    let checked = run(&["validate", "specs/fix-1.md"]).expect(1);
    assert_eq!(checked.out, "specs/fix-1.md: no heading contains \"acceptance\"\n");
    let pushed = run(&["push", "specs/fix-1.md", "--json"]).expect(0).json();
    assert_eq!(pushed["problems"], json!(["no heading contains \"acceptance\""]), "{pushed}");
    assert_eq!(run(&["validate", "fix-1", "--json"]).expect(1).json()["ok"], false);
    fs::write(&file, SPEC).unwrap();
    run(&["push", "specs/fix-1.md", "--new"]).expect(3);
    assert_eq!(run(&["push", "specs/fix-1.md"]).expect(0).err, "");
    assert_eq!(run(&["validate", "fix-1"]).expect(0).out, "fix-1: ok\n");
    let listed = run(&["list", "--json"]).expect(0).lines();
    assert_eq!((listed.len(), &listed[0]["name"]), (1, &json!("fix-1")));
    run(&["validate", "coffee"]).expect(4);
    run(&["validate", "a b.md"]).expect(2);
}

#[test]
fn a_model_writes_a_spec_into_the_workspace_and_the_folder() {
    let world = World::start();
    let cli = Agentctl::new(&world.server);
    let run = |args: &[&str]| cli.run(&[&["spec"], args].concat());
    world.model.script("m", Script::text([SPEC]));
    let written = run(&["prompt", "tea", "--prompt", "Tea, please."]).expect(0);
    assert_eq!(written.out, "wrote specs/tea.md\n");
    assert_eq!(fs::read_to_string(cli.folder().join("specs/tea.md")).unwrap(), SPEC);
    run(&["validate", "tea"]).expect(0);
    let asked = world.received("m");
    assert!(asked[0].body.to_string().contains("Tea, please."), "{}", asked[0].body);

    run(&["prompt", "tea", "--prompt", "Again."]).expect(2);
    run(&["prompt", "tea", "--prompt", "Again.", "--print"]).expect(3);
    assert_eq!(world.received("m").len(), 1, "nothing is asked twice");
    world.model.script("m", Script::text(["# Goal"]));
    let again = run(&["prompt", "tea", "--prompt", "Again.", "--overwrite"]).expect(0);
    assert!(again.err.contains("tea: no heading contains \"constraint\""), "{again:?}");
    assert_eq!(fs::read_to_string(cli.folder().join("specs/tea.md")).unwrap(), "# Goal\n");

    world.model.script("m", Script::text([SPEC]));
    let printed = cli.run_with(&["spec", "generate", "coffee", "--prompt-file", "-"], "Coffee.").expect(0);
    assert_eq!(printed.out, SPEC);
    assert!(!cli.folder().join("specs/coffee.md").exists());
    run(&["generate", "mate"]).expect(2);
}

#[test]
fn the_demo_model_writes_a_valid_spec_or_the_one_of_a_directive() {
    let cli = Agentctl::new(shared());
    let run = |args: &[&str]| cli.run(&[&["spec"], args, &["--user", "cli-demo"]].concat());
    let written = run(&["generate", "demo", "--prompt", "The tests pass."]).expect(0);
    assert!(written.out.starts_with("## Goal\n") && written.err.is_empty(), "{written:?}");
    run(&["validate", "demo"]).expect(0);
    let given =
        run(&["generate", "demo", "--prompt", "/spec # Goal", "--overwrite", "--json"]).expect(0).json();
    assert_eq!((&given["content"], &given["ok"]), (&json!("# Goal\n"), &json!(false)));
}
