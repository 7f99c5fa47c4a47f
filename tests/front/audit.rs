//! The audit trail of a tenant.

use crate::stage::{ADMIN, Answer, NOW, Request, Stage, delete, get, post, request};
use edge_harness::http::{Handled, route::Handler, routes};
use http::Method;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const TRAIL: &str = "/v1/admin/tenants/acme/audit";
const SECRET: &str = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA";

fn rows(stage: &Stage, query: &str) -> Vec<Value> {
    let answer = stage.answer(get(&format!("{TRAIL}{query}")).bearer(ADMIN));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body["data"].as_array().unwrap().clone()
}

fn fields(rows: &[Value], field: &str) -> Vec<String> {
    rows.iter().map(|row| row[field].as_str().unwrap().to_owned()).collect()
}

/// Sends a request of the operator from a known address.
fn operate(stage: &Stage, request: Request, id: &str) -> Answer {
    let request = request.bearer(ADMIN).header("cf-connecting-ip", "2001:db8::7").header("x-request-id", id);
    stage.answer(request)
}

#[test]
fn each_change_adds_one_row_and_a_refused_one_none() {
    let stage = Stage::new();
    let jwt = json!({
        "issuer": "https://id.example", "audience": "app",
        "jwks": { "keys": [{ "kty": "oct", "kid": "s", "alg": "HS256", "k": SECRET }] },
    });
    let tenant = json!({ "id": "acme", "name": "Acme of Ann", "jwt": jwt });
    let at = "/v1/admin/tenants/acme";
    let (keys, secrets) = (format!("{at}/keys"), ["Acme of Ann", "Ann's key", SECRET, "eh_", ADMIN]);
    let mut key = String::new();
    let (mut covered, mut expected) = (BTreeSet::new(), Vec::new());
    let mut step = |route: &'static str, request: &dyn Fn(&str) -> Request, action: &'static str| {
        covered.insert(route);
        stage.clock.advance(Duration::from_mins(1));
        let id = format!("request-{}", expected.len());
        let made = operate(&stage, request(&key), &id);
        assert!(made.status < 300, "{made:?}");
        if route.ends_with("/keys") {
            key = made.text("id");
        }
        expected.insert(0, (action.to_owned(), id));
        let rows = rows(&stage, "");
        let ids = fields(&rows, "request_id");
        assert_eq!(fields(&rows, "action").into_iter().zip(ids).collect::<Vec<_>>(), expected);
        let row = rows.into_iter().next().unwrap();
        for secret in secrets {
            assert!(!row.to_string().contains(secret), "{row}");
        }
        assert_eq!((&row["actor"], &row["address"]), (&json!({ "type": "operator" }), &json!("2001:db8::7")));
        let object = match action {
            "key.created" | "key.revoked" => key.as_str(),
            "user.erased" => "ann",
            _ => "acme",
        };
        assert_eq!(row["object"], object);
        row["details"].clone()
    };

    let made = step("POST /v1/admin/tenants", &|_| post("/v1/admin/tenants").json(&tenant), "tenant.created");
    assert_eq!((&made["changed"], &made["jwt"]["before"]), (&json!(["name", "jwt", "shard"]), &Value::Null));
    let shown = json!({ "issuer": "https://id.example", "audience": "app", "any_audience": false, "max_scopes": ["chat", "read"] });
    assert_eq!(made["jwt"]["after"], shown);
    let change = |body: Value| move |_: &str| request("PATCH", at).json(&body);
    let rules = change(json!({ "permissions": { "tools": { "a": "deny" } }, "limits": { "max_steps": 3 } }));
    let patch = "PATCH /v1/admin/tenants/{tenant}";
    let changed = step(patch, &rules, "tenant.updated");
    assert_eq!(
        changed,
        json!({
            "changed": ["permissions", "limits"],
            "permissions": { "before": null, "after": { "tools": { "a": "deny" } } },
            "limits": { "before": null, "after": { "max_steps": 3 } },
        })
    );
    let cut = step(patch, &change(json!({ "limits": { "max_steps": 2 }, "jwt": null })), "tenant.updated");
    assert_eq!(cut["jwt"], json!({ "before": shown, "after": null }));
    assert_eq!(cut["limits"], json!({ "before": { "max_steps": 3 }, "after": { "max_steps": 2 } }));
    let many: Vec<Value> =
        (0..200).map(|n| json!({ "pattern": format!("folder-{n}/**"), "policy": "deny" })).collect();
    let large = step(patch, &change(json!({ "permissions": { "patterns": many } })), "tenant.updated");
    assert_eq!(large, json!({ "changed": ["permissions"] }), "too large");

    let new = json!({ "name": "Ann's key", "scopes": ["read"] });
    let made = step("POST /v1/admin/tenants/{tenant}/keys", &|_| post(&keys).json(&new), "key.created");
    assert_eq!(made, json!({ "scopes": ["read"], "expires_at": null }));
    let revoke = |key: &str| delete(&format!("{keys}/{key}"));
    step("DELETE /v1/admin/tenants/{tenant}/keys/{key}", &revoke, "key.revoked");
    let erase = |_: &str| delete(&format!("{at}/users/ann"));
    step("DELETE /v1/admin/tenants/{tenant}/users/{user}", &erase, "user.erased");
    let to = json!({ "to": "DB_1" });
    let moves = format!("{at}/moves");
    let moved = step("POST /v1/admin/tenants/{tenant}/moves", &|_| post(&moves).json(&to), "tenant.moved");
    assert_eq!(moved, to);
    step("DELETE /v1/admin/tenants/{tenant}", &|_| delete(at), "tenant.deleted");

    let all = rows(&stage, "");
    for refused in [
        post("/v1/admin/tenants").json(&tenant),
        post("/v1/admin/tenants").json(&json!({ "id": "acme", "name": "" })),
        request("PATCH", at).json(&json!({ "name": "x" })),
        post(&keys).json(&json!({})),
        delete(&format!("{keys}/{key}")),
        delete(at),
    ] {
        let target = refused.target();
        assert!(operate(&stage, refused, "refused").status >= 400, "{target}");
    }
    assert_eq!(rows(&stage, ""), all);

    let changing = routes::all().filter(|route| {
        matches!(route.handler, Handler::Operator(_)) && ![Method::GET, Method::HEAD].contains(&route.method)
    });
    let changing: Vec<String> = changing.map(|route| format!("{} {}", route.method, route.path)).collect();
    assert_eq!(
        changing.into_iter().collect::<BTreeSet<_>>(),
        covered.iter().map(ToString::to_string).collect()
    );
}

