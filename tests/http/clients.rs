//! The official clients of other protocols, unchanged, against the real Worker. Each test runs one file of
//! `tests/clients` with Node.

use crate::support::{DEV_API_KEY, Server, shared};
use serde_json::json;
use std::{path::Path, process::Command};

fn run(file: &str) {
    run_against(shared(), file);
}

fn run_against(server: &Server, file: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("tests/clients");
    assert!(folder.join("node_modules").exists(), "the clients are not installed; first run: make test");
    let output = Command::new(root.join("node_modules/.bin/node"))
        .args(["--test", "--test-reporter=spec", file])
        .current_dir(folder)
        .env("URL", format!("http://{}", server.address()))
        .env("KEY", DEV_API_KEY)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a2a() {
    run("a2a.test.mjs");
}

#[test]
fn ag_ui() {
    run("ag-ui.test.mjs");
}

#[test]
fn ai_sdk() {
    run_against(&Server::start(json!({"SUBAGENTS": "[]"})), "ai.test.mjs");
}

#[test]
fn event_source() {
    run("eventsource.test.mjs");
}

#[test]
fn several_clients_of_one_turn() {
    run("faces.test.mjs");
}

#[test]
fn mcp() {
    run("mcp.test.mjs");
}

#[test]
fn openai_chat_completions() {
    run("openai.test.mjs");
}

#[test]
fn openai_responses() {
    run("responses.test.mjs");
}
