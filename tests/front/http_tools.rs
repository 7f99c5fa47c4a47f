//! HTTP tools in definitions of agents.

use crate::stage::{Answer, Stage, get, request};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

fn with_key() -> (Stage, String) {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, admin) = stage.key("acme", json!({"scopes": ["chat", "read", "admin"]}));
    (stage, admin)
}

fn push(stage: &Stage, key: &str, definition: &Value) -> Answer {
    stage.answer(request("PUT", "/v1/agents/support").bearer(key).json(definition))
}

fn pointers(answer: &Answer) -> Vec<&str> {
    let errors = answer.body["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    errors.iter().map(|error| error["pointer"].as_str().unwrap()).collect()
}

#[test]
fn a_definition_with_http_tools_is_stored_with_its_defaults() {
    let (stage, admin) = with_key();
    let mut tools = json!([{
        "name": "find_order", "description": "Finds an order.", "method": "GET",
        "url": "https://shop.example.com/orders/{{id}}?expand={{expand}}",
        "parameters": {"properties": {"id": {"type": "integer"}, "expand": {"type": "string"}}, "required": ["id"]},
        "headers": {"Authorization": "Bearer ${secret:SHOP_TOKEN}"}, "timeout_s": 10, "result": "/order",
    }]);
    let stored = push(&stage, &admin, &json!({"http_tools": tools, "tools": {"deny": ["find_order"]}}));
    tools[0]["category"] = json!("other");
    assert_eq!((stored.status, &stored.body["http_tools"]), (201, &tools));
    let shown = stage.answer(get("/v1/agents/support").bearer(&admin));
    assert_eq!(shown.body["http_tools"], tools);
}

#[test]
fn operations_of_an_openapi_document_become_tools() {
    let (stage, admin) = with_key();
    let document = json!({
        "openapi": "3.1.0", "servers": [{"url": "https://shop.example.com"}],
        "paths": {"/orders/{id}": {"get": {
            "operationId": "getOrder", "parameters": [{"in": "path", "name": "id", "schema": {"type": "string"}}],
        }, "delete": {"operationId": "echo", "parameters": [{"in": "path", "name": "id", "schema": {"type": "string"}}]}}},
    });
    let definition = |operations: Value, base: Value| json!({"openapi": {"document": document, "operations": operations, "base_url": base}, "tools": {"deny": ["getOrder"]}});
    assert_eq!(push(&stage, &admin, &definition(json!(["getOrder"]), Value::Null)).status, 201);
    let unknown = push(&stage, &admin, &definition(json!(["getOrder", "fly"]), Value::Null));
    assert_eq!(pointers(&unknown), ["/openapi/operations/1"]);
    let taken = push(&stage, &admin, &definition(json!(["getOrder", "echo"]), Value::Null));
    assert_eq!(pointers(&taken), ["/openapi/operations/1"]);
    let private = push(&stage, &admin, &definition(json!(["getOrder"]), json!("https://10.0.0.1")));
    assert_eq!(pointers(&private), ["/openapi/operations/0"]);
    let text = private.body["errors"][0]["detail"].as_str().unwrap();
    assert!(text.starts_with("its tool is not valid at /url: "), "{text}");
}

#[test]
fn every_fault_of_an_http_tool_has_its_place() {
    let (stage, admin) = with_key();
    let good = json!({"name": "good", "url": "https://shop.example.com/"});
    let refused = push(
        &stage,
        &admin,
        &json!({"http_tools": [
            good, good,
            {"name": "echo", "url": "https://shop.example.com/"},
            {"name": "private", "url": "https://192.168.0.1/{{id}}", "parameters": {"properties": {"id": {}}}},
            {"name": "plain", "url": "http://shop.example.com/"},
            {"name": "host", "url": "https://{{host}}/", "parameters": {"properties": {"host": {}}}},
            {"name": "args", "method": "POST", "url": "https://shop.example.com/{{a}}", "headers": {"X-A": "{{b}}"}, "body": {"c/d": "{{c}}"}},
            {"name": "forms", "url": "https://shop.example.com/${secret:a-b}", "timeout_s": 301, "headers": {"Host": "a"}},
        ]}),
    );
    assert_eq!(refused.status, 422);
    let expected = [
        "/http_tools/1/name",
        "/http_tools/2/name",
        "/http_tools/3/url",
        "/http_tools/4/url",
        "/http_tools/5/url",
        "/http_tools/6/url",
        "/http_tools/6/headers/x-a",
        "/http_tools/6/body/c~1d",
        "/http_tools/7/timeout_s",
        "/http_tools/7/headers/Host",
        "/http_tools/7/url",
    ];
    assert_eq!(pointers(&refused), expected);
    let unknown = push(
        &stage,
        &admin,
        &json!({"http_tools": [{"name": "a", "url": "https://a.example/", "timeout": 5}]}),
    );
    assert_eq!(pointers(&unknown), ["/http_tools/0/timeout"]);
    let many: Vec<Value> = (0..65)
        .map(|count| json!({"name": format!("t{count}"), "url": "https://shop.example.com/"}))
        .collect();
    assert_eq!(pointers(&push(&stage, &admin, &json!({ "http_tools": many }))), ["/http_tools/64"]);
}
