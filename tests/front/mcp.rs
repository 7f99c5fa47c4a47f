//! Requests of MCP that the gateway handles, and those that it forwards.

use crate::stage::{ADMIN, Answer, DEV, Request, Stage, get, post, request};
use edge_harness::http::Handled;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const MCP: &str = "/mcp";
const MODERN: &str = "2026-07-28";

fn message(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn legacy(method: &str, params: &Value) -> Request {
    post(MCP).bearer(DEV).json(&message(method, params))
}

pub fn modern(method: &str, params: &Value) -> Request {
    modern_with(&json!({}), method, params)
}

/// A request of a client with these capabilities.
fn modern_with(capabilities: &Value, method: &str, params: &Value) -> Request {
    modern_at(MCP, capabilities, method, params)
}

fn modern_at(path: &str, capabilities: &Value, method: &str, params: &Value) -> Request {
    let mut body = message(method, params);
    body["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let asked = post(path)
        .bearer(DEV)
        .header("mcp-protocol-version", MODERN)
        .header("mcp-method", method)
        .json(&body);
    let name = params["name"].as_str().or(params["uri"].as_str()).or(params["taskId"].as_str());
    name.into_iter().fold(asked, |asked, name| asked.header("mcp-name", name))
}

/// The HTTP status and the code of the error.
pub fn refused(answer: &Answer) -> (u16, i64) {
    (answer.status, answer.body["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer:?}")))
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
}

#[test]
fn a_legacy_client_initializes() {
    let stage = Stage::new();
    let begin = |version: &str, capabilities: Value| {
        stage.answer(legacy(
            "initialize",
            &json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "c", "version": "1"}}),
        ))
    };
    let answer = begin("2025-06-18", json!({}));
    let result = &answer.body["result"];
    assert_eq!(
        (answer.status, &result["protocolVersion"], &result["serverInfo"]["name"]),
        (200, &json!("2025-06-18"), &json!("edge-harness"))
    );
    assert_eq!(
        result["capabilities"],
        json!({"tools": {}, "resources": {}, "prompts": {}, "completions": {}})
    );
    assert!(answer.header("mcp-session-id").unwrap().starts_with("ses_"));
    assert_eq!(begin("2024-11-05", json!({})).body["result"]["protocolVersion"], json!("2025-11-25"));
    let shows_forms = begin("2025-11-25", json!({"elicitation": {}}));
    assert!(shows_forms.header("mcp-session-id").unwrap().ends_with("+forms"));
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let answer = stage.answer(post(MCP).bearer(DEV).json(&initialized));
    assert_eq!((answer.status, answer.body), (202, Value::Null));
    assert_eq!(stage.answer(legacy("ping", &json!({}))).body["result"], json!({}));
}

#[test]
fn a_modern_client_discovers() {
    let stage = Stage::new();
    let answer = stage.answer(modern("server/discover", &json!({})));
    let result = &answer.body["result"];
    assert_eq!(
        (answer.status, &result["supportedVersions"], &result["resultType"], &result["cacheScope"]),
        (200, &json!([MODERN]), &json!("complete"), &json!("private"))
    );
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], json!("edge-harness"));
    assert_eq!(
        result["capabilities"],
        json!({
            "tools": {}, "resources": {"subscribe": true}, "prompts": {}, "completions": {},
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        })
    );
    assert_eq!(answer.header("mcp-session-id"), None);
    let unknown = ["tasks/list", "tasks/result", "unknown/method"];
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe"].into_iter().chain(unknown)
    {
        assert_eq!(refused(&stage.answer(modern(method, &json!({})))), (404, -32601), "{method}");
    }
    for method in ["unknown/method", "server/discover", "tasks/get", "subscriptions/listen"] {
        assert_eq!(refused(&stage.answer(legacy(method, &json!({})))), (200, -32601), "{method}");
    }
}

