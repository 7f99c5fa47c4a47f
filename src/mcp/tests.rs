mod listing;
mod offers;
mod questions;

use super::connection::Outgoing;
use super::{Connection, Listings, McpError, McpServer, McpServers, Ports};
use crate::platform::in_memory::{
    InMemoryConsents, ManualClock, MemoryLog, PlainSealer, ScriptedHttp, SeededEntropy,
};
use crate::ports::{
    AllowedHosts, Http, HttpError, HttpRequest, HttpResponse, Secrets, directory::DirectoryError,
};
use crate::types::{AgentRef, AgentVersion, Effect, TenantId, Timestamp, ToolProgress, ToolSpec};
use async_trait::async_trait;
use bytes::Bytes;
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Map, Value, json};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

const EVENTS: &[(&str, &str)] = &[("content-type", "text/event-stream")];

struct Vault;

#[async_trait(?Send)]
impl Secrets for Vault {
    async fn get(&self, _: &TenantId, name: &str) -> Result<Option<String>, DirectoryError> {
        let all = [("KEY", "s3cret"), ("LINES", "one\ntwo")];
        Ok(all.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned()))
    }
}

struct Stage {
    http: Rc<ScriptedHttp>,
    clock: ManualClock,
    log: Rc<MemoryLog>,
    servers: McpServers,
    definitions: BTreeMap<String, McpServer>,
}

impl Stage {
    fn new(definition: Value) -> Self {
        let (http, log) = (Rc::new(ScriptedHttp::default()), Rc::new(MemoryLog::default()));
        let clock = ManualClock::at(Timestamp(1_000_000));
        let servers = McpServers::new(ports(&http, &clock), log.clone());
        let definitions = serde_json::from_value(json!({"crm": definition})).expect("a definition");
        Self { http, clock, log, servers, definitions }
    }

    fn list(&self, known: &Listings) -> Listings {
        let of = AgentRef { id: "support".into(), version: AgentVersion::FIRST };
        block_on(self.servers.list((&"acme".into(), &"ann".into()), &of, &self.definitions, known))
    }

    fn specs(&self) -> Vec<ToolSpec> {
        self.list(&Listings::default()).tools().iter().map(|tool| tool.spec()).collect()
    }

    /// Queues the responses of a modern server, with ids 1 and 2, to the first list.
    fn lists(&self, tools: &Value) {
        self.http.respond(200, result(1, &json!({"supportedVersions": ["2026-07-28"]})));
        self.http.respond(200, result(2, &json!({"tools": tools})));
    }

    fn logged(&self) -> Vec<String> {
        self.log.lines().iter().map(ToString::to_string).collect()
    }
}

fn ports(http: &Rc<ScriptedHttp>, clock: &ManualClock) -> Ports {
    Ports {
        http: http.clone(),
        secrets: Rc::new(Vault),
        clock: Rc::new(clock.clone()),
        hosts: AllowedHosts::parse("*"),
        consents: Rc::<InMemoryConsents>::default(),
        sealer: Rc::new(PlainSealer),
        spawn: Box::new(drop),
        entropy: Rc::<SeededEntropy>::default(),
        public_url: Some("https://agents.example.com".into()),
    }
}

fn plain() -> Value {
    json!({"url": "https://crm.example.com/mcp"})
}

fn connection(http: &Rc<ScriptedHttp>, definition: Value) -> Connection {
    let server = serde_json::from_value(definition).expect("a definition");
    let ports = ports(http, &ManualClock::at(Timestamp(1_000_000)));
    Connection::new("crm", (&"acme".into(), &"ann".into()), server, Rc::new(ports))
}

fn result(id: u64, result: &Value) -> Bytes {
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string().into()
}

fn error(id: u64, code: i64) -> Bytes {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}}).to_string().into()
}

