//! `mcp`: a host starts the program, and speaks the protocol over its standard input and output.

use crate::{
    agentctl::Agentctl,
    support::{Chat, shared},
};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};

/// Runs the bridge with these messages of the host, and returns its messages.
fn talk(cli: &Agentctl, messages: &[Value]) -> Vec<Value> {
    let input: String = messages.iter().map(|message| format!("{message}\n")).collect();
    cli.run_with(&["mcp"], &input).expect(0).lines()
}

fn initialize() -> Value {
    let client = json!({"name": "test", "version": "1"});
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}})
}

#[test]
fn a_host_asks_an_agent() {
    let ask = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "ask_agent", "arguments": {"message": "/say Hello, host."}}});
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let answers = talk(&Agentctl::new(shared()), &[initialize(), initialized, ask]);
    assert_eq!(answers[0]["result"]["protocolVersion"], "2025-11-25");
    let answer = answers.iter().find(|message| message["id"] == 2).expect("a response");
    assert_eq!(answer["result"]["content"][0]["text"], "Hello, host.");
}

#[test]
fn a_failure_is_the_response_of_the_request() {
    let cli = Agentctl::without_key(shared());
    cli.run(&["mcp"]).expect(2);
    let cli = Agentctl::operator(shared());
    let answers = talk(&cli, &[initialize()]);
    assert_eq!(answers[0]["id"], 1);
    assert!(answers[0]["error"]["message"].is_string(), "{answers:?}");
}

#[test]
fn a_modern_host_needs_no_handshake_and_cancels_a_call() {
    let meta = json!({"progressToken": "p", "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}});
    let ask = |id: u64, message: &str, session: &str| {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"_meta": meta, "name": "ask_agent",
            "arguments": {"message": message, "session": session}}})
    };
    let cli = Agentctl::new(shared());
    let answers = talk(&cli, &[ask(1, "/say Hello, modern host.", "cli-mcp")]);
    let answer = answers.iter().find(|message| message["id"] == 1).expect("a response");
    assert_eq!(answer["result"]["content"][0]["text"], "Hello, modern host.");
    let mut child = cli.command(&["mcp"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut host = child.stdin.take().unwrap();
    writeln!(host, "{}", ask(2, "/slow 50 100000", "cli-mcp")).unwrap();
    // The first message is about the progress of the turn.
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
    writeln!(host, "{cancel}").unwrap();
    Chat::new(shared().client(), "cli-mcp").until_logged("turn.canceled");
    drop(host);
    assert!(child.wait().unwrap().success());
}
