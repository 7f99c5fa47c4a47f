//! `runner`: calls of a session run in a folder of this machine.

#![cfg(target_os = "linux")]

use crate::{
    agentctl::Agentctl,
    support::{Chat, PATIENCE, Server, http::receive, shared},
    terminal::{CTRL_C, Terminal},
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

/// A folder with a runner for a session.
pub struct Project {
    pub cli: Agentctl,
    pub chat: Chat,
    pub root: PathBuf,
}

impl Project {
    /// Creates a session of the example's coder.
    fn new(server: &Server, session: &str) -> Self {
        let cli = Agentctl::new(server);
        let coder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/agents/coder");
        Self::of(server, cli, session, &coder)
    }

    /// Creates a session of the agent in a folder.
    pub fn of(server: &Server, cli: Agentctl, session: &str, agent: &Path) -> Self {
        cli.run(&["agents", "push", &agent.display().to_string()]).expect(0);
        let id = agent.file_name().unwrap().to_str().unwrap();
        server.client().post("/v1/sessions", json!({"id": session, "agent": id})).expect(201);
        let root = cli.folder().join("project");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("a.txt"), "one\n").unwrap();
        let chat = Chat::new(server.client(), session);
        Self { cli, chat, root }
    }

    /// Starts a runner.
    pub fn runner(&self, options: &[&str]) -> Child {
        let args = ["runner", "--root", "project", "--session", &self.chat.id, "--json"];
        self.cli.command(&[&args, options].concat()).spawn().unwrap()
    }

    /// Starts a runner for all sessions of the coder.
    fn runner_of_agent(&self) -> Child {
        self.cli.command(&["runner", "--root", "project", "--agent", "coder", "--json"]).spawn().unwrap()
    }

    /// Returns whether this machine has a sandbox.
    pub fn has_sandbox(&self) -> bool {
        let ran =
            self.cli.run(&["runner", "call", "local_shell", "{\"command\": \"true\"}", "--root", "project"]);
        if ran.code != 0 {
            eprintln!("SKIPPED: {}", ran.err);
        }
        ran.code == 0
    }

    /// Sends a message that calls the shell, and returns the call that waits for an approval.
    fn ask(&self, command: &str) -> String {
        let call = json!({ "command": command });
        let answer = self.chat.say(&format!("/tool local_shell {call}\n/then /say Done."));
        assert_eq!(answer["pending"][0]["kind"], "approval", "{answer}");
        answer["pending"][0]["call_id"].as_str().unwrap().to_owned()
    }

    /// Starts a runner and a command that first writes into a pipe, and waits until the command has begun.
    fn begin(&self, command: &str) -> (Child, Alive) {
        let pipe = Alive::pipe(self);
        let runner = self.runner(&[]);
        let call = self.ask(&format!("{}{command}", Alive::COMMAND));
        self.approve(&call);
        (runner, Alive::begun(&pipe))
    }

    fn approve(&self, call: &str) {
        let path = self.chat.path(&format!("/approvals/{call}"));
        let client = self.chat.client.with_header("prefer", "respond-async");
        let decided = client.post(&path, json!({"decision": "approve"}));
        assert!(decided.status < 300, "{decided:?}");
    }

    /// Returns the outcomes of the session's tool calls: what they returned, or why they failed. The server verifies what
    /// the other calls have changed; without `--verify` that says nothing.
    pub fn outcomes(&self) -> Vec<String> {
        self.chat.until_idle();
        let completed = self.chat.log().into_iter().filter(|event| event["type"] == "tool.completed");
        let text = |event: Value| {
            let value = if event["reason"].is_null() { &event["result"] } else { &event["reason"] };
            value.as_str().map_or_else(|| value.to_string(), str::to_owned)
        };
        completed.map(text).filter(|text| !text.starts_with("Nothing was checked")).collect()
    }

    pub fn file(&self, name: &str) -> String {
        fs::read_to_string(self.root.join(name)).unwrap_or_default()
    }
}