#[test]
fn messages_that_cannot_be_read_are_refused() {
    let stage = Stage::new();
    let send = |text: &'static str| {
        refused(&stage.answer(post(MCP).bearer(DEV).header("content-type", "application/json").body(text)))
    };
    assert_eq!(send("{"), (400, -32700));
    assert_eq!(send("[]"), (400, -32600));
    assert_eq!(send(r#"{"jsonrpc": "2.0", "id": 1}"#), (400, -32600));
    let text = stage.answer(post(MCP).bearer(DEV).header("content-type", "text/plain").body("{}"));
    assert_eq!(text.status, 415);
    let version = stage.answer(legacy("ping", &json!({})).header("mcp-protocol-version", "v9"));
    assert_eq!(refused(&version), (400, -32022));
    assert_eq!(version.body["error"]["data"], json!({"supported": [MODERN], "requested": "v9"}));
    assert_eq!(version.body["id"], json!(1));
    let session = stage.answer(legacy("ping", &json!({})).header("mcp-session-id", "a/b"));
    assert_eq!(refused(&session), (404, -32001));
    let answer = stage.answer(request("DELETE", MCP).bearer(DEV));
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST, GET")));
}

#[test]
fn each_agent_is_a_tool() {
    let stage = Stage::new();
    let list = stage.answer(legacy("tools/list", &json!({}))).body["result"].clone();
    assert_eq!(names(&list["tools"]), ["ask_agent", "ask_agent_other", "search_memory"]);
    assert_eq!(list.get("ttlMs"), None);
    let list = stage.answer(modern("tools/list", &json!({}))).body["result"].clone();
    assert!(list["ttlMs"].as_u64().is_some_and(|ttl| ttl > 0));
    for tool in list["tools"].as_array().unwrap() {
        for schema in ["inputSchema", "outputSchema"] {
            jsonschema::meta::validate(&tool[schema]).unwrap();
        }
    }
    for name in ["ask", "ask_agents", "ask_agent_missing", "ask_agent_a/b"] {
        let answer =
            stage.answer(modern("tools/call", &json!({"name": name, "arguments": {"message": "hi"}})));
        assert_eq!(refused(&answer), (200, -32602), "{name}");
    }
}

#[test]
fn a_call_goes_to_the_session_of_its_agent() {
    let stage = Stage::new();
    let call = |name: &str, arguments: &Value| json!({"name": name, "arguments": arguments});
    let hi = json!({"message": "hi"});
    let sent = |asked: Request| stage.forward(asked).session.to_string();
    let own = |name: &str| legacy("tools/call", &call(name, &hi)).header("mcp-session-id", "m+forms");
    assert_eq!(sent(own("ask_agent")), "m");
    let other = sent(own("ask_agent_other"));
    assert_eq!((other.starts_with("ses_"), sent(own("ask_agent_other")) == other), (true, true));
    let named = call("ask_agent", &json!({"message": "hi", "session": "s"}));
    assert_eq!(sent(legacy("tools/call", &named).header("mcp-session-id", "m")), "s");
    assert_eq!(sent(modern("tools/call", &named)), "s");
    let new = || sent(modern("tools/call", &call("ask_agent", &hi)));
    assert_ne!(new(), new());
    let mut again = call("ask_agent", &hi);
    again["requestState"] = json!("s/trn_1");
    assert_eq!(sent(modern("tools/call", &again)), "s");
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
    let cancel = || post(MCP).bearer(DEV).json(&cancel);
    assert_eq!(sent(cancel().header("mcp-session-id", "m")), "m");
    assert_eq!(stage.answer(cancel()).status, 202);
    let reply = json!({"jsonrpc": "2.0", "id": "s/c1", "result": {"action": "cancel"}});
    assert_eq!(sent(post(MCP).bearer(DEV).json(&reply)), "s");
    let reply = json!({"jsonrpc": "2.0", "id": 3, "result": {}});
    assert_eq!(stage.answer(post(MCP).bearer(DEV).json(&reply)).status, 202);
}

#[test]
fn a_request_about_a_task_goes_to_its_session() {
    let stage = Stage::new();
    let reads_tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let about = |method: &str, id: &str| {
        modern_with(&reads_tasks, method, &json!({"taskId": id, "inputResponses": {}}))
    };
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        assert_eq!(stage.forward(about(method, "trn_1.a.b")).session.as_str(), "a.b");
        assert_eq!(refused(&stage.answer(about(method, "trn_1"))), (200, -32602));
        let answer = stage.answer(modern(method, &json!({"taskId": "trn_1.a"})));
        assert_eq!(refused(&answer), (400, -32021));
        assert_eq!(answer.body["error"]["data"]["requiredCapabilities"], reads_tasks);
        let other = about(method, "trn_1.a").header("mcp-name", "trn_2.a");
        assert_eq!(refused(&stage.answer(other)), (400, -32020));
    }
    stage.tenant("t", Value::Null);
    let (_, key) = stage.key("t", json!({"scopes": ["read"]}));
    assert_eq!(stage.forward(about("tasks/get", "trn_1.a").bearer(&key)).session.as_str(), "a");
    for method in ["tasks/update", "tasks/cancel"] {
        assert_eq!(stage.answer(about(method, "trn_1.a").bearer(&key)).status, 403);
    }
}

