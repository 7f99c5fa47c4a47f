//! `sessions` and `export`.

use crate::{agentctl::Agentctl, support::shared};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, io::Read as _};

#[test]
fn sessions_are_listed_shown_copied_and_erased() {
    let cli = Agentctl::new(shared());
    cli.run(&["send", "cli-list", "/say First."]).expect(0);
    let listed = cli.run(&["sessions", "list", "--json"]).expect(0).lines();
    assert!(listed.iter().any(|session| session["id"] == "cli-list"), "{listed:?}");
    assert_eq!(cli.run(&["sessions", "list", "--limit", "1", "--json"]).expect(0).lines().len(), 1);
    let shown = cli.run(&["sessions", "show", "cli-list"]).expect(0).out;
    assert!(shown.contains("status: idle") && shown.ends_with("assistant\nFirst.\n"), "{shown}");
    let fork = cli.run(&["sessions", "fork", "cli-list"]).expect(0).out;
    let copy = cli.run(&["sessions", "show", fork.trim(), "--json"]).expect(0).json();
    assert_eq!(copy["messages"].as_array().unwrap().len(), 2);
    cli.run(&["sessions", "rm", "cli-list", fork.trim()]).expect(0);
    cli.run(&["sessions", "show", "cli-list"]).expect(4);
}

#[test]
fn a_session_is_created_with_rules() {
    let cli = Agentctl::new(shared());
    let args = ["sessions", "create", "cli-create", "--title", "Careful", "--mode", "plan", "--ask", "edit"];
    assert_eq!(cli.run(&args).expect(0).out, "cli-create\n");
    let shown = cli.run(&["sessions", "show", "cli-create", "--json"]).expect(0).json();
    assert_eq!((&shown["title"], &shown["mode"]), (&json!("Careful"), &json!("plan")));
    assert_eq!(shown["permissions"]["categories"], json!({"edit": "ask"}));
}

#[test]
fn a_session_is_followed_until_it_is_idle() {
    let cli = Agentctl::new(shared());
    cli.run(&["send", "cli-tail", "/say Early."]).expect(0);
    cli.run(&["send", "cli-tail", "/slow 20 20", "--async"]).expect(0);
    let events = cli
        .run(&["sessions", "tail", "cli-tail", "--after", "0", "--until-idle", "--json"])
        .expect(0)
        .lines();
    let numbers: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    let ended = events.iter().filter(|event| event["type"] == "turn.completed").count();
    assert_eq!(ended, 2);
    let text = cli.run(&["sessions", "tail", "cli-tail", "--after", "0", "--until-idle"]).expect(0).out;
    assert!(text.contains("turn.started /say Early."), "{text}");
    assert_eq!(
        cli.run(&["sessions", "tail", "cli-tail", "-n", "1", "--until-idle"]).expect(0).out.lines().count(),
        1
    );
}

#[test]
fn an_export_has_every_event_and_artifact() {
    let cli = Agentctl::new(shared());
    let long = "x".repeat(13_000);
    let message = format!("/tool echo {}", json!({ "text": long }));
    cli.run_with(&["send", "cli-export", "-"], &message).expect(0);
    cli.run(&["export", "cli-export", "-o", "session.zip"]).expect(0);
    let mut archive =
        zip::ZipArchive::new(fs::File::open(cli.folder().join("session.zip")).unwrap()).unwrap();
    let names: BTreeSet<String> = archive.file_names().map(str::to_owned).collect();
    let artifact = names.iter().find(|name| name.starts_with("artifacts/")).expect("an artifact").clone();
    assert_eq!(names.len(), 3, "{names:?}");
    let mut read = |name: &str| {
        let mut text = String::new();
        archive.by_name(name).unwrap().read_to_string(&mut text).unwrap();
        text
    };
    assert!(read(&artifact).contains(&long));
    let events = read("events.ndjson");
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let session: Value = serde_json::from_str(&read("session.json")).unwrap();
    assert!(events.len() as u64 >= session["last_seq"].as_u64().unwrap());
    cli.run(&["export", "cli-nothing", "-o", "nothing.zip"]).expect(4);
    assert!(!cli.folder().join("nothing.zip").exists());
}