fn call(connection: &Connection, caller: &str, id: u64) -> Result<Value, McpError> {
    let headers = vec![("mcp-param-a".to_owned(), "1".to_owned())];
    block_on(connection.ask(&Outgoing::call(caller, id, "add", Map::new(), headers)))
}

fn header<'a>(request: &'a HttpRequest, name: &str) -> Option<&'a str> {
    request.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
}

fn body(request: &HttpRequest) -> Value {
    serde_json::from_slice(request.body.as_ref().expect("a body")).expect("JSON")
}

fn methods(http: &ScriptedHttp) -> Vec<String> {
    let method = |request: &HttpRequest| body(request)["method"].as_str().unwrap_or("response").to_owned();
    http.requests().iter().map(method).collect()
}

#[test]
fn the_progress_of_a_call_is_shown() {
    let http = Rc::new(ScriptedHttp::default());
    let server = connection(&http, plain());
    http.respond(200, result(1, &json!({"supportedVersions": ["2026-07-28"]})));
    let progress = |token: u64, params: Value| {
        let mut message = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        message["params"]["progressToken"] = token.into();
        format!("data: {message}\n\n")
    };
    let events = progress(9, json!({"progress": 1, "total": 4, "message": "reading"}))
        + &progress(8, json!({"progress": 3}))
        + &progress(9, json!({"progress": "x"}))
        + &format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": 9, "result": {"content": []}}));
    http.respond_with(200, EVENTS, events);
    let shown = RefCell::new(Vec::new());
    let show = |progress| shown.borrow_mut().push(progress);
    let mut outgoing = Outgoing::call("ses_1", 9, "add", Map::new(), Vec::new());
    outgoing.on_progress = Some(&show);
    block_on(server.ask(&outgoing)).expect("a result");
    assert_eq!(body(&http.requests()[1])["params"]["_meta"]["progressToken"], 9);
    let message = Some("reading".to_owned());
    let first = ToolProgress { message, progress: Some(1.0), total: Some(4.0), ..ToolProgress::default() };
    assert_eq!(shown.take(), [first, ToolProgress::default()], "not that of another request");
}

#[test]
fn a_notice_of_other_tools_counts_during_a_call() {
    let http = Rc::new(ScriptedHttp::default());
    let server = connection(&http, plain());
    http.respond(200, result(1, &json!({"supportedVersions": ["2026-07-28"]})));
    let notice = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    let events = |id: u64| {
        let done = json!({"jsonrpc": "2.0", "id": id, "result": {"tools": []}});
        format!("data: {notice}\n\ndata: {done}\n\n")
    };
    http.respond_with(200, EVENTS, events(2));
    assert!(block_on(server.list("tools/list", Map::new())).is_ok() && !server.is_outdated());
    http.respond_with(200, EVENTS, events(9));
    let show = |_: ToolProgress| panic!("no progress");
    let mut outgoing = Outgoing::call("ses_1", 9, "grow", Map::new(), Vec::new());
    outgoing.on_progress = Some(&show);
    assert!(block_on(server.ask(&outgoing)).is_ok() && server.is_outdated());
}

