//! `send`, `approve` and `answer`: what is printed, and the exit codes.

use crate::{
    agentctl::Agentctl,
    support::{Chat, Gate, ModelServer, PATIENCE, Script, Server, World, shared},
};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::Command,
    thread,
    time::{Duration, Instant},
};

#[test]
fn a_reply_is_printed_as_text_or_json_or_events() {
    let cli = Agentctl::new(shared());
    let ran = cli.run(&["send", "cli-send", "/say Good morning."]).expect(0);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("Good morning.\n", ""));
    let result = cli.run(&["send", "cli-send", "/say Again.", "--json"]).expect(0).json();
    assert_eq!((&result["status"], &result["reply"]["text"]), (&json!("completed"), &json!("Again.")));
    let events = cli.run(&["send", "cli-send", "/say Third.", "--events"]).expect(0).lines();
    assert_eq!(
        (&events[0]["type"], &events[events.len() - 1]["type"]),
        (&json!("turn.started"), &json!("turn.completed"))
    );
    let ran = cli.run_with(&["send", "cli-send", "-"], "/say From a pipe.").expect(0);
    assert_eq!(ran.out, "From a pipe.\n");
}

#[test]
fn tool_calls_are_remarks() {
    let ran = Agentctl::new(shared()).run(&[
        "send",
        "cli-tools",
        "/tool echo {\"text\": \"hi\"}\n/then /say Done.",
    ]);
    let ran = ran.expect(0);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("Done.\n", "[echo {\"text\":\"hi\"}]\n[→ hi]\n"));
}

#[test]
fn a_reply_matches_a_schema_and_has_limits() {
    let cli = Agentctl::new(shared());
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    std::fs::write(cli.folder().join("schema.json"), schema.to_string()).unwrap();
    let args = ["send", "cli-schema", "/say {\"city\": \"Oslo\"}", "--schema", "schema.json", "--json"];
    assert_eq!(cli.run(&args).expect(0).json()["reply"]["output"], json!({"city": "Oslo"}));
    let ran = cli.run(&["send", "cli-schema", "hi", "--max-steps", "0"]).expect(3);
    assert!(ran.err.contains("/budget/max_steps"), "{ran:?}");
}

#[test]
fn a_file_is_attached_to_the_first_message_of_a_session() {
    let cli = Agentctl::new(shared());
    std::fs::write(cli.folder().join("offer.txt"), "Tea: 3 EUR").unwrap();
    cli.run(&["send", "cli-file", "/say Read.", "--file", "offer.txt"]).expect(0);
    let shown = cli.run(&["sessions", "show", "cli-file", "--json"]).expect(0).json();
    let part = &shown["messages"][0]["parts"][0];
    assert_eq!(
        (&part["type"], &part["name"], &part["bytes"]),
        (&json!("file"), &json!("offer.txt"), &json!(10))
    );
    cli.run(&["send", "cli-file", "hi", "--file", "missing.txt"]).expect(1);
}

#[test]
fn exit_codes_say_how_it_ended() {
    let cli = Agentctl::new(shared());
    cli.run(&["send", "cli-codes"]).expect(2);
    let failed = cli.run(&["send", "cli-codes", "/fail auth"]).expect(1);
    assert!(failed.err.contains("error: the turn failed: "), "{failed:?}");
    let unknown = cli.run(&["send", "cli-unknown-agent", "hi", "--agent", "nobody"]).expect(4);
    assert!(unknown.err.contains("unknown_agent"), "{unknown:?}");
    cli.run(&["sessions", "show", "cli-nothing"]).expect(4);
    let ran = cli.run(&["sessions", "show", "cli-nothing", "--json"]).expect(4);
    let error: Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!((&error["error"]["code"], &error["error"]["status"]), (&json!("not_found"), &json!(404)));
    let ran = Agentctl::without_key(shared()).run(&["send", "cli-codes", "hi"]).expect(2);
    assert!(ran.err.contains("agentctl login"), "{ran:?}");
    let nowhere = cli.run(&["send", "s", "hi", "--url", "http://127.0.0.1:1"]).expect(1);
    assert!(nowhere.err.contains("no connection to 127.0.0.1:1"), "{nowhere:?}");
}

/// Creates a session in which edits need an approval, and lets it wait.
fn waiting(cli: &Agentctl, id: &str, message: &str) -> Vec<Value> {
    let rules = json!({"id": id, "permissions": {"categories": {"edit": "ask"}}});
    shared().client().post("/v1/sessions", rules).expect(201);
    let ran = cli.run(&["send", id, message]).expect(5);
    assert!(ran.err.contains(&format!("agentctl approve {id} call_")), "{ran:?}");
    let shown = cli.run(&["sessions", "show", id, "--json"]).expect(0).json();
    shown["pending"].as_array().unwrap().clone()
}

fn call(pending: &Value) -> &str {
    pending["call_id"].as_str().unwrap()
}

