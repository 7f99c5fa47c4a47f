//! What servers return and offer besides the texts of tools: files, resources and prompts, and other tools.

use super::*;
use pretty_assertions::assert_eq;

/// A stage whose model makes one call in each turn: that of the last message.
fn calling(definition: &Value, tools: &[&'static str]) -> (Stage, Rc<Server>) {
    let script = |request: &ModelRequest| {
        let said =
            request.messages.iter().rev().find(|message| message.role == Role::User).expect("a message");
        let said: Value = serde_json::from_str(&said.text()).unwrap_or_default();
        let name = said["name"].as_str().unwrap_or_default();
        let is_offered = request.tools.iter().any(|tool| tool.name == name);
        match step_of(request) {
            0 if is_offered => answer(vec![call("c1", name, said["args"].clone())]),
            0 => answer(vec![Part::text("there is no such tool")]),
            _ => answer(vec![Part::text("done")]),
        }
    };
    let (stage, server, _) = scripted(definition, tools, script);
    (stage, server)
}

/// Runs a turn with a call. Returns its outcome.
fn run(stage: &Stage, name: &str, args: Value) -> Value {
    let before = records(stage, "tool.completed").len();
    let content = json!({"name": name, "args": args}).to_string();
    let body = json!({ "content": content }).to_string();
    respond(stage, &request("POST /messages", "agent=support", &[("prefer", "respond-async")], body))
        .expect("accepted");
    stage.run();
    if stage.session().pending().expect("a store that works").is_empty() {
        stage.settle();
    }
    records(stage, "tool.completed").get(before).cloned().unwrap_or_default()
}

fn stored(stage: &Stage) -> Vec<Value> {
    records(stage, "artifact.stored")
}

fn bytes(stage: &Stage, file: &Value) -> Bytes {
    let session = stage.session();
    let artifacts = stage.host().artifacts(&session);
    let pointer = artifacts.find(&file["ref"].as_str().expect("a ref").into()).expect("a file");
    block_on(artifacts.read(&pointer, None)).expect("bytes")
}

fn offering() -> Value {
    json!({"resources": {}, "prompts": {}})
}

#[test]
fn files_of_a_result_belong_to_the_session() {
    let (stage, server) = calling(&crm(), &["draw"]);
    let image = |data: &str| json!({"type": "image", "mimeType": "image/png", "data": data});
    let drawn = json!({"structuredContent": {"n": 2}, "content": [
        {"type": "text", "text": "two"}, image("AAEC"), image("!"), image("AAECAw=="),
    ]});
    server.results.borrow_mut().insert("tools/call".into(), drawn);
    let outcome = run(&stage, "crm__draw", json!({}));
    let files = stored(&stage);
    assert_eq!(files.len(), 2);
    assert_eq!(bytes(&stage, &files[0]), Bytes::from_static(&[0, 1, 2]));
    assert_eq!(bytes(&stage, &files[1]), Bytes::from_static(&[0, 1, 2, 3]));
    let content = outcome["result"]["content"].as_str().expect("a text");
    let lines: Vec<_> = content.lines().collect();
    assert_eq!((&outcome["result"]["structuredContent"], lines.len()), (&json!({"n": 2}), 3));
    assert!(lines[0].contains(files[0]["ref"].as_str().expect("a ref")), "{content}");
    assert_eq!(lines[1], "[image, image/png, 0 bytes: not shown]");
    // The pointers survive the process.
    stage.crash();
    assert_eq!(bytes(&stage, &files[1]).len(), 4);
    stage.check();
}

#[test]
fn an_agent_reads_resources_and_prompts() {
    let (stage, server) = calling(&crm(), &["add"]);
    server.offers.replace(offering());
    let results = json!({
        "resources/list": {"resources": [{"uri": "file:///a", "name": "a", "size": 7}]},
        "resources/templates/list": {"resourceTemplates": []},
        "resources/read": {"contents": [
            {"uri": "file:///a", "text": "A"},
            {"uri": "file:///b.bin", "blob": "AAEC", "mimeType": "application/octet-stream"},
        ]},
        "prompts/list": {"prompts": [{"name": "p"}]},
        "prompts/get": {"description": "D.", "messages": [
            {"role": "user", "content": {"type": "text", "text": "hi"}},
            {"role": "assistant", "content": [{"type": "text", "text": "ho"}]},
        ]},
    });
    server.results.replace(results.as_object().expect("an object").clone());
    assert_eq!(run(&stage, "crm__add", json!({}))["outcome"], "result");
    assert_eq!(*server.asked.borrow(), ["server/discover", "tools/list", "tools/call"]);
    let listed = run(&stage, "mcp_read_resource", json!({"server": "crm"}));
    let expected = json!({
        "server": "crm", "resources": [{"uri": "file:///a", "name": "a"}], "resourceTemplates": [],
    });
    assert_eq!(listed["result"], expected);
    let read = run(&stage, "mcp_read_resource", json!({"server": "crm", "uri": "file:///a"}));
    let files = stored(&stage);
    let text = read["result"].as_str().expect("a text");
    assert!(text.starts_with("[resource file:///a]\nA\n[resource file:///b.bin]\n[file \"b.bin\""), "{text}");
    assert_eq!((files.len(), bytes(&stage, &files[0]).len()), (1, 3));
    let prompts = run(&stage, "mcp_get_prompt", json!({"server": "crm"}));
    assert_eq!(prompts["result"], json!({"server": "crm", "prompts": [{"name": "p"}]}));
    let prompt = run(&stage, "mcp_get_prompt", json!({"server": "crm", "name": "p"}));
    assert_eq!(prompt["result"], "D.\n[user]\nhi\n[assistant]\nho");
    stage.check();
}

#[test]
fn a_wrong_name_is_a_failure_that_says_what_is_right() {
    let (stage, server) = calling(&crm(), &[]);
    server.offers.replace(offering());
    let missing = run(&stage, "mcp_read_resource", json!({"server": "crm", "uri": "file:///none"}));
    assert_eq!(missing["outcome"], "failure");
    let expected = "the MCP server \"crm\" answered with the error -32602: cannot resources/read. Call this tool with only \
                    `server` to list what a server has; servers with resources: \"crm\"";
    assert_eq!(missing["reason"], expected);
    let wrong = run(&stage, "mcp_get_prompt", json!({"server": "other"}));
    assert_eq!(wrong["denied"], "validation");
    assert!(wrong["reason"].as_str().is_some_and(|reason| reason.contains("servers with prompts: \"crm\"")));
    server.is_down.set(true);
    let lost = run(&stage, "mcp_read_resource", json!({"server": "crm", "uri": "file:///a"}));
    assert_eq!(lost["outcome"], "unknown", "the server is not trusted");
}

#[test]
fn a_read_of_a_server_that_asks_waits_for_the_user() {
    let (stage, server) = calling(&crm(), &[]);
    server.offers.replace(offering());
    let schema = json!({"type": "object", "properties": {"id": {"type": "string"}}});
    let asks = json!({"resultType": "input_required", "requestState": "s", "inputRequests": {
        "a": {"method": "elicitation/create", "params": {"message": "Which?", "requestedSchema": schema}},
    }});
    server.results.borrow_mut().insert("resources/read".into(), asks);
    assert_eq!(run(&stage, "mcp_read_resource", json!({"server": "crm", "uri": "a:b"})), Value::Null);
    assert_eq!(pending(&stage).payload["question"], "Which?");
    let read = json!({"contents": [{"uri": "a:b", "text": "B"}]});
    server.results.borrow_mut().insert("resources/read".into(), read);
    stage.crash();
    assert_eq!(say(&stage, json!("main")), Ok(()));
    stage.settle();
    assert_eq!(records(&stage, "tool.completed")[0]["result"], "[resource a:b]\nB");
    stage.check();
}

#[test]
fn definitions_and_rules_apply_to_resources() {
    let with = |more: Value| {
        let mut definition = crm();
        definition.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let (stage, server) = calling(&definition, &[]);
        server.offers.replace(offering());
        server.results.borrow_mut().insert("prompts/list".into(), json!({"prompts": []}));
        run(&stage, "mcp_get_prompt", json!({"server": "crm"}))["outcome"].clone()
    };
    assert_eq!(with(json!({})), "result");
    assert_eq!(with(json!({"tools": {"allow": ["mcp_get_prompt"]}})), "result");
    assert_eq!(with(json!({"modes": [{"id": "m", "tools": ["mcp_get_prompt"]}]})), "result");
    assert_eq!(with(json!({"tools": {"deny": ["mcp_get_prompt"]}})), Value::Null);
    assert_eq!(with(json!({"permissions": {"categories": {"mcp": "deny"}}})), Value::Null);
    let server = json!({"url": "https://crm.example.com/mcp", "deny": ["mcp_get_prompt"]});
    assert_eq!(with(json!({"mcp_servers": {"crm": server}})), Value::Null);
}

#[test]
fn the_next_message_has_the_tools_of_which_a_server_has_sent_notice() {
    let (stage, server) = calling(&crm(), &["grow"]);
    assert_eq!(run(&stage, "crm__grow", json!({}))["outcome"], "result");
    // The agent is built anew, and its seeded ids differ only with the time.
    stage.tick(Duration::from_millis(1));
    let grown = run(&stage, "crm__grown", json!({"n": 1}));
    let lists = || server.asked.borrow().iter().filter(|method| *method == "tools/list").count();
    assert_eq!((&grown["result"], lists()), (&json!({"n": 1}), 2));
    run(&stage, "crm__grown", json!({"n": 2}));
    assert_eq!(lists(), 2);
    stage.check();
}