#[test]
fn a_modern_request_describes_itself() {
    let http = Rc::new(ScriptedHttp::default());
    let server = connection(
        &http,
        json!({
            "url": "https://crm.example.com/mcp?key=${secret:KEY}", "headers": {"Authorization": "Bearer ${secret:KEY}"},
        }),
    );
    http.respond(200, result(1, &json!({"supportedVersions": ["2027-01-01", "2026-07-28"]})));
    let events = format!(
        ": hi\n\ndata: {}\n\ndata: {}\n\n",
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}),
        json!({"jsonrpc": "2.0", "id": 9, "result": {"resultType": "complete", "content": []}}),
    );
    http.respond_with(200, EVENTS, events);
    assert_eq!(call(&server, "ses_1", 9), Ok(json!({"resultType": "complete", "content": []})));
    assert_eq!(methods(&http), ["server/discover", "tools/call"]);
    let requests = http.requests();
    let sent = |name: &str| header(&requests[1], name);
    assert_eq!(requests[1].url, "https://crm.example.com/mcp?key=s3cret");
    assert_eq!(sent("authorization"), Some("Bearer s3cret"));
    assert_eq!(sent("accept"), Some("application/json, text/event-stream"));
    assert_eq!((sent("mcp-protocol-version"), sent("mcp-method")), (Some("2026-07-28"), Some("tools/call")));
    assert_eq!(
        (sent("mcp-name"), sent("mcp-param-a"), sent("mcp-session-id")),
        (Some("add"), Some("1"), None)
    );
    let meta = &body(&requests[1])["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(
        meta["io.modelcontextprotocol/clientCapabilities"],
        json!({"elicitation": {"form": {}, "url": {}}})
    );
    // Once the era is known, a request is one request.
    http.respond(200, result(10, &json!({})));
    assert!(call(&server, "ses_1", 10).is_ok());
    assert_eq!(http.requests().len(), 3);
}

#[test]
fn a_legacy_server_gets_a_handshake_for_each_caller() {
    let http = Rc::new(ScriptedHttp::default());
    let server = connection(&http, plain());
    let handshake = |id: u64, session: &str| {
        let chosen = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
        http.respond_with(200, &[("mcp-session-id", session)], result(id, &chosen));
        http.respond(202, "");
    };
    // It knows no `server/discover`.
    http.respond(400, error(1, -32000));
    handshake(2, "for-lists");
    handshake(3, "of-a");
    http.respond(200, result(50, &json!({"n": 1})));
    assert_eq!(call(&server, "a", 50), Ok(json!({"n": 1})));
    let all = [
        "server/discover",
        "initialize",
        "notifications/initialized",
        "initialize",
        "notifications/initialized",
        "tools/call",
    ];
    assert_eq!(methods(&http), all);
    let last = http.requests().pop().expect("a request");
    let sent = ["mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-param-a"]
        .map(|name| header(&last, name));
    assert_eq!(sent, [Some("of-a"), Some("2025-06-18"), None, None]);
    assert_eq!(body(&last)["params"], json!({"name": "add", "arguments": {}}));
    // The server has restarted.
    http.respond(404, error(51, -32001));
    handshake(4, "of-a-again");
    http.respond(200, result(51, &json!({"n": 2})));
    assert_eq!(call(&server, "a", 51), Ok(json!({"n": 2})));
    let last = http.requests().pop().expect("a request");
    assert_eq!(header(&last, "mcp-session-id"), Some("of-a-again"));
    block_on(server.cancel("a", 51));
    let last = http.requests().pop().expect("a request");
    assert_eq!(
        (body(&last)["method"].as_str(), &body(&last)["params"]["requestId"]),
        (Some("notifications/cancelled"), &json!(51))
    );
    assert_eq!(header(&last, "mcp-session-id"), Some("of-a-again"));
}

#[test]
fn a_legacy_server_without_sessions_gets_one_handshake() {
    let http = Rc::new(ScriptedHttp::default());
    let server = connection(&http, plain());
    http.respond(404, "");
    http.respond(200, result(2, &json!({"protocolVersion": "2025-11-25", "capabilities": {}})));
    http.respond(202, "");
    http.respond(200, result(50, &json!({})));
    assert!(call(&server, "a", 50).is_ok());
    http.respond(200, result(51, &json!({})));
    assert!(call(&server, "b", 51).is_ok());
    assert_eq!(http.requests().len(), 5);
}

#[test]
fn a_server_that_supports_the_modern_version_is_asked_again() {
    let http = Rc::new(ScriptedHttp::default());
    let server = connection(&http, plain());
    let data = json!({"supported": ["2026-07-28"], "requested": "2026-07-28"});
    let refused =
        json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32022, "message": "no", "data": data}});
    http.respond(400, refused.to_string());
    http.respond(200, result(2, &json!({"supportedVersions": ["2026-07-28"]})));
    http.respond(200, result(9, &json!({})));
    assert_eq!(call(&server, "a", 9), Ok(json!({})));
    assert_eq!(methods(&http), ["server/discover", "server/discover", "tools/call"]);
}

