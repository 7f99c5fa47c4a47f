//! `chat`, in a terminal and line by line.

use crate::{
    agentctl::Agentctl,
    support::{Gate, Script, World, shared},
    terminal::{CTRL_C, ENTER, PAGE_UP, SHIFT_TAB, Terminal, UP},
};
use serde_json::json;
use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

/// Creates a session of the demo model with permission rules.
fn session(id: &str, rules: serde_json::Value) {
    shared().client().post("/v1/sessions", json!({"id": id, "permissions": rules})).expect(201);
}

#[test]
fn text_appears_while_it_is_written() {
    let (world, gate) = (World::start(), Gate::new());
    world.model.script("stream", Script::text(["Hello **from** "]).hold(&gate).say("here."));
    let chat = world.chat("openai/stream");
    let mut terminal = Terminal::start(&Agentctl::new(&world.server), &["chat", &chat.id]);
    terminal.wait_for("idle");
    terminal.send("Good morning");
    let screen = terminal.wait_for("Hello from");
    assert!(screen.contains("› Good morning") && screen.contains("running"), "{screen}");
    gate.open();
    terminal.wait_for("Hello from here.");
    terminal.wait_for("idle");
    // The conversation is there again in the next chat.
    drop(terminal);
    let terminal = Terminal::start(&Agentctl::new(&world.server), &["chat", "--continue"]);
    terminal.wait_for("Hello from here.");
}

#[test]
fn an_approval_is_given_by_a_key_and_declined_with_a_reason() {
    session("cli-keys", json!({"categories": {"edit": "ask"}}));
    let mut terminal = Terminal::start(&Agentctl::new(shared()), &["chat", "cli-keys"]);
    terminal.wait_for("idle");
    terminal.send("/tool write_file {\"path\": \"cli/key.txt\", \"content\": \"by key\"}");
    terminal.wait_for("y approve");
    terminal.press("y");
    terminal.wait_for("✓ write_file");
    terminal.wait_for("idle");
    assert_eq!(Agentctl::new(shared()).run(&["files", "get", "cli/key.txt"]).expect(0).out, "by key");
    terminal.send("/tool write_file {\"path\": \"cli/no.txt\", \"content\": \"x\"}");
    terminal.wait_for("y approve");
    terminal.send("better tomorrow");
    terminal.wait_for("better tomorrow");
    terminal.wait_for("✗ write_file");
    terminal.wait_for("idle");
    Agentctl::new(shared()).run(&["files", "get", "cli/no.txt"]).expect(4);
}

#[test]
fn a_question_and_a_plan_are_answered() {
    let mut terminal = Terminal::start(&Agentctl::new(shared()), &["chat", "cli-answers"]);
    terminal.wait_for("idle");
    terminal.send("/tool ask_user {\"question\": \"Which color?\", \"options\": [{\"label\": \"red\"}, {\"label\": \"blue\"}]}");
    terminal.wait_for("2. blue");
    terminal.wait_for("a number, or your answer");
    terminal.press("2");
    terminal.wait_for("✓ ask_user");
    terminal.wait_for("idle");
    terminal.press(SHIFT_TAB);
    terminal.wait_for("The mode is now plan.");
    terminal.press("/tool plan_write {\"content\": \"1. Look around.\"}");
    // A second line of the same message.
    terminal.press("\n");
    terminal.send("/then /tool plan_exit {}");
    terminal.wait_for("1. Look around.");
    terminal.wait_for("y approve");
    terminal.press("y");
    terminal.wait_for("The mode is now build.");
    terminal.wait_for("idle");
}

#[test]
fn ctrl_c_aborts_the_turn_and_then_leaves() {
    let mut terminal = Terminal::start(&Agentctl::new(shared()), &["chat", "cli-stop"]);
    terminal.wait_for("idle");
    terminal.send("/slow 50 100000");
    terminal.wait_for("running");
    terminal.press(CTRL_C);
    terminal.wait_for("Stopped.");
    terminal.wait_for("idle");
    // Any other key takes the first one back.
    terminal.press(UP);
    terminal.wait_without("press Ctrl-C again");
    terminal.press(CTRL_C);
    terminal.wait_for("press Ctrl-C again");
    terminal.press(CTRL_C);
    let (code, screen) = terminal.end();
    assert_eq!(code, 0);
    assert!(screen.contains("continue with: agentctl chat cli-stop"), "{screen}");
}