#[test]
fn invalid_arguments_are_results_that_a_model_can_read() {
    let stage = Stage::new();
    for (name, arguments, expected) in [
        ("ask_agent", json!({}), "missing field `message`"),
        ("ask_agent", json!({"message": 1}), "/message"),
        ("ask_agent", json!({"message": "hi", "session": "a/b"}), "/session"),
        ("search_memory", json!({"query": "x", "limit": 0}), "/limit"),
        ("search_memory", json!({"query": "x", "agent": "missing"}), "missing"),
    ] {
        let answer = stage.answer(modern("tools/call", &json!({"name": name, "arguments": arguments})));
        let result = &answer.body["result"];
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!((answer.status, &result["isError"]), (200, &json!(true)));
        assert!(text.contains(expected), "{text}");
    }
    let mut again = json!({"name": "ask_agent", "arguments": {"message": "hi"}});
    again["requestState"] = json!("forged");
    let result = stage.answer(modern("tools/call", &again)).body["result"].clone();
    assert_eq!(result["isError"], json!(true));
}

#[test]
fn memory_is_searched() {
    let stage = Stage::new();
    let facts = json!({"facts": [{"text": "Anna drinks green tea.", "ts": "2026-03-04T05:06:07Z"}]});
    assert_eq!(stage.answer(post("/v1/memory").bearer(DEV).json(&facts)).status, 201);
    let search = |query: &str| {
        let call = json!({"name": "search_memory", "arguments": {"query": query}});
        stage.answer(legacy("tools/call", &call)).body["result"].clone()
    };
    let found = search("green tea");
    assert_eq!(found["content"][0]["text"], json!("2026-03-04: Anna drinks green tea."));
    assert_eq!(found["structuredContent"]["hits"][0]["text"], json!("Anna drinks green tea."));
    assert_eq!(search("coffee")["content"][0]["text"], json!("Nothing found."));
    let call = message("tools/call", &json!({"name": "search_memory", "arguments": {"query": "green tea"}}));
    let of_another = stage.answer(post("/mcp?user=ben").bearer(DEV).json(&call));
    assert_eq!(of_another.body["result"]["content"][0]["text"], json!("Nothing found."));
}