#[test]
fn requests_of_a_server_are_refused() {
    let http = Rc::new(ScriptedHttp::default());
    let server = connection(&http, plain());
    http.respond(200, result(1, &json!({"supportedVersions": ["2026-07-28"]})));
    let events = format!(
        "data: {}\n\ndata: {}\n\ndata: {}\n\n",
        json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}),
        json!({"jsonrpc": "2.0", "id": "e", "method": "elicitation/create", "params": {}}),
        json!({"jsonrpc": "2.0", "id": 9, "result": {}}),
    );
    http.respond_with(200, EVENTS, events);
    // The response to the ping is lost, which concerns only the server.
    http.respond(202, "");
    http.respond(500, "");
    assert_eq!(call(&server, "a", 9), Ok(json!({})));
    let bodies: Vec<_> = http.requests().iter().skip(2).map(body).collect();
    assert_eq!((&bodies[0]["id"], &bodies[0]["result"]), (&json!("p"), &json!({})));
    assert_eq!((&bodies[1]["id"], &bodies[1]["error"]["code"]), (&json!("e"), &json!(-32601)));
}

#[test]
fn a_server_cannot_ask_without_end() {
    let http = Rc::new(ScriptedHttp::default());
    http.respond(200, result(1, &json!({"supportedVersions": ["2026-07-28"]})));
    let ping = format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}));
    http.respond_with(200, EVENTS, ping.repeat(1_000));
    let error = call(&connection(&http, plain()), "a", 9);
    assert_eq!(error, Err(McpError::Malformed("it has too many requests of its own")));
    assert!(http.requests().len() < 25, "{}", http.requests().len());
}

#[test]
fn a_call_is_sent_again_only_if_its_session_has_ended() {
    for (body, is_of_session) in
        [("Bad Request: No valid session ID provided", true), ("the order is closed", false)]
    {
        let http = Rc::new(ScriptedHttp::default());
        let server = connection(&http, plain());
        let handshake = |id: u64| {
            let chosen = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
            http.respond_with(200, &[("mcp-session-id", "s")], result(id, &chosen));
            http.respond(202, "");
        };
        http.respond(404, "");
        handshake(2);
        handshake(3);
        http.respond(200, result(50, &json!({})));
        assert!(call(&server, "a", 50).is_ok());
        let before = http.requests().len();
        http.respond(400, body);
        handshake(4);
        http.respond(200, result(51, &json!({})));
        assert_eq!(call(&server, "a", 51).is_ok(), is_of_session);
        assert_eq!(http.requests().len() - before, if is_of_session { 4 } else { 1 }, "{body}");
    }
}

#[test]
fn a_request_that_is_not_sent_has_no_effect() {
    let is_sent = |http: &Rc<ScriptedHttp>| {
        let server = connection(http, plain());
        let outgoing = Outgoing::call("a", 9, "add", Map::new(), Vec::new());
        assert_eq!(block_on(server.ask(&outgoing)), Err(McpError::Unreachable));
        outgoing.is_sent.get()
    };
    let http = Rc::new(ScriptedHttp::default());
    assert!(!is_sent(&http));
    http.respond(200, result(1, &json!({"supportedVersions": ["2026-07-28"]})));
    assert!(is_sent(&http));
}

