//! Agents with the tools of servers of MCP.

mod content;
mod shared;

use crate::http::{request, respond};
use crate::scripts::step_of;
use crate::stage::{NOW, Stage, standard};
use async_trait::async_trait;
use bytes::Bytes;
use edge_harness::mcp::{Listings, McpServers, Ports};
use edge_harness::platform::in_memory::{
    InMemoryAgents, InMemoryConsents, InMemoryDirectory, ManualClock, MemoryLog, PlainSealer, SeededEntropy,
    models::{ScriptedResponse, answer, call},
};
use edge_harness::ports::{
    AgentStore, AllowedHosts, Clock, Http, HttpError, HttpRequest, HttpResponse, Models, Secrets,
    directory::DirectoryError,
};
use edge_harness::standard::{
    Config, Standard, add_servers,
    agents::{AgentParts, Agents, BuiltAgent},
    builder,
    definition::{AgentConfig, Definition},
};
use edge_harness::types::{
    Actor, AgentVersion, Approver, AuditAction, AuditEntry, AuditId, ErrorCode, ModelRequest, Part, Pending,
    Problem, Role, StoredVersion, TenantId, WaitKind,
};
use edge_harness::workspace::Workspaces;
use futures::{StreamExt, executor::block_on, stream};
use pretty_assertions::assert_eq;
use serde_json::{Map, Value, json};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

/// A modern server of MCP, whose tools return their arguments. `pay` asks for the account and the amount first, and then
/// for a confirmation.
#[derive(Default)]
struct Server {
    tools: RefCell<Vec<&'static str>>,
    is_down: Cell<bool>,
    /// Its capabilities.
    offers: RefCell<Value>,
    /// The results of other requests than calls, by method.
    results: RefCell<Map<String, Value>>,
    asked: RefCell<Vec<String>>,
    calls: RefCell<Vec<Value>>,
}

/// A response of several messages.
fn events(messages: &[Value]) -> HttpResponse {
    let text: String = messages.iter().map(|message| format!("data: {message}\n\n")).collect();
    let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
    HttpResponse { status: 200, headers, body: stream::iter([Ok(Bytes::from(text))]).boxed_local() }
}

fn payment(params: &Value) -> Value {
    let ask = |message: &str, properties: Value| {
        let schema = json!({"type": "object", "properties": properties});
        json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}})
    };
    let responses = &params["inputResponses"];
    match params["requestState"].as_str() {
        None => json!({"resultType": "input_required", "requestState": "one", "inputRequests": {
            "account": ask("Which account?", json!({"id": {"type": "string"}})),
            "amount": ask("How much?", json!({"n": {"type": "integer"}})),
        }}),
        Some("one") => {
            json!({"resultType": "input_required", "requestState": format!("two {responses}"), "inputRequests": {
                "sure": ask("Sure?", json!({"ok": {"type": "boolean"}})),
            }})
        }
        Some(state) => json!({"structuredContent": {"state": state, "sure": responses}}),
    }
}

#[async_trait(?Send)]
impl Http for Server {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if self.is_down.get() {
            return Err(HttpError("offline".into()));
        }
        let body: Value = serde_json::from_slice(&request.body.unwrap_or_default()).expect("JSON");
        let method = body["method"].as_str().unwrap_or_default().to_owned();
        let result = match method.as_str() {
            "server/discover" => {
                json!({"supportedVersions": ["2026-07-28"], "capabilities": *self.offers.borrow()})
            }
            "tools/list" => {
                let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
                json!({"tools": self.tools.borrow().iter().map(tool).collect::<Vec<_>>(), "ttlMs": 60_000})
            }
            other if self.results.borrow().contains_key(other) => self.results.borrow()[other].clone(),
            "tools/call" if body["params"]["name"] == "grow" => {
                self.tools.borrow_mut().push("grown");
                let notice = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                let done = json!({"jsonrpc": "2.0", "id": body["id"], "result": {"content": []}});
                return Ok(events(&[notice, done]));
            }
            other if other != "tools/call" => {
                let error = json!({"code": -32602, "message": format!("cannot {other}")});
                return Ok(events(&[json!({"jsonrpc": "2.0", "id": body["id"], "error": error})]));
            }
            _ if body["params"]["name"] == "pay" => payment(&body["params"]),
            _ => json!({"content": [], "structuredContent": body["params"]["arguments"]}),
        };
        self.calls.borrow_mut().extend((method == "tools/call").then(|| body.clone()));
        self.asked.borrow_mut().push(method);
        let text = json!({"jsonrpc": "2.0", "id": body["id"], "result": result}).to_string();
        let body = stream::iter([Ok(Bytes::from(text))]).boxed_local();
        Ok(HttpResponse { status: 200, headers: vec![], body })
    }
}

