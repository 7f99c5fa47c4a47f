//! The audit trail of a tenant.

use crate::support::{Chat, Client, Server};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const TENANT: &str = "/v1/admin/tenants/traced";

fn trail(operator: &Client) -> Vec<Value> {
    operator.get(&format!("{TENANT}/audit")).expect(200)["data"].as_array().unwrap().clone()
}

fn actions(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["action"].as_str().unwrap()).collect()
}

#[test]
fn changes_and_decisions_are_recorded_and_stay() {
    let mut server = Server::start(json!({}));
    let operator = server.admin();
    let made = operator.with_header("cf-connecting-ip", "192.0.2.7").with_header("x-request-id", "made");
    made.post("/v1/admin/tenants", json!({"id": "traced"})).expect(201);
    let rules = json!({"permissions": {"tools": {"echo": "ask"}}});
    operator.patch(TENANT, rules.clone()).expect(200);
    operator.post("/v1/admin/tenants", json!({"id": "traced"})).expect(409);
    let scopes = json!({"scopes": ["chat", "read", "approve", "admin"]});
    let key = operator.post(&format!("{TENANT}/keys"), scopes).expect(201);
    let secret = key["key"].as_str().unwrap();
    let client = server.anonymous().with_key(secret);
    client.get(&format!("{TENANT}/audit")).expect(403);

    client.post("/v1/sessions", json!({"id": "asked", "model": "demo/echo"})).expect(201);
    let chat = Chat::new(client, "asked");
    let waits = chat.ask(json!({"content": "/tool echo {\"text\": \"private words\"}"}));
    let call = &waits["pending"][0];
    let decided = json!({"decision": "approve", "reason": "private reason"});
    let path = chat.path(&format!("/approvals/{}", call["call_id"].as_str().unwrap()));
    let decider =
        chat.client.with_header("cf-connecting-ip", "192.0.2.8").with_header("x-request-id", "decided");
    assert_eq!(decider.post(&path, decided).expect(200)["status"], "completed");

    // The session reports the decision after the turn.
    let deadline = Instant::now() + Duration::from_secs(60);
    while trail(&operator).len() < 4 {
        assert!(Instant::now() < deadline, "{:?}", trail(&operator));
        std::thread::sleep(Duration::from_millis(200));
    }
    let rows = trail(&operator);
    assert_eq!(actions(&rows), ["approval.decided", "key.created", "tenant.updated", "tenant.created"]);
    let field = |row: usize, field: &str| rows[row][field].clone();
    assert_eq!(field(0, "actor"), json!({"type": "caller", "key": key["id"]}));
    assert_eq!((field(0, "object"), field(0, "request_id")), (call["call_id"].clone(), json!("decided")));
    assert_eq!(field(0, "address"), "192.0.2.8");
    assert_eq!(
        field(0, "details"),
        json!({"session": "asked", "tool": "echo", "decision": "approve", "args_hash": call["args_hash"]})
    );
    assert_eq!(field(1, "object"), key["id"]);
    assert_eq!(field(2, "details")["permissions"], json!({"before": null, "after": rules["permissions"]}));
    assert_eq!((field(3, "address"), field(3, "request_id")), (json!("192.0.2.7"), json!("made")));
    for words in ["private words", "private reason", secret] {
        assert!(!json!(rows).to_string().contains(words), "{words}");
    }

    // What the database itself allows, and the cron run.
    for (sql, refusal) in [
        ("UPDATE audit SET object = 'x' WHERE tenant = 'traced'", "cannot change"),
        ("DELETE FROM audit WHERE tenant = 'traced'", "cannot be deleted"),
    ] {
        let error = server.edit_refused(sql);
        assert!(error.contains(refusal), "{error}");
    }
    server.edit(
        "INSERT INTO audit SELECT tenant, 'aud_0', 1, actor, 'key.revoked', object, address, request_id, details \
         FROM audit WHERE action = 'key.created'",
    );
    let operator = server.admin();
    assert_eq!(trail(&operator).len(), 5);
    operator.delete(TENANT).expect(204);
    server.scheduled();
    let after = trail(&operator);
    assert_eq!(actions(&after[..1]), ["tenant.deleted"]);
    assert_eq!(after[1..], rows, "the row of 1970 is gone");
}
