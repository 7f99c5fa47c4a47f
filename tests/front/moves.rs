//! Moves of tenants between shards, as the operator requests them.

use crate::stage::{ADMIN, Stage, delete, get, post, request};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const MOVES: &str = "/v1/admin/tenants/acme/moves";

fn start(stage: &Stage, to: &str) -> (u16, Value) {
    let answer = stage.answer(post(MOVES).bearer(ADMIN).json(&json!({ "to": to })));
    (answer.status, answer.body)
}

#[test]
fn a_move_is_started_once_continued_and_canceled() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let listed = || stage.answer(get(MOVES).bearer(ADMIN)).body["data"].clone();
    assert_eq!(listed(), json!([]));
    for (to, detail) in [("DB", "this is the current shard"), ("DB_9", "expected one of: DB, DB_1")] {
        let (status, problem) = start(&stage, to);
        let error = json!([{ "pointer": "/to", "detail": detail }]);
        assert_eq!((status, &problem["errors"]), (422, &error));
    }
    let (status, started) = start(&stage, "DB_1");
    assert_eq!(
        (status, [&started["from"], &started["to"], &started["phase"]]),
        (202, [&json!("DB"), &json!("DB_1"), &json!("draining")])
    );
    assert_eq!(start(&stage, "DB_1"), (202, started.clone()), "the same move");
    assert_eq!(listed(), json!([started]));

    let (_, key) = stage.key("acme", json!({ "scopes": ["chat", "read", "admin"] }));
    let limits = request("PATCH", "/v1/admin/tenants/acme").json(&json!({ "limits": { "files": 9 } }));
    for (refused, credential) in
        [(get("/v1/export"), key.as_str()), (delete("/v1/memory?user=ann"), &key), (limits, ADMIN)]
    {
        assert_eq!(stage.answer(refused.bearer(credential)).code(), (503, "unavailable"));
    }
    let name = request("PATCH", "/v1/admin/tenants/acme").json(&json!({ "name": "Acme" }));
    assert_eq!(stage.answer(name.bearer(ADMIN)).body["name"], "Acme");
    assert_eq!(stage.directory.limit_copies.get(), 0, "the shards refuse new limits during a move");

    let (status, canceled) = start(&stage, "DB");
    assert_eq!((status, &canceled["id"], &canceled["phase"]), (202, &started["id"], &json!("canceled")));
    let (_, again) = start(&stage, "DB_1");
    assert_eq!(again["phase"], "draining");
    assert_ne!(again["id"], started["id"]);
}

#[test]
fn only_the_operator_moves_a_tenant_that_exists() {
    let stage = Stage::new();
    assert_eq!(start(&stage, "DB_1").0, 404);
    assert_eq!(stage.answer(get(MOVES).bearer(ADMIN)).status, 404);
    stage.tenant("acme", Value::Null);
    let (_, key) = stage.key("acme", json!({ "scopes": ["chat", "read", "admin"] }));
    let refused = stage.answer(post(MOVES).bearer(&key).json(&json!({ "to": "DB_1" })));
    assert_eq!(refused.status, 403);
}

#[test]
fn a_user_moves_and_so_does_a_tenant_whose_users_are_spread() {
    let stage = Stage::new();
    let made = post("/v1/admin/tenants").bearer(ADMIN).json(&json!({ "id": "acme", "spread": true }));
    assert_eq!(stage.answer(made).body["spread"], 2);
    let trail = stage.answer(get("/v1/admin/tenants/acme/audit").bearer(ADMIN)).body;
    let details = json!({ "before": null, "after": 2 });
    assert_eq!(trail["data"][0]["details"]["spread"], details);
    // Other tenants are not spread, and do not show it.
    stage.tenant("globex", Value::Null);
    assert_eq!(stage.answer(get("/v1/admin/tenants/globex").bearer(ADMIN)).body.get("spread"), None);

    let start = |body: Value| {
        let answer = stage.answer(post(MOVES).bearer(ADMIN).json(&body));
        (answer.status, answer.body)
    };
    // The id of a user determines its shard.
    let (status, refused) = start(json!({ "to": "DB", "user": "bob" }));
    assert_eq!((status, &refused["errors"][0]["detail"]), (422, &json!("this is the current shard")));
    let (status, refused) = start(json!({ "to": "DB", "user": "" }));
    assert_eq!((status, &refused["errors"][0]["pointer"]), (422, &json!("/user")));
    let (status, started) = start(json!({ "to": "DB_1", "user": "bob" }));
    assert_eq!((status, &started["user"], &started["from"]), (202, &json!("bob"), &json!("DB")));
    // One move of a tenant at a time.
    for other in [json!({ "to": "DB_1", "user": "ann" }), json!({ "to": "DB_1" }), json!({ "to": "DB" })] {
        assert_eq!(start(other).0, 409);
    }
    let trail = stage.answer(get("/v1/admin/tenants/acme/audit?action=tenant.moved").bearer(ADMIN)).body;
    let details = json!({ "to": "DB_1", "user": "bob" });
    assert!(trail["data"].as_array().unwrap().iter().any(|row| row["details"] == details), "{trail}");
    let (status, canceled) = start(json!({ "to": "DB", "user": "bob" }));
    assert_eq!((status, &canceled["phase"]), (202, &json!("canceled")));

    let (status, started) = start(json!({ "to": "DB_1" }));
    assert_eq!((status, started.get("user"), &started["phase"]), (202, None, &json!("draining")));
}
