//! `inbox`.

use crate::{
    agentctl::Agentctl,
    support::{PATIENCE, shared},
};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader},
    process::Command,
    time::Instant,
};

/// Creates a session that asks before edits, and suspends a call of it. Returns the call's id.
fn waiting(cli: &Agentctl, session: &str) -> String {
    cli.run(&["sessions", "create", session, "--ask", "edit"]).expect(0);
    let write = json!({"path": format!("{session}.md"), "content": "text"});
    let turn = cli.run(&["send", session, &format!("/tool write_file {write}"), "--json"]).expect(5).json();
    turn["pending"][0]["call_id"].as_str().unwrap().to_owned()
}

#[test]
fn calls_of_all_sessions_are_listed_with_the_command_that_resolves_them() {
    let cli = Agentctl::new(shared());
    let first = waiting(&cli, "cli-inbox-1");
    waiting(&cli, "cli-inbox-2");
    // A session notifies the inbox right after its call begins to wait.
    let deadline = Instant::now() + PATIENCE;
    let listed = loop {
        assert!(Instant::now() < deadline, "the calls are not in the inbox");
        let listed = cli.run(&["inbox", "--kind", "approval", "--json"]).expect(0).lines();
        let ours = |call: &Value| call["session"].as_str().unwrap().starts_with("cli-inbox-");
        let ours: Vec<_> = listed.into_iter().filter(ours).collect();
        if ours.len() == 2 {
            break ours;
        }
    };
    assert_eq!((&listed[0]["call_id"], &listed[0]["name"]), (&json!(first), &json!("write_file")));
    let shown = cli.run(&["inbox", "--session", "cli-inbox-1"]).expect(0).out;
    let hash = listed[0]["args_hash"].as_str().unwrap();
    assert!(shown.starts_with("cli-inbox-1: approval write_file\n"), "{shown}");
    assert!(
        shown.ends_with(&format!("  agentctl approve cli-inbox-1 {first} --args-hash {hash}\n")),
        "{shown}"
    );
    assert_eq!(cli.run(&["inbox", "--session", "cli-inbox-1", "--kind", "question"]).expect(0).out, "");
}

#[test]
fn changes_are_followed() {
    let cli = Agentctl::new(shared());
    let call = waiting(&cli, "cli-inbox-follow");
    let mut following =
        cli.command(&["inbox", "--session", "cli-inbox-follow", "--follow", "--json"]).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next(), json!({"event": "pending.reset"}));
    let added = next();
    assert_eq!((&added["event"], &added["call"]["call_id"]), (&json!("pending.added"), &json!(call)));
    cli.run(&["approve", "cli-inbox-follow", &call]).expect(0);
    let removed = next();
    assert_eq!((&removed["event"], &removed["call"]["call_id"]), (&json!("pending.removed"), &json!(call)));
    assert!(
        Command::new("kill").args(["-s", "INT", &following.id().to_string()]).status().unwrap().success()
    );
    assert_eq!(following.wait().unwrap().code(), Some(130));
}