#[test]
fn failures_say_what_to_do_and_have_no_secret() {
    for (status, text, expected) in [
        (401, "", "refused the credentials with status 401"),
        (302, "", "redirects, which is not followed"),
        (429, "", "answered with status 429"),
    ] {
        let http = Rc::new(ScriptedHttp::default());
        http.respond(status, text);
        let error = call(&connection(&http, plain()), "a", 9).expect_err("a failure");
        assert!(error.to_string().starts_with(expected), "{error}");
        assert_eq!(http.requests().len(), 1, "{status}");
    }
    let offline = Rc::new(ScriptedHttp::default());
    assert_eq!(call(&connection(&offline, plain()), "a", 9), Err(McpError::Unreachable));
    let http = Rc::new(ScriptedHttp::default());
    let error = call(&connection(&http, json!({"url": "https://a.example.com/${secret:NONE}"})), "a", 9);
    assert!(error.expect_err("a failure").to_string().contains("there is no secret \"NONE\""));
    let error = call(&connection(&http, json!({"url": "https://10.0.0.1/"})), "a", 9);
    assert!(matches!(error, Err(McpError::Refused(_))), "{error:?}");
    assert_eq!(http.requests().len(), 0);
    for (body, expected) in [
        ("<html>", "sent an invalid response: it is not JSON"),
        ("", "sent an invalid response: it has no response to the request"),
        (
            r#"{"jsonrpc": "2.0", "id": 9, "result": 7}"#,
            "sent an invalid response: its result is not an object",
        ),
        (
            r#"{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "s"}}"#,
            "answered with the error -32600: s",
        ),
    ] {
        let http = Rc::new(ScriptedHttp::default());
        http.respond(200, result(1, &json!({"supportedVersions": ["2026-07-28"]})));
        http.respond(200, body);
        let error = call(&connection(&http, plain()), "a", 9).expect_err("a failure");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn what_a_server_returns_has_no_secret() {
    let definition =
        json!({"url": "https://crm.example.com/mcp", "headers": {"Authorization": "Bearer ${secret:KEY}"}});
    let answered = |status: u16, body: Value| {
        let http = Rc::new(ScriptedHttp::default());
        http.respond(200, result(1, &json!({"supportedVersions": ["2026-07-28"]})));
        http.respond(status, body.to_string());
        call(&connection(&http, definition.clone()), "a", 9)
    };
    let echo = json!({"content": [{"type": "text", "text": "Bearer s3cret"}], "structuredContent": {"s3cret": ["s3cret"]}});
    let expected = json!({
        "content": [{"type": "text", "text": "Bearer [secret KEY]"}],
        "structuredContent": {"[secret KEY]": ["[secret KEY]"]},
    });
    assert_eq!(answered(200, json!({"jsonrpc": "2.0", "id": 9, "result": echo})), Ok(expected));
    // The message is cut after the secret is removed.
    let message = format!("{}s3cret", "x".repeat(997));
    let error = json!({"jsonrpc": "2.0", "id": 9, "error": {"code": -32602, "message": message}});
    for status in [200, 400] {
        let error = answered(status, error.clone()).expect_err("an error").to_string();
        assert!(!error.contains("s3c"), "{error}");
    }
    let stage = Stage::new(definition);
    stage.lists(&json!([{"name": "a", "description": "s3cret"}]));
    let described = stage.specs().remove(0).description;
    assert!(described.ends_with("[secret KEY]"), "{described}");
}

#[test]
fn a_secret_that_a_header_cannot_have_is_not_sent() {
    let http = Rc::new(ScriptedHttp::default());
    let server =
        connection(&http, json!({"url": "https://crm.example.com/", "headers": {"X": "${secret:LINES}"}}));
    let error = call(&server, "a", 9).expect_err("a failure").to_string();
    assert_eq!(
        error,
        "cannot be asked: the value of its header `x` contains a control character, or one that is not ASCII"
    );
    assert_eq!(http.requests().len(), 0);
}

#[test]
fn a_response_is_bounded() {
    let http = Rc::new(ScriptedHttp::default());
    http.respond(200, result(1, &json!({"supportedVersions": ["2026-07-28"]})));
    http.respond(200, vec![b' '; (4 << 20) + 1]);
    assert_eq!(call(&connection(&http, plain()), "a", 9), Err(McpError::Malformed("it is too large")));
}