struct NoSecrets;

#[async_trait(?Send)]
impl Secrets for NoSecrets {
    async fn get(&self, _: &TenantId, _: &str) -> Result<Option<String>, DirectoryError> {
        Ok(None)
    }
}

/// The agents of a deployment whose definitions can name the server.
fn agents(
    store: Rc<InMemoryAgents>,
    server: &Rc<Server>,
    clock: &ManualClock,
    models: Rc<dyn Models>,
    files: Rc<Workspaces>,
) -> Agents {
    let log = Rc::new(MemoryLog::default());
    let time = clock.clone();
    let build = Rc::new(move |definition: Option<Definition>, listings: &Listings| {
        let config = Config::default();
        let definition = definition.unwrap_or_default();
        let own = AgentConfig::of(&config, definition).expect("checked tools");
        let parts =
            standard(models.clone(), &time, &Rc::<SeededEntropy>::default(), &Rc::<MemoryLog>::default());
        let files = files.clone();
        let parts = Standard { files: files.clone(), settings: own.settings, ..parts };
        let external = own.external_tools.into_iter();
        let builder = external
            .fold(builder(parts).only_tools(own.tools), |builder, tool| builder.dyn_tool(Rc::new(tool)));
        let agent = add_servers(builder, &own.mcp_servers, listings).build();
        let agent = agent.map_err(|error| Problem::new(ErrorCode::NotConfigured, error.to_string()))?;
        Ok(BuiltAgent { agent: Rc::new(agent), files })
    });
    let ports = Ports {
        http: server.clone(),
        secrets: Rc::new(NoSecrets),
        clock: Rc::new(clock.clone()),
        hosts: AllowedHosts::parse("*"),
        consents: Rc::<InMemoryConsents>::default(),
        sealer: Rc::new(PlainSealer),
        spawn: Box::new(drop),
        entropy: Rc::<SeededEntropy>::default(),
        public_url: None,
    };
    Agents::new(AgentParts {
        http_tools_allow: AllowedHosts::default(),
        remote_agents_allow: AllowedHosts::default(),
        store,
        clock: Rc::new(clock.clone()),
        of_deployment: vec![],
        settings: Box::new(Definition::default),
        mcp: McpServers::new(ports, log),
        build: {
            let build = build.clone();
            Box::new(move |definition, listings: &Listings| build(definition, listings))
        },
        unusable: Box::new(move |why| Err(Problem::new(ErrorCode::NotConfigured, why))),
    })
}

fn store(definition: &Value) -> Rc<InMemoryAgents> {
    let store = InMemoryAgents::new(Rc::new(InMemoryDirectory::default()));
    let new = StoredVersion {
        version: AgentVersion::FIRST,
        definition: definition.as_object().expect("an object").clone(),
        created_at: NOW,
        created_by: Approver { user: None, key: None },
    };
    let audit = AuditEntry {
        tenant: "t".into(),
        id: AuditId::from("aud_1"),
        at: NOW,
        actor: Actor::Operator,
        action: AuditAction::AgentUpdated,
        object: "support".into(),
        address: None,
        request_id: None,
        details: Map::new(),
    };
    assert!(block_on(store.put(&"support".into(), &new, None, &audit)).expect("a store that works"));
    Rc::new(store)
}