#[test]
fn an_approved_call_runs_and_a_declined_one_does_not() {
    let cli = Agentctl::new(shared());
    let write = "/tool write_file {\"path\": \"cli/a.txt\", \"content\": \"one\"}\n/then /say Written.";
    let pending = waiting(&cli, "cli-approve", write);
    let ran = cli.run(&["approve", "cli-approve", call(&pending[0])]).expect(0);
    assert_eq!(ran.out, "Written.\n");
    assert_eq!(cli.run(&["files", "get", "cli/a.txt"]).expect(0).out, "one");
    let other = cli.run(&["approve", "cli-approve", call(&pending[0]), "--decline"]).expect(3);
    assert!(other.err.contains("already_decided") || other.err.contains("not_waiting"), "{other:?}");

    let write = "/tool write_file {\"path\": \"cli/b.txt\", \"content\": \"two\"}\n/then /say Sorry.";
    let pending = waiting(&cli, "cli-decline", write);
    let args = ["approve", "cli-decline", call(&pending[0]), "--decline", "--reason", "Not today."];
    let ran = cli.run(&args).expect(0);
    assert!(ran.err.contains("Not today."), "{ran:?}");
    cli.run(&["files", "get", "cli/b.txt"]).expect(4);
}

#[test]
fn a_call_runs_with_other_arguments_and_is_then_always_allowed() {
    let cli = Agentctl::new(shared());
    let pending = waiting(&cli, "cli-args", "/tool write_file {\"path\": \"cli/c.txt\", \"content\": \"x\"}");
    let args = ["approve", "cli-args", call(&pending[0]), "--args", "-", "--always", "tool"];
    cli.run_with(&args, "{\"path\": \"cli/d.txt\", \"content\": \"edited\"}").expect(0);
    assert_eq!(cli.run(&["files", "get", "cli/d.txt"]).expect(0).out, "edited");
    let args = ["approve", "cli-args", call(&pending[0]), "--always", "room"];
    cli.run(&args).expect(2);
    cli.run(&["send", "cli-args", "/tool write_file {\"path\": \"cli/e.txt\", \"content\": \"x\"}"])
        .expect(0);
}

#[test]
fn a_category_is_then_always_allowed() {
    let cli = Agentctl::new(shared());
    let write = "/tool write_file {\"path\": \"cli/h.txt\", \"content\": \"x\"}";
    let pending = waiting(&cli, "cli-category", write);
    cli.run(&["approve", "cli-category", call(&pending[0]), "--always", "category"]).expect(0);
    // Another tool of the category.
    cli.run(&["send", "cli-category", "/tool delete_file {\"path\": \"cli/h.txt\"}"]).expect(0);
    cli.run(&["files", "get", "cli/h.txt"]).expect(4);
}

#[test]
fn an_approval_of_other_arguments_is_refused() {
    let cli = Agentctl::new(shared());
    let write = "/tool write_file {\"path\": \"cli/i.txt\", \"content\": \"x\"}";
    let pending = waiting(&cli, "cli-hash", write);
    let approve = |hash: &str| cli.run(&["approve", "cli-hash", call(&pending[0]), "--args-hash", hash]);
    let stale = approve("other").expect(3);
    assert!(stale.err.contains("stale_args_hash"), "{stale:?}");
    cli.run(&["files", "get", "cli/i.txt"]).expect(4);
    approve(pending[0]["args_hash"].as_str().unwrap()).expect(0);
    assert_eq!(cli.run(&["files", "get", "cli/i.txt"]).expect(0).out, "x");
}

#[test]
fn a_decision_that_leaves_another_call_waiting_returns_at_once() {
    let cli = Agentctl::new(shared());
    let write = |name: &str| format!("/tool write_file {{\"path\": \"cli/{name}\", \"content\": \"x\"}}");
    let pending = waiting(&cli, "cli-two", &format!("{}\n{}\n/then /say Both.", write("f"), write("g")));
    let ran = cli.run(&["approve", "cli-two", call(&pending[0])]).expect(5);
    assert!(ran.err.contains(call(&pending[1])) && !ran.err.contains(call(&pending[0])), "{ran:?}");
    assert_eq!(cli.run(&["approve", "cli-two", call(&pending[1])]).expect(0).out, "Both.\n");
}

#[test]
fn a_question_gets_its_answer() {
    let cli = Agentctl::new(shared());
    let ran = cli.run(&["send", "cli-ask", "/tool ask_user {\"question\": \"Which city?\"}"]).expect(5);
    assert!(ran.err.contains("Which city?"), "{ran:?}");
    let shown = cli.run(&["sessions", "show", "cli-ask", "--json"]).expect(0).json();
    let call = call(&shown["pending"][0]);
    let ran = cli.run(&["answer", "cli-ask", call, "Oslo"]).expect(2);
    assert!(ran.err.contains("a text needs quotes"), "{ran:?}");
    let ran = cli.run(&["answer", "cli-ask", call, "\"Oslo\""]).expect(0);
    assert!(ran.out.contains("Oslo"), "{ran:?}");
}