#[test]
fn a_repeated_request_adds_no_second_row() {
    let stage = Stage::new();
    for _ in 0..2 {
        let made = post("/v1/admin/tenants").bearer(ADMIN).header("idempotency-key", "k");
        assert_eq!(stage.answer(made.json(&json!({ "id": "acme" }))).status, 201);
    }
    assert_eq!(fields(&rows(&stage, ""), "action"), ["tenant.created"]);
}

#[test]
fn exports_and_erasures_name_who_asked() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (id, key) = stage.key("acme", json!({ "scopes": ["chat", "read", "admin"] }));
    let (operator, caller) = (json!({ "type": "operator" }), json!({ "type": "caller", "key": id }));
    for (request, credential, action, object, actor) in [
        (get("/v1/admin/tenants/acme/export"), ADMIN, "tenant.exported", "acme", &operator),
        (get("/v1/admin/tenants/acme/export?user=ann"), ADMIN, "user.exported", "ann", &operator),
        (get("/v1/export"), &key, "tenant.exported", "acme", &caller),
        (get("/v1/export?user=ann"), &key, "user.exported", "ann", &caller),
        (delete("/v1/memory?user=ann"), &key, "user.erased", "ann", &caller),
    ] {
        stage.clock.advance(Duration::from_mins(1));
        let Handled::Response(response) = stage.send(request.bearer(credential)) else { panic!("forwarded") };
        assert!(response.status().is_success(), "{object}");
        let row = rows(&stage, "").into_iter().next().unwrap();
        assert_eq!((&row["action"], &row["object"], &row["actor"]), (&json!(action), &json!(object), actor));
    }
    let all = rows(&stage, "");
    stage.clock.advance(Duration::from_secs(1));
    assert!(stage.answer(delete("/v1/memory?user=ann").bearer(&key)).status < 300);
    assert_eq!(rows(&stage, ""), all, "repeated requests of a minute share a row");
    stage.clock.advance(Duration::from_mins(1));
    let (_, reader) = stage.key("acme", json!({ "scopes": ["read"] }));
    assert_eq!(stage.answer(get("/v1/export").bearer(&reader)).code(), (403, "missing_scope"));
    assert_eq!(rows(&stage, "")[1..], all, "a refused export has no row");
}

