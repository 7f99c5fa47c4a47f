//! `acp`: an editor starts the program, and speaks the protocol over its standard input and output.

use crate::{agentctl::Agentctl, support::shared};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

/// An editor. Its reads end when the program does, which the drop kills.
struct Editor {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last: u64,
    /// The updates of the sessions so far.
    updates: Vec<Value>,
}

impl Editor {
    fn start(cli: &Agentctl) -> Self {
        let mut child = cli.command(&["acp"]).stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut editor = Self { child, input, output, last: 0, updates: Vec::new() };
        let client = json!({"name": "test", "version": "1"});
        let initialized = editor.call(
            "initialize",
            json!({"protocolVersion": 1, "clientCapabilities": {}, "clientInfo": client}),
        );
        assert_eq!(initialized["agentCapabilities"]["loadSession"], true);
        editor
    }

    fn write(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the program has ended: {:?}", self.updates);
        serde_json::from_str(&line).unwrap()
    }

    fn request(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        let id = self.last;
        self.write(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Reads until the response, or until a request of the program.
    fn until(&mut self, id: u64) -> Value {
        loop {
            let message = self.read();
            if message["method"] == "session/update" {
                self.updates.push(message["params"]["update"].clone());
            } else if message.get("method").is_some() || message["id"] == id {
                return message;
            }
        }
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        let response = self.until(id);
        assert!(response.get("error").is_none(), "{response}");
        response["result"].clone()
    }

    fn prompt(&mut self, session: &Value, text: &str) -> u64 {
        let prompt = json!([{"type": "text", "text": text}]);
        self.request("session/prompt", json!({"sessionId": session, "prompt": prompt}))
    }

    /// Returns the text of the updates of this kind, and forgets all updates.
    fn text(&mut self, kind: &str) -> String {
        let updates = std::mem::take(&mut self.updates);
        let chunks = updates.iter().filter(|update| update["sessionUpdate"] == kind);
        chunks.filter_map(|update| update["content"]["text"].as_str()).collect()
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn new_session(editor: &mut Editor, cli: &Agentctl) -> Value {
    let params = json!({"cwd": cli.folder(), "mcpServers": []});
    editor.call("session/new", params)["sessionId"].clone()
}

#[test]
fn a_prompt_streams_its_reply_and_the_session_can_be_loaded() {
    let cli = Agentctl::new(shared());
    let mut editor = Editor::start(&cli);
    let session = new_session(&mut editor, &cli);
    let id = editor.prompt(&session, "/tool echo {\"text\": \"hi\"}\n/then /say Good morning.");
    assert_eq!(editor.until(id)["result"]["stopReason"], "end_turn");
    let kinds: Vec<_> = editor.updates.iter().map(|update| update["sessionUpdate"].clone()).collect();
    assert!(kinds.contains(&json!("tool_call")) && kinds.contains(&json!("tool_call_update")), "{kinds:?}");
    assert_eq!(editor.text("agent_message_chunk"), "Good morning.");
    drop(editor);

    let mut editor = Editor::start(&cli);
    editor.call("session/load", json!({"sessionId": session, "cwd": cli.folder(), "mcpServers": []}));
    assert!(editor.text("user_message_chunk").starts_with("/tool echo"));
    let unknown = editor.request("session/load", json!({"sessionId": "none", "cwd": "/", "mcpServers": []}));
    assert!(editor.until(unknown)["error"]["data"].as_str().unwrap().contains("not_found"));
}

#[test]
fn the_editor_asks_for_approvals_and_the_next_prompt_answers_a_question() {
    let cli = Agentctl::new(shared());
    let mut editor = Editor::start(&cli);
    let session = new_session(&mut editor, &cli);
    let path = format!("/v1/sessions/{}", session.as_str().unwrap());
    shared().client().patch(&path, json!({"permissions": {"categories": {"edit": "ask"}}})).expect(200);
    let write = "/tool write_file {\"path\": \"cli/acp.txt\", \"content\": \"approved\"}\n/then /say Done.";
    let id = editor.prompt(&session, write);
    let asked = editor.until(id);
    assert_eq!(asked["method"], "session/request_permission");
    let option = asked["params"]["options"][0]["optionId"].clone();
    let outcome = json!({"outcome": "selected", "optionId": option});
    editor.write(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"outcome": outcome}}));
    assert_eq!(editor.until(id)["result"]["stopReason"], "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "Done.");
    assert_eq!(cli.run(&["files", "get", "cli/acp.txt"]).expect(0).out, "approved");

    let id = editor.prompt(&session, "/tool ask_user {\"question\": \"Which city?\"}");
    assert_eq!(editor.until(id)["result"]["stopReason"], "end_turn");
    assert!(editor.text("agent_message_chunk").contains("Which city?"));
    let id = editor.prompt(&session, "Oslo");
    assert_eq!(editor.until(id)["result"]["stopReason"], "end_turn");
    assert!(editor.text("agent_message_chunk").contains("Oslo"));
}

#[test]
fn a_text_decides_nothing_that_the_editor_has_not_shown() {
    let cli = Agentctl::new(shared());
    let mut editor = Editor::start(&cli);
    let session = new_session(&mut editor, &cli);
    let id = session.as_str().unwrap();
    let rules = json!({"permissions": {"categories": {"edit": "ask"}}});
    shared().client().patch(&format!("/v1/sessions/{id}"), rules).expect(200);
    let write = "/tool write_file {\"path\": \"cli/unseen.txt\", \"content\": \"x\"}\n/then /say Done.";
    cli.run(&["send", id, write]).expect(5);
    let prompt = editor.prompt(&session, "y");
    let asked = editor.until(prompt);
    assert_eq!(asked["method"], "session/request_permission");
    let outcome = json!({"outcome": {"outcome": "cancelled"}});
    editor.write(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": outcome}));
    assert_eq!(editor.until(prompt)["result"]["stopReason"], "cancelled");
    cli.run(&["files", "get", "cli/unseen.txt"]).expect(4);
}

#[test]
fn two_open_questions_are_asked_one_after_the_other() {
    let cli = Agentctl::new(shared());
    let mut editor = Editor::start(&cli);
    let session = new_session(&mut editor, &cli);
    let ask = "/tool ask_user {\"question\": \"Which city?\"}\n/tool ask_user {\"question\": \"Which day?\"}";
    for (text, shown) in [(ask, "Which city?"), ("Oslo", "Which day?"), ("Monday", "Monday")] {
        let id = editor.prompt(&session, text);
        assert_eq!(editor.until(id)["result"]["stopReason"], "end_turn");
        let text = editor.text("agent_message_chunk");
        assert!(text.contains(shown), "{text}");
    }
}

#[test]
fn a_prompt_is_canceled_and_the_mode_is_switched() {
    let cli = Agentctl::new(shared());
    let mut editor = Editor::start(&cli);
    let session = new_session(&mut editor, &cli);
    let id = editor.prompt(&session, "/slow 50 100000");
    while editor.text("agent_message_chunk").is_empty() {
        let message = editor.read();
        editor.updates.push(message["params"]["update"].clone());
    }
    editor.write(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}));
    assert_eq!(editor.until(id)["result"]["stopReason"], "cancelled");
    editor.call("session/set_mode", json!({"sessionId": session, "modeId": "plan"}));
    let shown = cli.run(&["sessions", "show", session.as_str().unwrap(), "--json"]).expect(0).json();
    assert_eq!(shown["mode"], "plan");
}
