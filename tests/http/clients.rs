//! Clients against the real Worker: the project's own in `clients`, and the official ones of other protocols, unchanged.
//! Each test runs one file with Node or Python: a test, or an example.

use crate::support::{DEV_API_KEY, Folder, PATIENCE, Server, shared};
use serde_json::json;
use std::{
    env, fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{self, Command},
    sync::{LazyLock, Mutex},
};

/// The folder of the clients of other protocols.
const OTHERS: &str = "tests/clients";
/// The folder of the examples.
const EXAMPLES: &str = "examples/clients";
/// How the demo model replies to the message of most examples.
const HELLO: &str = "You said: \"Hello\".";

fn run(folder: &str, file: &str) {
    run_against(shared(), folder, file);
}

/// Runs a file of a folder, whose packages are installed, with Node's test runner.
pub fn run_against(server: &Server, folder: &str, file: &str) {
    run_with(server, folder, file, &[]);
}

/// Like [`run_against`], with more variables.
fn run_with(server: &Server, folder: &str, file: &str, variables: &[(&str, &str)]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // A test that fails may leave a connection open, which would keep Node running. Node applies the timeout, in
    // milliseconds, also to all tests of the file together: those of the page take 90 seconds on an idle machine.
    let limits = ["--test-timeout=600000", "--test-force-exit"];
    let arguments = [&["--test", "--test-reporter=spec"], &limits[..], &[file]].concat();
    execute(server, &node(folder), &arguments, &root.join(folder), variables);
}

fn run_python(module: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/python");
    execute(shared(), &python(), &["-B", "-m", "unittest", "-v", module], &folder, &[]);
}

/// Runs an example, and asserts that it prints these texts.
fn run_example(file: &str, texts: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(EXAMPLES);
    let program = if file.ends_with(".py") { python() } else { node(EXAMPLES) };
    let patience = PATIENCE.as_secs().to_string();
    let arguments = [&patience, program.to_str().unwrap(), file];
    let printed = execute(shared(), Path::new("timeout"), &arguments, &folder, &[]);
    for text in texts {
        assert!(printed.contains(text), "{text} is not in:\n{printed}");
    }
}

/// Returns the project's Node. The packages of the folder must be installed.
fn node(folder: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert!(
        root.join(folder).join("node_modules").exists(),
        "{folder} is not installed; first run: make test"
    );
    root.join("node_modules/.bin/node")
}

/// Returns the Python that has the packages of the examples.
fn python() -> PathBuf {
    let home = || PathBuf::from(env::var_os("HOME").unwrap()).join(".cache/edge-harness");
    let cache = env::var_os("EDGE_HARNESS_CACHE").map_or_else(home, PathBuf::from);
    let python = cache.join("clients/bin/python");
    assert!(python.exists(), "the clients for Python are not installed; first run: make test");
    python
}

/// Runs a program that must succeed, and returns what it prints.
fn execute(
    server: &Server,
    program: &Path,
    arguments: &[&str],
    folder: &Path,
    variables: &[(&str, &str)],
) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env("URL", format!("http://{}", server.address()))
        .env("KEY", DEV_API_KEY)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text.into_owned()
}

/// Declares a test for each example, and one that finds examples without a test.
macro_rules! examples {
    ($($name:ident: $file:literal prints $texts:expr;)+) => {
        $(#[test]
        fn $name() {
            run_example($file, &$texts);
        })+

        #[test]
        fn every_example_is_run() {
            let files = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(EXAMPLES)).unwrap().flatten();
            let names = files.map(|file| file.file_name().into_string().unwrap());
            let mut found: Vec<_> = names.filter(|name| name.ends_with(".mjs") || name.ends_with(".py")).collect();
            found.sort();
            let mut run = [$($file),+];
            run.sort_unstable();
            assert_eq!(found, run);
        }
    };
}

examples! {
    example_a2a: "a2a.mjs" prints [HELLO];
    example_a2a_in_python: "a2a_task.py" prints [HELLO];
    example_ag_ui: "ag-ui.mjs" prints [HELLO];
    example_ai_sdk: "ai-sdk.mjs" prints [HELLO];
    example_ai_sdk_over_a_socket: "ai-sdk-websocket.mjs" prints [HELLO, "You said: \"Good evening\"."];
    example_chat_completions: "chat-completions.mjs" prints [HELLO];
    example_chat_completions_in_python: "chat_completions.py" prints [HELLO];
    example_event_source: "eventsource.mjs" prints [HELLO];
    example_mcp: "mcp.mjs" prints [HELLO];
    example_mcp_1: "mcp-1.mjs" prints [HELLO];
    example_native_api_in_python: "native_api.py" prints ["current_time {}: approve\n", "unix_ms", HELLO];
    example_responses: "responses.mjs" prints [HELLO, "You said: \"Go on.\"."];
    example_typescript: "typescript.mjs" prints ["Approving current_time.\n", "unix_ms"];
}