#[test]
fn a_key_without_the_scope_chat_only_reads() {
    let stage = Stage::new();
    stage.tenant("t", Value::Null);
    let (_, key) = stage.key("t", json!({"scopes": ["read"]}));
    let send = |body: &Value| stage.answer(post(MCP).bearer(&key).header("mcp-session-id", "m").json(body));
    assert_eq!(send(&message("tools/list", &json!({}))).status, 200);
    let call = json!({"name": "ask_agent", "arguments": {"message": "hi"}});
    let refusal = send(&message("tools/call", &call));
    assert_eq!((refused(&refusal), &refusal.body["id"]), ((403, -32600), &json!(1)));
    assert_eq!(refusal.body["error"]["data"]["code"], json!("missing_scope"));
    for body in [
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
        json!({"jsonrpc": "2.0", "id": "s/c1", "result": {"action": "accept"}}),
    ] {
        assert_eq!(send(&body).status, 403);
    }
}

#[test]
fn files_are_resources() {
    let stage = Stage::new();
    let write = |query: &str, path: &str, bytes: Vec<u8>| {
        let target = format!("/v1/workspace/files/{path}?{query}");
        assert_eq!(stage.answer(request("PUT", &target).bearer(DEV).body(bytes)).status, 201);
    };
    write("", "notes/a%20b.md", b"# Hi".to_vec());
    write("", "logo.png", vec![0x89, 0xff]);
    write("agent=other", "AGENTS.md", b"Be brief.".to_vec());
    let list = |cursor: Option<&str>| {
        let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        stage.answer(modern("resources/list", &params)).body["result"].clone()
    };
    let first = list(None);
    assert_eq!(names(&first["resources"]), ["logo.png", "notes/a b.md"]);
    let note = &first["resources"][1];
    assert_eq!(
        (&note["uri"], &note["mimeType"], &note["size"]),
        (&json!("workspace://default/notes/a%20b.md"), &json!("text/markdown; charset=utf-8"), &json!(4))
    );
    let second = list(first["nextCursor"].as_str());
    assert_eq!((names(&second["resources"]), second.get("nextCursor")), (vec!["AGENTS.md"], None));
    let read = |uri: &str| stage.answer(modern("resources/read", &json!({ "uri": uri })));
    let content = |uri: &str| read(uri).body["result"]["contents"][0].clone();
    assert_eq!(content("workspace://default/notes/a%20b.md")["text"], json!("# Hi"));
    assert_eq!(content("workspace://default/logo.png")["blob"], json!("if8="));
    assert_eq!(content("workspace://other/AGENTS.md")["text"], json!("Be brief."));
    for uri in ["workspace://default/none", "workspace://missing/AGENTS.md", "file:///etc/passwd"] {
        let answer = read(uri);
        assert_eq!((refused(&answer), &answer.body["error"]["data"]["uri"]), ((200, -32602), &json!(uri)));
    }
    let unknown = stage.answer(legacy("resources/read", &json!({"uri": "workspace://default/none"})));
    assert_eq!(refused(&unknown), (200, -32002));
    assert_eq!(refused(&stage.answer(modern("resources/list", &json!({"cursor": "x"})))), (200, -32602));
    let templates = stage.answer(modern("resources/templates/list", &json!({}))).body["result"].clone();
    assert_eq!(templates["resourceTemplates"][0]["uriTemplate"], json!("workspace://{agent}/{+path}"));
}

#[test]
fn arguments_of_the_template_are_completed() {
    let stage = Stage::new();
    for path in ["notes/a.md", "notes/b.md", "todo.md"] {
        let target = format!("/v1/workspace/files/{path}?agent=other");
        stage.answer(request("PUT", &target).bearer(DEV).body("x"));
    }
    let complete = |uri: &str, name: &str, value: &str, agent: &str| {
        let params = json!({
            "ref": {"type": "ref/resource", "uri": uri},
            "argument": {"name": name, "value": value},
            "context": {"arguments": {"agent": agent}},
        });
        stage.answer(modern("completion/complete", &params)).body["result"]["completion"].clone()
    };
    let template = "workspace://{agent}/{+path}";
    let values = |values: Value| json!({"values": values, "hasMore": false});
    assert_eq!(complete(template, "agent", "o", "default"), values(json!(["other"])));
    assert_eq!(complete(template, "path", "no", "other"), values(json!(["notes/a.md", "notes/b.md"])));
    assert_eq!(complete(template, "path", "no", "missing"), values(json!([])));
    assert_eq!(complete("file:///{path}", "path", "no", "other"), values(json!([])));
    assert_eq!(refused(&stage.answer(modern("completion/complete", &json!({})))), (200, -32602));
}