/// A pipe that a command holds open while it runs.
struct Alive(BufReader<fs::File>);

impl Alive {
    /// The start of a command that writes a line into the pipe, and counts how often it has run.
    const COMMAND: &str = "exec 5>alive; echo ran >> count; echo begun >&5; ";

    fn pipe(project: &Project) -> PathBuf {
        let path = project.root.join("alive");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }

    /// Waits until the command has begun.
    fn begun(path: &Path) -> Self {
        let path = path.to_owned();
        // Opening it blocks until the command opens it, too.
        let reader = within_time(move || {
            let mut reader = BufReader::new(fs::File::open(path).unwrap());
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            assert_eq!(line, "begun\n");
            reader
        });
        Self(reader)
    }

    /// Waits until no process of the command is left.
    fn ended(mut self) {
        within_time(move || self.0.read_to_end(&mut Vec::new()).unwrap());
    }
}

/// Does something that may block, but not for ever.
fn within_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(PATIENCE).expect("what the test waits for happens")
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap().success());
}

pub fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Waits until a condition holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_call_runs_after_its_approval_and_the_turn_goes_on() {
    let project = Project::new(shared(), "runner-approved");
    if !project.has_sandbox() {
        return;
    }
    // What it writes when it fails is cut.
    let runner = project.runner(&["--verify", "grep -q one a.txt || (seq 3000; false)"]);
    let call = project.ask("echo $((6 * 7)) > b.txt; cat a.txt b.txt");
    assert_eq!(project.file("b.txt"), "", "nothing runs before the approval");
    project.approve(&call);
    let checked = "$ grep -q one a.txt || (seq 3000; false)\n";
    assert_eq!(project.outcomes(), ["one\n42\n", checked], "the command may have changed something");
    assert_eq!(project.file("b.txt"), "42\n");

    let declined = project.ask("echo no > c.txt");
    project
        .chat
        .post(&format!("/approvals/{declined}"), json!({"decision": "decline", "reason": "No."}))
        .expect(200);
    assert_eq!(project.file("c.txt"), "");

    // These need no approval. The server verifies the patch, and the model repairs nothing.
    let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n";
    let calls = [
        ("local_read", json!({"path": "a.txt"})),
        ("local_verify", json!({})),
        ("local_apply_patch", json!({ "patch": patch })),
        ("local_read", json!({"path": "c.txt"})),
    ];
    let faults = calls.map(|(name, args)| {
        let said = project.chat.say(&format!("/tool {name} {args}\n/then /say Done."));
        project.chat.until_idle();
        project.chat.turn(&said)["verification"].clone()
    });
    assert_eq!(faults, [json!(null), json!(null), json!("failed"), json!(null)]);
    let outcomes = project.outcomes();
    assert_eq!(outcomes[3..5], ["one\n", checked]);
    assert_eq!(outcomes[5], "changed a.txt\n");
    let failed = &outcomes[6];
    let end = "3000\n[exit code 1]\n[all of it is also in the artifact art_";
    assert!(failed.starts_with(&format!("{checked}1\n2\n")) && failed.contains(end), "{failed}");
    assert!(outcomes[7].starts_with("c.txt: No such file"), "{outcomes:?}");
    assert_eq!(project.file("a.txt"), "two\n");
    kill(runner);
}

#[test]
fn the_output_of_a_command_is_shown_while_it_runs() {
    let project = Project::new(shared(), "runner-progress");
    if !project.has_sandbox() {
        return;
    }
    let release = project.root.join("release");
    assert!(Command::new("mkfifo").arg(&release).status().unwrap().success());
    let mut events = project.chat.client.stream(&project.chat.path("/events"));
    let (runner, alive) = project.begin("echo half; cat release");
    let shown = events.until_type("tool.progress").pop().unwrap().json();
    assert_eq!(shown["output"], "half\n", "{shown}");
    assert_eq!(project.chat.get("")["pending"][0]["call_id"], shown["call_id"], "the call still waits");
    fs::write(&release, "whole\n").unwrap();
    alive.ended();
    assert_eq!(project.outcomes(), ["half\nwhole\n"]);
    kill(runner);
}