#[test]
fn messages_wait_in_the_queue_and_leave_it() {
    let mut terminal = Terminal::start(&Agentctl::new(shared()), &["chat", "cli-queue"]);
    terminal.wait_for("idle");
    terminal.send("/slow 50 100000");
    terminal.wait_for("running");
    terminal.send("one");
    terminal.wait_for("1 queued");
    terminal.send("two");
    terminal.wait_for("2 queued");
    terminal.send("/drop 1");
    terminal.wait_for("1 queued");
    terminal.send("/drop 7");
    terminal.wait_for("the queue has no message with this number");
    terminal.send("/steer /say Something else.");
    terminal.wait_for("Something else.");
    let screen = terminal.wait_for("idle");
    assert!(!screen.contains("queued"), "{screen}");
}

#[test]
fn tasks_earlier_messages_and_scrolling() {
    let mut terminal = Terminal::start(&Agentctl::new(shared()), &["chat", "cli-scroll"]);
    terminal.wait_for("idle");
    let tasks = json!({"tasks": [{"content": "Look around", "status": "in_progress"}, {"content": "Report", "status": "pending"}]});
    terminal.send(&format!("/tool task_write {tasks}"));
    terminal.wait_for("▸ Look around");
    terminal.wait_for("idle");
    terminal.send("/slow 1 900");
    terminal.wait_for("running");
    terminal.wait_for("idle");
    terminal.wait_without("✓ task_write");
    terminal.press(&PAGE_UP.repeat(9));
    terminal.wait_for("✓ task_write");
    terminal.press(UP);
    terminal.press(UP);
    terminal.wait_for("› /tool task_write");
}

#[test]
fn the_chat_goes_on_after_the_server_was_killed() {
    let (mut world, gate) = (World::start(), Gate::new());
    world.model.script("kill", Script::text(["Only half of "]).hold(&gate));
    world.model.script("kill", Script::text(["The whole reply."]));
    world.model.script("kill", Script::text(["Still here."]));
    let chat = world.chat("openai/kill");
    let mut terminal = Terminal::start(&Agentctl::new(&world.server), &["chat", &chat.id]);
    terminal.wait_for("idle");
    terminal.send("Hello");
    terminal.wait_for("Only half of");
    gate.reached();
    world.server.kill();
    terminal.wait_for("connecting again");
    world.server.restart();
    let screen = terminal.wait_for("The whole reply.");
    assert!(!screen.contains("Only half"), "{screen}");
    terminal.wait_for("idle");
    terminal.send("And now?");
    terminal.wait_for("Still here.");
}

#[test]
fn a_refused_request_is_shown() {
    let mut terminal = Terminal::start(&Agentctl::new(shared()), &["chat", "cli-refused"]);
    terminal.wait_for("idle");
    terminal.press("/mode sideways");
    terminal.press(ENTER);
    terminal.wait_for("validation_failed");
}

#[test]
fn ctrl_c_ends_a_plain_chat_between_two_messages() {
    let cli = Agentctl::new(shared());
    let mut child = cli.command(&["chat", "cli-plain-stop"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "/say One.").unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    let id = child.id().to_string();
    // The turn may still run: the first Ctrl-C then aborts it.
    for _ in 0..100 {
        if child.try_wait().unwrap().is_some() {
            break;
        }
        assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
        thread::sleep(Duration::from_millis(100));
    }
    // Otherwise a program that ignores the signal would run for ever.
    let _ = child.kill();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn without_a_terminal_each_line_is_a_message_or_an_answer() {
    session("cli-plain", json!({"categories": {"edit": "ask"}}));
    let cli = Agentctl::new(shared());
    let write = "/tool write_file {\"path\": \"cli/plain.txt\", \"content\": \"plain\"}";
    let ran =
        cli.run_with(&["chat", "cli-plain"], &format!("/say One.\n\n{write}\ny\n/say Two.\n")).expect(0);
    assert!(ran.out.starts_with("One.\n") && ran.out.ends_with("Two.\n"), "{ran:?}");
    assert!(ran.err.contains("waiting: approval write_file"), "{ran:?}");
    assert_eq!(cli.run(&["files", "get", "cli/plain.txt"]).expect(0).out, "plain");
    // The input ends while the turn waits; the next chat asks again.
    let ask = "/tool ask_user {\"question\": \"Which?\", \"options\": [{\"label\": \"red\"}]}\n";
    cli.run_with(&["chat", "cli-plain"], ask).expect(5);
    let ran = cli.run_with(&["chat", "cli-plain"], "1\n").expect(0);
    assert!(ran.err.contains("1. red") && ran.out.contains("red"), "{ran:?}");
    cli.run_with(&["chat", "cli-plain"], "/fail auth\n").expect(1);
}