#[test]
fn rows_are_paged_and_filtered() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    stage.tenant("other", Value::Null);
    for _ in 0..4 {
        stage.clock.advance(Duration::from_mins(1));
        stage.key("acme", json!({}));
    }
    let all = rows(&stage, "");
    assert_eq!(fields(&all, "action")[3..], ["key.created", "tenant.created"]);
    let times = fields(&all, "at");
    assert!(times.is_sorted_by(|newer, older| newer > older), "{times:?}");

    let (mut pages, mut next) = (Vec::new(), String::new());
    loop {
        let answer = stage.answer(get(&format!("{TRAIL}?limit=2{next}")).bearer(ADMIN));
        pages.extend(answer.body["data"].as_array().unwrap().clone());
        let Some(cursor) = answer.body["next_cursor"].as_str() else { break };
        next = format!("&cursor={cursor}");
    }
    assert_eq!(pages, all);
    assert_eq!(rows(&stage, &format!("?from={}&to={}", times[2], times[0])), all[1..3]);
    assert_eq!(rows(&stage, "?action=tenant.created"), all[4..]);
    assert_eq!(rows(&stage, "?action=key.revoked"), Vec::<Value>::new());
    for (query, pointer) in [
        ("?from=yesterday", "?from"),
        ("?to=2026-11-20", "?to"),
        ("?action=key", "?action"),
        ("?limit=0", "?limit"),
        ("?cursor=x", "?cursor"),
    ] {
        let answer = stage.answer(get(&format!("{TRAIL}{query}")).bearer(ADMIN));
        assert_eq!((answer.status, &answer.body["errors"][0]["pointer"]), (422, &json!(pointer)), "{query}");
    }
}

#[test]
fn only_the_operator_reads_the_trail() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, key) = stage.key("acme", json!({ "scopes": ["chat", "read", "approve", "admin"] }));
    let refused = stage.answer(get(TRAIL).bearer(&key));
    assert_eq!(refused.code(), (403, "missing_scope"));
    assert_eq!(stage.answer(get(TRAIL)).code(), (401, "unauthenticated"));
}

#[test]
fn the_rows_of_a_deleted_tenant_stay_for_400_days() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    stage.clock.advance(Duration::from_mins(1));
    assert_eq!(stage.answer(delete("/v1/admin/tenants/acme").bearer(ADMIN)).status, 204);
    let sweep = || futures::executor::block_on(edge_harness::http::erasure::sweep(&stage.gateway)).unwrap();
    stage.clock.advance(Duration::from_hours(24 * 400));
    sweep();
    assert_eq!(fields(&rows(&stage, ""), "action"), ["tenant.deleted", "tenant.created"]);
    assert_eq!(fields(&rows(&stage, ""), "at")[1], NOW.to_rfc3339());
    stage.clock.advance(Duration::from_hours(24));
    sweep();
    assert_eq!(rows(&stage, ""), Vec::<Value>::new());
}