#[test]
fn a_command_of_a_killed_runner_ends_and_is_not_repeated() {
    let project = Project::new(shared(), "runner-killed");
    if !project.has_sandbox() {
        return;
    }
    let (runner, alive) = project.begin("(setsid sleep 1000 &); sleep 1000");
    kill(runner);
    alive.ended();
    let runner = project.runner(&[]);
    let outcomes = project.outcomes();
    assert!(outcomes[0].starts_with("the outcome is unknown: the runner was stopped"), "{outcomes:?}");
    assert_eq!((outcomes.len(), project.file("count").as_str()), (1, "ran\n"));
    kill(runner);
}

#[test]
fn a_read_of_a_killed_runner_is_run_by_the_next() {
    let project = Project::new(shared(), "runner-claimed");
    if !project.has_sandbox() {
        return;
    }
    assert!(Command::new("git").args(["init", "-q"]).current_dir(&project.root).status().unwrap().success());
    // Git blocks while it opens a pipe. The journal has the claim of a call that only reads, and not its start.
    let pipe = project.root.join(".git/info/exclude");
    fs::remove_file(&pipe).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let runner = project.runner(&[]);
    project.chat.begin(json!({"content": "/tool local_git_status {}\n/then /say Done."}));
    until("the call is claimed", || project.chat.get("")["pending"][0]["claim"].is_object());
    kill(runner);
    fs::remove_file(&pipe).unwrap();
    let runner = project.runner(&[]);
    let outcomes = project.outcomes();
    assert!(outcomes.len() == 1 && outcomes[0].contains("?? a.txt"), "{outcomes:?}");
    kill(runner);
}

#[test]
fn an_answer_that_a_killed_runner_could_not_send_is_sent_by_the_next() {
    let mut server = Server::start(json!({}));
    let project = Project::new(&server, "runner-lost");
    if !project.has_sandbox() {
        return;
    }
    let release = project.root.join("release");
    assert!(Command::new("mkfifo").arg(&release).status().unwrap().success());
    let (runner, alive) = project.begin("cat release; echo finished");
    server.kill();
    fs::write(&release, "").unwrap();
    alive.ended();
    let journals = project.cli.folder().join("state/agentctl/runner");
    let journal = fs::read_dir(journals).unwrap().next().unwrap().unwrap().path();
    until("the answer is in the journal", || fs::read_to_string(&journal).unwrap().contains("ended"));
    kill(runner);
    server.restart();
    let runner = project.runner(&[]);
    assert_eq!(project.outcomes(), ["finished\n"]);
    assert_eq!(project.file("count"), "ran\n");
    until("the journal is empty", || fs::metadata(&journal).unwrap().len() == 0);
    kill(runner);
}

/// A proxy may respond for the server.
#[test]
fn a_response_of_a_proxy_is_no_receipt_for_an_answer() {
    let mut server = Server::start(json!({}));
    let project = Project::new(&server, "runner-proxy");
    if !project.has_sandbox() {
        return;
    }
    let release = project.root.join("release");
    assert!(Command::new("mkfifo").arg(&release).status().unwrap().success());
    let (mut runner, alive) = project.begin("cat release; echo finished");
    server.kill();
    let proxy = TcpListener::bind(server.address()).unwrap();
    fs::write(&release, "").unwrap();
    alive.ended();
    within_time(move || {
        for mut request in proxy.incoming().filter_map(|stream| receive(stream.unwrap()).ok()) {
            let is_answer = request.first.contains("/answers/");
            let status = if is_answer { "200 OK" } else { "503 Service Unavailable" };
            let response = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}");
            // The runner may have left.
            let _ = request.stream.write_all(response.as_bytes());
            if is_answer {
                break;
            }
        }
    });
    until("the runner has ended", || runner.try_wait().unwrap().is_some_and(|status| !status.success()));
    server.restart();
    let runner = project.runner(&[]);
    assert_eq!(project.outcomes(), ["finished\n"]);
    assert_eq!(project.file("count"), "ran\n");
    kill(runner);
}