#[test]
fn a2a() {
    run(OTHERS, "a2a.test.mjs");
}

#[test]
fn a2a_push() {
    let [receiver] = unused_ports().map(on_loopback);
    let server = Server::start(json!({ "PUSH_ALLOW": receiver }));
    run_with(&server, OTHERS, "a2a-push.test.mjs", &[("RECEIVER", &receiver)]);
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
fn ai_sdk_in_react() {
    run(OTHERS, "use-chat.test.mjs");
}

#[test]
fn subagents() {
    run_against(&Server::start(json!({"SUBAGENTS": "[]"})), OTHERS, "subagents.test.mjs");
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
fn mcp_legacy() {
    run(OTHERS, "mcp-legacy.test.mjs");
}

#[test]
fn mcp_conformance() {
    run(OTHERS, "mcp-conformance.test.mjs");
}

/// Returns ports of loopback for servers that a test starts later. They are below those that the system gives to connections,
/// and to servers that ask for any port.
fn unused_ports<const N: usize>() -> [u16; N] {
    // Runs of the tests side by side begin at different ports.
    static NEXT: LazyLock<Mutex<u16>> =
        LazyLock::new(|| Mutex::new(16_384 + (process::id() * 300 % 12_000) as u16));
    let mut next = NEXT.lock().unwrap();
    std::array::from_fn(|_| {
        let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
        let port = (*next..32_768).find(is_free).unwrap();
        *next = port + 1;
        port
    })
}

fn on_loopback(port: u16) -> String {
    format!("{}:{port}", Ipv4Addr::LOCALHOST)
}

/// Starts a Worker whose agents may name servers on these addresses. Nothing listens on either.
fn with_mcp_servers() -> (Server, [String; 2]) {
    let addresses = unused_ports().map(on_loopback);
    (Server::start(json!({ "MCP_ALLOW": addresses.join(",") })), addresses)
}

#[test]
fn mcp_servers() {
    let (server, [servers, down]) = with_mcp_servers();
    run_with(&server, OTHERS, "mcp-servers.test.mjs", &[("SERVERS", &servers), ("DOWN", &down)]);
    let log = server.log();
    assert!(log.contains("mcp.unavailable") && !log.contains("header-of-the-test"));
}

/// Starts a Worker whose agents may name a server on this address, on which nothing listens, and others of `more`.
fn with_public_url(public_url: &str, more: &[String]) -> (Server, String) {
    let [address] = unused_ports().map(on_loopback);
    let allowed = [std::slice::from_ref(&address), more].concat().join(",");
    (Server::start(json!({ "MCP_ALLOW": allowed, "PUBLIC_URL": public_url })), address)
}

#[test]
fn remote_agent() {
    let [address] = unused_ports().map(on_loopback);
    let server = Server::start(json!({ "REMOTE_AGENTS_ALLOW": address }));
    run_with(&server, OTHERS, "remote-agent.test.mjs", &[("SERVER", &address)]);
}

#[test]
fn mcp_servers_oauth() {
    let (mut server, address) = with_public_url("https://agents.example.com", &[]);
    let folder = Folder::create();
    let state = folder.path().join("oauth.json");
    let state = state.to_str().unwrap();
    let run = |server: &Server, phase: &str| {
        let variables = [("SERVERS", address.as_str()), ("PHASE", phase), ("STATE", state)];
        run_with(server, OTHERS, "mcp-servers-oauth.test.mjs", &variables);
    };
    run(&server, "all");
    run(&server, "before a kill");
    server.kill();
    server.restart();
    run(&server, "after a kill");
    let log = server.log();
    for secret in ["access-", "refresh-", "code-"] {
        assert!(!log.contains(secret), "{secret}");
    }
}

#[test]
fn mcp_servers_conformance() {
    let groups = ["calls", "legacy consent", "consent", "issuers"];
    // Up to 16 scenarios of each group, with four servers each.
    let ports = unused_ports::<{ 4 * 64 }>().map(|port| port.to_string());
    let hosts: Vec<_> = ports.iter().map(|port| format!("localhost:{port}")).collect();
    let (server, _) = with_public_url("https://conformance-test.local", &hosts);
    for (group, ports) in groups.into_iter().zip(ports.chunks(64)) {
        let variables = [("GROUP", group), ("PORTS", &ports.join(","))];
        run_with(&server, OTHERS, "mcp-servers-conformance.test.mjs", &variables);
    }
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
fn openai_responses_over_a_socket() {
    run(OTHERS, "responses-ws.test.mjs");
}

#[test]
fn typescript() {
    run_against(&Server::start(json!({"SUBAGENTS": "[]"})), "clients/ts", "test/client.test.mjs");
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