#[test]
fn a_list_of_many_files_has_pages() {
    let stage = Stage::new();
    for index in 0..101 {
        let target = format!("/v1/workspace/files/{index:03}.txt");
        stage.answer(request("PUT", &target).bearer(DEV).body("x"));
    }
    let (mut cursor, mut found) = (json!({}), Vec::new());
    loop {
        let page = stage.answer(legacy("resources/list", &cursor)).body["result"].clone();
        found.extend(names(&page["resources"]).into_iter().map(str::to_owned));
        let Some(next) = page["nextCursor"].as_str() else { break };
        cursor = json!({ "cursor": next });
    }
    assert_eq!(found, (0..101).map(|index| format!("{index:03}.txt")).collect::<Vec<_>>());
}

#[test]
fn modes_are_prompts() {
    let stage = Stage::new();
    let list = stage.answer(modern("prompts/list", &json!({}))).body["result"].clone();
    let prompt = &list["prompts"][0];
    assert_eq!((names(&list["prompts"]), &prompt["description"]), (vec!["plan"], &json!("Plans.")));
    let get = |name: &str, arguments: Value| {
        stage.answer(modern("prompts/get", &json!({"name": name, "arguments": arguments})))
    };
    let text = |answer: Answer| answer.body["result"]["messages"][0]["content"]["text"].clone();
    assert_eq!(text(get("plan", json!({}))), json!("Write a plan."));
    assert_eq!(text(get("plan", json!({"task": "Move house."}))), json!("Write a plan.\n\nMove house."));
    assert_eq!(refused(&get("fly", json!({}))), (200, -32602));
}

