//! Clients against the real Worker: the project's own in `clients`, and the official ones of other protocols, unchanged.
//! Each test runs one file with Node or Python.

use crate::support::{DEV_API_KEY, Server, shared};
use serde_json::json;
use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// The folder of the clients of other protocols.
const OTHERS: &str = "tests/clients";

fn run(folder: &str, file: &str) {
    run_against(shared(), folder, file);
}

/// Runs a file of a folder, whose packages are installed, with Node's test runner.
pub fn run_against(server: &Server, folder: &str, file: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join(folder);
    assert!(folder.join("node_modules").exists(), "the clients are not installed; first run: make test");
    let node = root.join("node_modules/.bin/node");
    // A test that fails may leave a connection open, which would keep Node running.
    let limits = ["--test-timeout=120000", "--test-force-exit"];
    test(server, &node, &[&["--test", "--test-reporter=spec"], &limits[..], &[file]].concat(), &folder);
}

fn run_python(module: &str) {
    let home = || PathBuf::from(env::var_os("HOME").unwrap()).join(".cache/edge-harness");
    let cache = env::var_os("EDGE_HARNESS_CACHE").map_or_else(home, PathBuf::from);
    let python = cache.join("clients/bin/python");
    assert!(python.exists(), "the clients for Python are not installed; first run: make test");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/python");
    test(shared(), &python, &["-B", "-m", "unittest", "-v", module], &folder);
}

fn test(server: &Server, program: &Path, arguments: &[&str], folder: &Path) {
    let output = Command::new(program)
        .args(arguments)
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
    run(OTHERS, "a2a.test.mjs");
}

#[test]
fn ag_ui() {
    run(OTHERS, "ag-ui.test.mjs");
}

#[test]
fn ai_sdk() {
    run_against(&Server::start(json!({"SUBAGENTS": "[]"})), OTHERS, "ai.test.mjs");
}

#[test]
fn event_source() {
    run(OTHERS, "eventsource.test.mjs");
}

#[test]
fn several_clients_of_one_turn() {
    run(OTHERS, "faces.test.mjs");
}

#[test]
fn mcp() {
    run(OTHERS, "mcp.test.mjs");
}

#[test]
fn mcp_conformance() {
    run(OTHERS, "mcp-conformance.test.mjs");
}

#[test]
fn openai_chat_completions() {
    run(OTHERS, "openai.test.mjs");
}

#[test]
fn openai_responses() {
    run(OTHERS, "responses.test.mjs");
}

#[test]
fn typescript() {
    run("clients/ts", "test/client.test.mjs");
}

#[test]
fn typescript_in_a_worker() {
    run("clients/ts", "test/workers.test.mjs");
}

#[test]
fn typescript_is_small() {
    run("clients/ts", "test/size.test.mjs");
}

#[test]
fn a2a_in_python() {
    run_python("test_a2a");
}

#[test]
fn openai_in_python() {
    run_python("test_openai");
}
