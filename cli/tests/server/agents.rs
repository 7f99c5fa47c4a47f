//! `agents`, `new`, `init` and `completions`.

use crate::{agentctl::Agentctl, support::shared};
use serde_json::json;
use std::{fs, path::Path, process::Command};

fn examples() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/agents").display().to_string()
}

#[test]
fn the_examples_are_stored_and_read_back() {
    let cli = Agentctl::new(shared());
    let run = |args: &[&str]| cli.run(&[&["agents"], args].concat());
    let pushed = run(&["push", &examples()]).expect(0).out;
    assert_eq!(pushed, "coder: version 1\nresearcher: version 1\nsupport: version 1\n");
    for agent in ["coder", "researcher", "support"] {
        run(&["pull", agent]).expect(0);
        run(&["diff", agent]).expect(0);
        let again = run(&["push", agent]).expect(0).out;
        assert_eq!(again, format!("{agent}: version 1\n"), "a folder that has not changed makes no version");
    }
    let listed = run(&["list", "--json"]).expect(0).lines();
    let ids: Vec<_> = listed.iter().map(|agent| agent["id"].as_str().unwrap()).collect();
    assert!(["coder", "default", "researcher", "support"].iter().all(|id| ids.contains(id)), "{ids:?}");
}

#[test]
fn a_change_is_shown_stored_and_rolled_back() {
    let cli = Agentctl::new(shared());
    let run = |args: &[&str]| cli.run(&[&["agents"], args].concat());
    let folder = cli.folder().join("cli-greeter");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("AGENTS.md"), "Greet people.\n").unwrap();
    run(&["push", "cli-greeter"]).expect(0);
    fs::write(folder.join("AGENTS.md"), "Greet everybody.\n").unwrap();
    let diff = run(&["diff", "cli-greeter"]).expect(1).out;
    assert!(diff.contains("-Greet people.\n+Greet everybody."), "{diff}");
    run(&["push", "cli-greeter", "--if-version", "7"]).expect(3);
    assert_eq!(run(&["push", "cli-greeter", "--if-version", "1"]).expect(0).out, "cli-greeter: version 2\n");
    run(&["rollback", "cli-greeter", "1"]).expect(0);
    let versions = run(&["versions", "cli-greeter", "--json"]).expect(0).lines();
    let active: Vec<_> = versions.iter().map(|version| version["active"].as_bool().unwrap()).collect();
    assert_eq!(active, [false, true]);
    let kept = run(&["pull", "cli-greeter"]).expect(1);
    assert!(kept.out.starts_with("kept "), "{kept:?}");
    run(&["pull", "cli-greeter", "--force"]).expect(0);
    assert_eq!(fs::read_to_string(folder.join("AGENTS.md")).unwrap(), "Greet people.\n");
}

#[test]
fn a_fault_names_its_place() {
    let cli = Agentctl::new(shared());
    let folder = cli.folder().join("cli-faulty");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("agent.toml"), "thinking = 'sideways'\n").unwrap();
    let ran = cli.run(&["agents", "push", "cli-faulty"]).expect(3);
    assert!(ran.err.contains("/thinking"), "{ran:?}");
    fs::write(folder.join("agent.toml"), "thinking = \n").unwrap();
    let ran = cli.run(&["agents", "push", "cli-faulty"]).expect(2);
    assert!(ran.err.contains("cli-faulty/agent.toml"), "{ran:?}");
}

#[test]
fn init_keeps_what_exists() {
    let cli = Agentctl::new(shared());
    fs::write(cli.folder().join("AGENTS.md"), "mine").unwrap();
    let ran = cli.run(&["init"]).expect(0);
    assert!(ran.out.contains("kept ./AGENTS.md") && ran.out.contains("wrote ./specs/template.md"), "{ran:?}");
    assert_eq!(fs::read_to_string(cli.folder().join("AGENTS.md")).unwrap(), "mine");
    cli.run(&["init", "--force"]).expect(0);
    assert!(fs::read_to_string(cli.folder().join("AGENTS.md")).unwrap().starts_with("# How to work"));
}

#[test]
fn new_copies_the_example_of_a_clone() {
    let cli = Agentctl::new(shared());
    let clone = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").display().to_string();
    cli.run(&["new", "my-bot", "--clone", &clone]).expect(0);
    let manifest = fs::read_to_string(cli.folder().join("my-bot/Cargo.toml")).unwrap();
    assert!(manifest.contains("name = \"my-bot\""), "{manifest}");
    cli.run(&["new", "other-bot"]).expect(2);
    let made = cli.run(&["new", "json-bot", "--clone", &clone, "--json"]).expect(0).json();
    assert!(made["folder"].as_str().unwrap().ends_with("/json-bot"), "{made}");
    assert!(cli.folder().join("json-bot/Cargo.toml").exists());
    let again = cli.run(&["new", "json-bot", "--clone", &clone]).expect(1);
    assert!(again.err.contains("json-bot exists and is not empty"), "{again:?}");
}

#[test]
fn the_completions_of_a_shell_are_a_script() {
    let cli = Agentctl::without_key(shared());
    let script = cli.run(&["completions", "bash"]).expect(0).out;
    assert!(script.contains("complete -F _agentctl"), "{script}");
    let file = cli.folder().join("agentctl.bash");
    fs::write(&file, &script).unwrap();
    assert!(Command::new("bash").arg("-n").arg(&file).status().unwrap().success(), "the script is valid");
    let json = cli.run(&["completions", "bash", "--json"]).expect(0).json();
    assert_eq!((&json["shell"], &json["script"]), (&json!("bash"), &json!(script)));
}