#[test]
fn a_runner_that_starts_before_its_server_waits_for_it() {
    let mut server = Server::start(json!({}));
    let project = Project::new(&server, "runner-early");
    if !project.has_sandbox() {
        return;
    }
    let call = project.ask("echo ran >> count; echo finished");
    project.approve(&call);
    server.kill();
    let mut runner = project.runner(&[]);
    let mut lines = BufReader::new(runner.stderr.take().unwrap()).lines().map(|line| line.unwrap());
    assert!(lines.any(|line| line.contains("connecting again")), "the runner has given up");
    server.restart();
    assert_eq!(project.outcomes(), ["finished\n"]);
    kill(runner);
}

#[test]
fn an_aborted_turn_ends_its_command() {
    let project = Project::new(shared(), "runner-aborted");
    if !project.has_sandbox() {
        return;
    }
    let (runner, alive) = project.begin("sleep 1000");
    project.chat.post("/abort", json!({})).expect(200);
    alive.ended();
    // The runner serves the next turn.
    let call = project.ask("echo next");
    project.approve(&call);
    let outcomes = project.outcomes();
    assert_eq!(outcomes.last().unwrap(), "next\n", "{outcomes:?}");
    kill(runner);
}

#[test]
fn ctrl_c_ends_the_command_answers_the_call_and_leaves() {
    let project = Project::new(shared(), "runner-left");
    if !project.has_sandbox() {
        return;
    }
    let (runner, alive) = project.begin("sleep 1000");
    signal(&runner, "INT");
    alive.ended();
    let output = runner.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    // The command may have changed something, so the turn ends after a verification.
    let runner = project.runner(&[]);
    let outcomes = project.outcomes();
    assert!(outcomes[0].contains("ended because it was stopped"), "{outcomes:?}");
    kill(runner);
}

#[test]
fn runners_of_an_agent_share_the_calls_of_its_sessions() {
    let server = Server::start(json!({}));
    let projects = ["one", "two", "three", "four"].map(|session| Project::new(&server, session));
    if !projects[0].has_sandbox() {
        return;
    }
    let runners = [projects[0].runner_of_agent(), projects[1].runner_of_agent()];
    for project in &projects {
        let call = project.ask("echo ran >> count; pwd");
        project.approve(&call);
    }
    for project in &projects {
        let outcomes = project.outcomes();
        let ran_in = projects.each_ref().map(|other| format!("{}\n", other.root.display()));
        assert!(ran_in[..2].contains(&outcomes[0]) && outcomes.len() == 1, "{outcomes:?}");
    }
    let counts = projects.each_ref().map(|project| project.file("count").lines().count());
    assert_eq!((counts[0] + counts[1], counts[2] + counts[3]), (4, 0), "each call ran once: {counts:?}");
    runners.into_iter().for_each(kill);
}

#[test]
fn a_chat_has_a_runner_beside_it() {
    let project = Project::new(shared(), "runner-chat");
    if !project.has_sandbox() {
        return;
    }
    let call = json!({"command": "echo chatted > b.txt; cat b.txt"});
    let input = format!("/tool local_shell {call}\ny\n/tool local_read {{\"path\": \"b.txt\"}}\n");
    let ran = project.cli.run_with(&["chat", "runner-chat", "--root", "project"], &input).expect(0);
    assert_eq!(project.file("b.txt"), "chatted\n");
    assert!(ran.err.contains("approval local_shell") && !ran.err.contains("external local_"), "{ran:?}");
    assert_eq!(project.outcomes(), ["chatted\n", "chatted\n"]);
}

