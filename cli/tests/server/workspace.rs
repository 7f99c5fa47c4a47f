//! The folder of a runner as the workspace of a session.

#![cfg(target_os = "linux")]

use crate::{
    agentctl::Agentctl,
    runner::{Project, kill, until},
    support::{Server, shared},
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{fs, process::Command};

/// A session of an agent whose files are in the folder of a runner.
fn project(server: &Server, session: &str) -> Project {
    let cli = Agentctl::new(server);
    let agent = cli.folder().join("folder-agent");
    fs::create_dir(&agent).unwrap();
    fs::write(agent.join("agent.toml"), "[workspace]\nkind = \"runner\"\n").unwrap();
    Project::of(server, cli, session, &agent)
}

/// Makes these calls, each in a step of its own, without waiting for their end.
fn call(project: &Project, calls: &[(&str, Value)]) {
    let calls: Vec<String> = calls.iter().map(|(name, args)| format!("/tool {name} {args}")).collect();
    project.chat.say(&format!("{}\n/then /say Done.", calls.join("\n/then ")));
}

#[test]
fn the_file_tools_work_on_the_folder_and_the_servers_files_stay_there() {
    let project = project(shared(), "workspace-runner");
    if !project.has_sandbox() {
        return;
    }
    let runner = project.runner(&[]);
    call(
        &project,
        &[
            ("list_files", json!({})),
            ("edit_file", json!({"path": "a.txt", "old_string": "one", "new_string": "two"})),
            ("read_file", json!({"path": "a.txt"})),
            ("grep_files", json!({"pattern": "tw."})),
            ("write_file", json!({"path": "plans/p.md", "content": "plan\n"})),
            ("read_file", json!({"path": "plans/p.md"})),
            ("list_files", json!({"path": "plans"})),
            ("read_file", json!({"path": "../secret"})),
            ("list_files", json!({"path": "memory"})),
        ],
    );
    assert_eq!(
        project.outcomes(),
        [
            "a.txt (4 bytes)",
            "replaced 1 occurrence in a.txt, now 4 bytes",
            "a.txt: lines 1-1 of 1\n     1\ttwo\n",
            "a.txt:1:two",
            "wrote 5 bytes to plans/p.md",
            "plans/p.md: lines 1-1 of 1\n     1\tplan\n",
            "plans/p.md (5 bytes)",
            "`../secret` is not a valid path: `.` and `..` are not allowed; write the path from the workspace's root",
            "nothing found",
        ]
    );
    assert_eq!(project.file("a.txt"), "two\n");
    assert!(!project.root.join("plans").exists());
    kill(runner);
}

#[test]
fn an_edit_of_a_killed_runner_is_unknown_and_not_repeated() {
    let project = project(shared(), "workspace-killed");
    if !project.has_sandbox() {
        return;
    }
    let runner = project.runner(&[]);
    // Reading a pipe blocks for as long as nothing is written.
    let pipe = project.root.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    call(&project, &[("edit_file", json!({"path": "pipe", "old_string": "one", "new_string": "two"}))]);
    let journals = project.cli.folder().join("state/agentctl/runner");
    let begun = || {
        let journal = fs::read_dir(&journals).ok()?.next()?.ok()?.path();
        fs::read_to_string(journal).ok().filter(|text| text.contains("started"))
    };
    until("the edit has begun", || begun().is_some());
    kill(runner);
    fs::remove_file(&pipe).unwrap();
    fs::write(&pipe, "one\n").unwrap();
    let runner = project.runner(&[]);
    let outcomes = project.outcomes();
    assert!(outcomes[0].starts_with("the outcome is unknown: the runner was stopped"), "{outcomes:?}");
    assert_eq!((outcomes.len(), project.file("pipe").as_str()), (1, "one\n"));
    kill(runner);
}

#[test]
fn a_call_waits_for_a_runner_that_starts_later() {
    let project = project(shared(), "workspace-late");
    if !project.has_sandbox() {
        return;
    }
    let args = json!({"path": "a.txt"});
    let said = project.chat.say(&format!("/tool read_file {args}\n/then /say Done."));
    assert_eq!((&said["status"], &said["pending"][0]["kind"]), (&json!("waiting"), &json!("external")));
    let runner = project.runner(&[]);
    assert_eq!(project.outcomes(), ["a.txt: lines 1-1 of 1\n     1\tone\n"]);
    kill(runner);
}