/// A stage whose sessions have this definition. The model calls `crm__add`, and then replies with the names of its tools.
fn stage(definition: &Value, tools: &[&'static str]) -> (Stage, Rc<Server>, Rc<InMemoryAgents>) {
    let script = |request: &ModelRequest| {
        let mut tools: Vec<_> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
        tools.retain(|name| name.contains("__"));
        match step_of(request) {
            0 if tools.contains(&"crm__pay") => answer(vec![
                call("c0", "crm__add", json!({"n": 1})),
                call("c1", "crm__pay", json!({"to": "x"})),
            ]),
            0 if tools.contains(&"crm__add") => answer(vec![call("c1", "crm__add", json!({"n": 1}))]),
            _ => answer(vec![Part::text(tools.join(" "))]),
        }
    };
    scripted(definition, tools, script)
}

/// A stage whose sessions have this definition and a model with this script.
fn scripted(
    definition: &Value,
    tools: &[&'static str],
    script: impl Fn(&ModelRequest) -> ScriptedResponse + 'static,
) -> (Stage, Rc<Server>, Rc<InMemoryAgents>) {
    let (stage, models) = Stage::scripted(script, |builder| builder);
    let (server, store) = (Rc::new(Server::default()), store(definition));
    server.tools.borrow_mut().extend(tools);
    let agents = agents(store.clone(), &server, &stage.clock, models, stage.workspaces());
    stage.versions.replace(Some(Rc::new(agents)));
    stage.crash();
    (stage, server, store)
}

fn start(stage: &Stage) {
    let body = json!({"content": "go"}).to_string();
    let asked = request("POST /messages", "agent=support", &[("prefer", "respond-async")], body);
    respond(stage, &asked).expect("accepted");
    stage.run();
}

fn reply(stage: &Stage) -> String {
    start(stage);
    stage.settle();
    let last = stage.session().conversation(0, 100).expect("a store that works").0.pop();
    last.expect("a message").text()
}

fn crm() -> Value {
    json!({"mcp_servers": {"crm": {"url": "https://crm.example.com/mcp"}}})
}

fn records(stage: &Stage, kind: &str) -> Vec<Value> {
    stage.records().into_iter().filter(|record| record["type"] == kind).collect()
}

#[test]
fn an_agent_calls_the_tools_of_its_servers() {
    let (stage, server, _) = stage(&crm(), &["add", "sub"]);
    assert_eq!(reply(&stage), "crm__add crm__sub");
    let completed = records(&stage, "tool.completed");
    assert_eq!((&completed[0]["name"], &completed[0]["result"]), (&json!("crm__add"), &json!({"n": 1})));
    assert_eq!(*server.asked.borrow(), ["server/discover", "tools/list", "tools/call"]);
    // The list is known.
    reply(&stage);
    assert_eq!(server.asked.borrow().len(), 4);
    stage.check();
}

#[test]
fn filters_rules_and_modes_apply_to_the_names_of_the_agent() {
    let definition = json!({
        "mcp_servers": {"crm": {"url": "https://crm.example.com/mcp", "deny": ["drop"]}},
        "tools": {"deny": ["crm__sub"]},
        "permissions": {"tools": {"crm__add": "deny"}},
        "modes": [{"id": "all", "additional_tools": ["crm__add", "crm__absent"]}],
    });
    let (stage, ..) = stage(&definition, &["add", "drop", "mul", "sub"]);
    // A tool that a rule denies is not offered.
    assert_eq!(reply(&stage), "crm__mul");
}

#[test]
fn a_server_cannot_replace_another_tool() {
    let mut definition = crm();
    definition["external_tools"] = json!([{"name": "crm__sub", "description": "Of the operator."}]);
    let (stage, ..) = stage(&definition, &["add", "sub"]);
    assert_eq!(reply(&stage), "crm__add crm__sub");
    let agent = stage.host().agent();
    assert_eq!(agent.toolkit().spec("crm__sub").expect("a tool").description, "Of the operator.");
}

#[test]
fn a_server_that_is_down_costs_only_its_tools_and_comes_back() {
    let (stage, server, _) = stage(&crm(), &["add"]);
    server.is_down.set(true);
    assert_eq!(reply(&stage), "");
    let failed = records(&stage, "turn.sub_step_failed");
    assert_eq!(failed[0]["step"], "mcp:crm");
    assert_eq!(failed[0]["reason"], "the server cannot be reached, or the connection was lost");
    server.is_down.set(false);
    // It is asked again in the background, and its tools are there in the turn after that.
    stage.tick(Duration::from_secs(59));
    assert_eq!(reply(&stage), "");
    stage.tick(Duration::from_secs(1));
    assert_eq!(reply(&stage), "");
    assert_eq!(reply(&stage), "crm__add");
}

#[test]
fn new_tools_of_a_server_reach_running_sessions() {
    let (stage, server, store) = stage(&crm(), &["add"]);
    assert_eq!(reply(&stage), "crm__add");
    server.tools.borrow_mut().push("sub");
    let read = store.calls.get();
    stage.tick(Duration::from_mins(1));
    // No turn waits for a list.
    assert_eq!(reply(&stage), "crm__add");
    assert_eq!(reply(&stage), "crm__add crm__sub");
    // What has not changed builds no other agent.
    stage.tick(Duration::from_mins(1));
    let before = Rc::as_ptr(&stage.host().agent());
    reply(&stage);
    reply(&stage);
    assert_eq!(Rc::as_ptr(&stage.host().agent()), before);
    assert_eq!(server.asked.borrow().iter().filter(|method| *method == "tools/list").count(), 3);
    assert!(stage.clock.now() > NOW && store.calls.get() - read <= 2, "the definition is read once");
    stage.check();
}

fn say(stage: &Stage, answer: Value) -> Result<(), ErrorCode> {
    let body = json!({ "answer": answer }).to_string();
    let asked = request("POST /v1/sessions/s/answers/c1", "", &[("prefer", "respond-async")], body);
    let said = respond(stage, &asked).map(drop).map_err(|problem| problem.code);
    stage.run();
    said
}

fn pending(stage: &Stage) -> Pending {
    stage.session().pending().expect("a store that works").remove(0)
}

#[test]
fn a_call_of_a_server_that_asks_waits_for_the_user() {
    let (stage, server, _) = stage(&crm(), &["add", "pay"]);
    start(&stage);
    let first = pending(&stage);
    assert_eq!(
        (first.kind, &*first.name, &first.payload["question"]),
        (WaitKind::Question, "crm__pay", &json!("Which account?"))
    );
    // The other call of the step has an outcome.
    assert_eq!(records(&stage, "tool.completed").len(), 1);
    let refused = say(&stage, json!({"action": "accept", "content": {"id": {}}}));
    assert_eq!(refused, Err(ErrorCode::ValidationFailed));
    // In any instance.
    stage.crash();
    assert_eq!(say(&stage, json!("main")), Ok(()));
    // The server is not asked before all of its questions have an answer.
    let second = pending(&stage);
    assert_eq!(second.payload["question"], "How much?");
    assert!(second.args_hash != first.args_hash && server.calls.borrow().len() == 2);
    stage.crash();
    assert_eq!(say(&stage, json!({"n": 5})), Ok(()));
    assert_eq!(pending(&stage).payload["question"], "Sure?");
    assert_eq!(say(&stage, json!({"action": "decline"})), Ok(()));
    stage.settle();
    let completed = records(&stage, "tool.completed");
    let given = json!({
        "account": {"action": "accept", "content": {"id": "main"}},
        "amount": {"action": "accept", "content": {"n": 5}},
    });
    let result = json!({"state": format!("two {given}"), "sure": {"sure": {"action": "decline"}}});
    assert_eq!((completed.len(), &completed[1]["result"]), (2, &result));
    let calls = server.calls.borrow();
    let paid = &calls[1..];
    assert!(paid.iter().all(|call| call["params"]["arguments"] == json!({"to": "x"})));
    assert_eq!(paid[0]["params"].get("requestState"), None);
    assert!(paid.windows(2).all(|pair| pair[0]["id"] != pair[1]["id"]));
    stage.check();
}

#[test]
fn a_question_of_a_server_expires() {
    let (stage, server, _) = stage(&crm(), &["add", "pay"]);
    start(&stage);
    stage.live(Duration::from_hours(24 * 8));
    stage.settle();
    assert_eq!(records(&stage, "tool.completed")[1]["denied"], "expired");
    assert_eq!(server.calls.borrow().len(), 2);
    stage.check();
}

#[test]
fn a_rule_that_came_after_the_question_holds_for_the_call() {
    let (stage, server, _) = stage(&crm(), &["add", "pay"]);
    start(&stage);
    let rules = json!({"permissions": {"tools": {"crm__pay": "ask"}}}).to_string();
    respond(&stage, &request("PATCH /v1/sessions/s", "", &[], rules)).expect("changed");
    assert_eq!(say(&stage, json!("main")), Ok(()));
    assert_eq!(pending(&stage).kind, WaitKind::Approval);
    assert_eq!(server.calls.borrow().len(), 2);
}