#[test]
fn skills_are_prompts_of_their_user() {
    let stage = Stage::new();
    let skill = "---\nname: deploy\ndescription: Deploys.\n---\n\nRun make.\n";
    for (path, text) in [("deploy", skill), ("broken", "no front matter")] {
        let path = format!("/v1/workspace/files/skills/{path}/SKILL.md?user=ann");
        let answer = stage.answer(request("PUT", &path).bearer(DEV).body(text.to_owned()));
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    let ask = |user: &str, method: &str, params: &Value| {
        let asked = modern_at(&format!("{MCP}?user={user}"), &json!({}), method, params);
        stage.answer(asked).body["result"].clone()
    };
    let name = "default/skills/deploy";
    assert_eq!(names(&ask("ann", "prompts/list", &json!({}))["prompts"]), ["plan", name]);
    assert_eq!(names(&ask("bob", "prompts/list", &json!({}))["prompts"]), ["plan"]);
    let found = ask("ann", "prompts/get", &json!({"name": name, "arguments": {"task": "Now."}}));
    assert_eq!(found["messages"][0]["content"]["text"], "Run make.\n\n\nNow.");
    assert_eq!(found["description"], "Deploys.");
    for (user, name) in [
        ("bob", name),
        ("ann", "default/skills/broken"),
        ("ann", "default/skills/../x"),
        ("ann", "none/skills/deploy"),
    ] {
        assert_eq!(ask(user, "prompts/get", &json!({ "name": name })), Value::Null, "{user} {name}");
    }
}

#[test]
fn pages_of_other_sites_are_refused() {
    let stage = Stage::new();
    let status = |host: &str, origin: &str| {
        let asked = legacy("ping", &json!({})).header("host", host).header("origin", origin);
        stage.answer(asked.bearer(DEV)).status
    };
    let local = "localhost:8787";
    assert_eq!(status(local, "http://localhost:8787"), 200);
    assert_eq!(status(local, "https://app.example"), 200);
    for origin in ["http://evil.example", "http://localhost:1", "null", "https://localhost:8787.evil.example"]
    {
        assert_eq!(status(local, origin), 403, "{origin}");
    }
}

#[test]
fn a_refused_client_finds_the_identity_provider() {
    let stage = Stage::new();
    let metadata = |target: &str| stage.answer(get(target).header("host", "mcp.example"));
    let root = "/.well-known/oauth-protected-resource";
    assert_eq!(metadata(root).body["resource"], json!("https://mcp.example"));
    assert_eq!(metadata(root).body.get("authorization_servers"), None);
    let issuer = |at: &str| json!({"issuer": at, "audience": "https://mcp.example/mcp", "jwks_url": "https://id.example/jwks"});
    stage.tenant("acme", issuer("https://id.example"));
    let of_mcp = metadata(&format!("{root}/mcp"));
    assert_eq!(
        (&of_mcp.body["resource"], &of_mcp.body["authorization_servers"]),
        (&json!("https://mcp.example/mcp"), &json!(["https://id.example"]))
    );
    // With several tenants, the URL has to name one.
    stage.tenant("beta", issuer("https://other.example"));
    assert_eq!(metadata(&format!("{root}/mcp")).body.get("authorization_servers"), None);
    let named = metadata(&format!("{root}/mcp?tenant=beta"));
    assert_eq!(
        (&named.body["resource"], &named.body["authorization_servers"]),
        (&json!("https://mcp.example/mcp?tenant=beta"), &json!(["https://other.example"]))
    );
    assert_eq!(metadata(&format!("{root}/mcp?tenant=missing")).body.get("authorization_servers"), None);
    let challenge = |target: &str, host: &str| {
        let answer = stage.answer(post(target).header("host", host).json(&message("ping", &json!({}))));
        assert_eq!(refused(&answer), (401, -32600));
        answer.header("www-authenticate").unwrap().to_owned()
    };
    let header = challenge("/mcp?tenant=beta", "mcp.example");
    assert!(
        header.contains(&format!("resource_metadata=\"https://mcp.example{root}/mcp?tenant=beta\"")),
        "{header}"
    );
    let header = challenge("/mcp", "localhost:8787");
    assert!(header.contains(&format!("resource_metadata=\"http://localhost:8787{root}/mcp\"")), "{header}");
    assert!(!challenge("/mcp", "evil\".example").contains("evil"));
}

#[test]
fn a_cancellation_passes_when_no_message_would() {
    let stage = Stage::new();
    stage.tenant("t", Value::Null);
    let limits = json!({"limits": {"concurrent_turns": 1}});
    let patched = stage.answer(request("PATCH", "/v1/admin/tenants/t").bearer(ADMIN).json(&limits));
    assert_eq!(patched.status, 200);
    let (_, key) = stage.key("t", json!({}));
    let call = |session: &str| {
        let arguments = json!({"message": "hi", "session": session});
        let body = message("tools/call", &json!({"name": "ask_agent", "arguments": arguments}));
        stage.send(post(MCP).bearer(&key).json(&body))
    };
    // They count until their sessions have responded.
    let mut held = Vec::new();
    let refusal = loop {
        match call(&format!("s{}", held.len())) {
            Handled::Forward(forward) if held.len() < 100 => held.push(forward),
            Handled::Forward(_) | Handled::Socket(_) => panic!("no limit"),
            Handled::Response(response) => break Answer::from(response),
        }
    };
    assert_eq!(refusal.status, 429);
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    let cancel = post(MCP).bearer(&key).header("mcp-session-id", "m").json(&cancel);
    assert_eq!(stage.forward(cancel).session.as_str(), "m");
}