#[test]
fn an_external_call_without_a_result_fails() {
    let cli = Agentctl::new(shared());
    let camera = json!({"name": "camera", "description": "Sees.", "category": "read", "effect": "read_only"});
    let client = shared().client();
    client.put("/v1/agents/cli-camera", json!({ "external_tools": [camera] })).expect(201);
    cli.run(&["send", "cli-camera", "/tool camera {}\n/then /say Dark.", "--agent", "cli-camera"]).expect(5);
    let chat = Chat::new(client, "cli-camera");
    let waits = chat.get("")["pending"][0].clone();
    let args = ["answer", "cli-camera", call(&waits), "--error", "the camera is off"];
    assert_eq!(cli.run(&args).expect(0).out, "Dark.\n");
    let log = chat.log();
    let done = log.iter().find(|record| record["type"] == "tool.completed").unwrap();
    assert_eq!((&done["outcome"], &done["reason"]), (&json!("failure"), &json!("the camera is off")));
}

#[test]
fn ctrl_c_aborts_the_turn() {
    let cli = Agentctl::new(shared());
    let mut child = cli.command(&["send", "cli-abort", "/slow 50 100000"]).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_until(b' ', &mut Vec::new()).unwrap();
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("stopping the turn") && err.contains("the turn was canceled"), "{err}");
    assert_eq!(cli.run(&["sessions", "show", "cli-abort", "--json"]).expect(0).json()["status"], "idle");
}

#[test]
fn ctrl_c_takes_a_queued_message_back_and_leaves_the_running_turn_alone() {
    let cli = Agentctl::new(shared());
    cli.run(&["send", "cli-back", "/slow 50 100000", "--async"]).expect(0);
    let child = cli.command(&["send", "cli-back", "later"]).spawn().unwrap();
    let chat = Chat::new(shared().client(), "cli-back");
    let queue = || chat.get("")["queue"].as_array().unwrap().len();
    let deadline = Instant::now() + PATIENCE;
    while queue() == 0 {
        assert!(Instant::now() < deadline, "the message is not in the queue");
        thread::sleep(Duration::from_millis(20));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!((queue(), chat.get("")["status"].as_str()), (0, Some("running")));
    chat.post("/abort", json!({})).expect(200);
}

#[test]
fn a_busy_session_can_refuse_and_steer() {
    let cli = Agentctl::new(shared());
    let turn = cli.run(&["send", "cli-busy", "/slow 50 100000", "--async"]).expect(0);
    assert!(turn.out.starts_with("trn_"), "{turn:?}");
    let ran = cli.run(&["send", "cli-busy", "hi", "--on-busy", "reject"]).expect(3);
    assert!(ran.err.contains("session_busy"), "{ran:?}");
    assert_eq!(cli.run(&["send", "cli-busy", "/say Now.", "--on-busy", "steer"]).expect(0).out, "Now.\n");
}

#[test]
fn a_turn_is_followed_across_a_kill_of_the_server() {
    let model = ModelServer::start();
    let gate = Gate::new();
    let bindings = json!({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": model.base_url(),
        "DEFAULT_MODEL": "openai/m", "MEMORY_FLUSH": "never"});
    let mut server = Server::start(bindings);
    model.script("m", Script::text(["Half "]).hold(&gate));
    model.script("m", Script::text(["The ", "whole reply."]));
    let cli = Agentctl::new(&server);
    let mut child = cli.command(&["send", "killed", "hello"]).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_until(b' ', &mut Vec::new()).unwrap();
    gate.reached();
    server.restart();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{rest} {err}");
    assert_eq!(rest, "\nThe whole reply.\n", "{err}");
    assert!(err.contains("connecting again") && err.contains("the model writes its message again"), "{err}");
}

#[test]
fn a_message_is_sent_once_however_often_the_server_is_killed() {
    let mut server = Server::start(json!({}));
    let cli = Agentctl::new(&server);
    let said: Vec<String> = (0..6).map(|number| format!("/say Number {number}.")).collect();
    for (number, text) in said.iter().enumerate() {
        let child = cli.command(&["send", "often", text]).spawn().unwrap();
        // The kill hits another part of the command each time.
        thread::sleep(Duration::from_millis(number as u64 * 7));
        server.restart();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("Number {number}.\n"));
    }
    let shown = cli.run(&["sessions", "show", "often", "--json"]).expect(0).json();
    let messages = shown["messages"].as_array().unwrap();
    let users = messages.iter().filter(|message| message["role"] == "user");
    let texts: Vec<_> = users.map(|message| message["parts"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(texts, said);
}

#[test]
fn the_key_and_escape_sequences_stay_away_from_the_output() {
    let world = World::start();
    world.model.script("esc", Script::text(["a\u{1b}[2Jb"]));
    let chat = world.chat("openai/esc");
    let cli = Agentctl::new(&world.server);
    // Into a pipe, text is unchanged.
    assert_eq!(cli.run(&["send", &chat.id, "hi"]).expect(0).out, "a\u{1b}[2Jb\n");
    let ran = cli.run(&["sessions", "show", "none", "--url", "http://user:secret@127.0.0.1:1"]);
    assert!(!format!("{ran:?}").contains("secret"), "{ran:?}");
}