#[test]
fn a_chat_in_a_terminal_has_a_runner_beside_it() {
    let project = Project::new(shared(), "runner-terminal");
    if !project.has_sandbox() {
        return;
    }
    let pipe = Alive::pipe(&project);
    let mut terminal = Terminal::start(&project.cli, &["chat", "runner-terminal", "--root", "project"]);
    terminal.wait_for("idle");
    terminal.send(&format!("/tool local_shell {}", json!({"command": "echo drawn > b.txt; cat b.txt"})));
    let screen = terminal.wait_for("y approve");
    assert!(screen.contains("local_shell") && project.file("b.txt").is_empty(), "{screen}");
    terminal.press("y");
    terminal.wait_for("✓ local_shell");
    terminal.wait_for("idle");
    assert_eq!(project.outcomes(), ["drawn\n"]);
    // The abort of a turn ends its command.
    let endless = format!("{}sleep 1000", Alive::COMMAND);
    terminal.send(&format!("/tool local_shell {}", json!({ "command": endless })));
    terminal.wait_for("y approve");
    terminal.press("y");
    let alive = Alive::begun(&pipe);
    terminal.press(CTRL_C);
    alive.ended();
    terminal.wait_for("idle");
    terminal.send("/quit");
    let (code, screen) = terminal.end();
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("continue with: agentctl chat runner-terminal"), "{screen}");
}

#[test]
fn long_output_is_kept_in_a_file_and_an_artifact() {
    let project = Project::new(shared(), "runner-long");
    if !project.has_sandbox() {
        return;
    }
    let runner = project.runner(&[]);
    let call = project.ask("seq 100000");
    project.approve(&call);
    let outcomes = project.outcomes();
    let output = project.file(&format!(".agentctl/output/{call}.txt"));
    let (shown, artifact) = outcomes[0].split_once("\n[all of it is also in the artifact ").unwrap();
    assert!(shown.starts_with("1\n2\n") && shown.ends_with("99999\n100000\n"), "{outcomes:?}");
    assert!(
        outcomes[0].contains(&format!("all of the output is in .agentctl/output/{call}.txt")),
        "{outcomes:?}"
    );
    assert_eq!(output.lines().count(), 100_000);
    let artifact = project.chat.path(&format!("/artifacts/{}", artifact.trim_end_matches(']')));
    assert_eq!(project.chat.client.get(&artifact).text(), output);
    kill(runner);
}

#[test]
fn a_second_runner_is_refused() {
    let project = Project::new(shared(), "runner-second");
    if !project.has_sandbox() {
        return;
    }
    let runner = project.runner(&[]);
    let journals = project.cli.folder().join("state/agentctl/runner");
    until("the first runner has its journal", || {
        fs::read_dir(&journals).is_ok_and(|found| found.count() == 1)
    });
    until("the second runner is refused", || {
        let mut second = project.runner(&[]);
        let has_ended = (0..100).any(|_| {
            thread::sleep(Duration::from_millis(20));
            second.try_wait().unwrap().is_some()
        });
        has_ended && second.wait().unwrap().code() == Some(2)
    });
    kill(runner);
}

#[test]
fn the_coder_of_the_examples_declares_all_tools() {
    let cli = Agentctl::new(shared());
    let printed = cli.run(&["runner", "tools"]).expect(0).out;
    let declared: Value = toml::from_str(&printed).unwrap();
    let tools = cli.run(&["runner", "tools", "--json"]).expect(0).lines();
    assert_eq!(declared["external_tools"], json!(tools));
    let coder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/agents/coder/agent.toml");
    let coder: Value = toml::from_str(&fs::read_to_string(coder).unwrap()).unwrap();
    assert_eq!(coder["external_tools"], json!(tools), "copy what `agentctl runner tools` prints");
}
