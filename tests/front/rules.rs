//! Tenants' rules: set by the operator, and sent to sessions with each request.

use crate::signer::Signer;
use crate::stage::{ADMIN, DEV, NOW, Stage, get, post, request};
use edge_harness::http::Forward;
use edge_harness::types::{Policy, Rules};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const PATH: &str = "/v1/admin/tenants/acme";

fn rules() -> Value {
    json!({"default": "ask", "categories": {"execute": "deny"}, "tools": {"echo": "allow"},
        "patterns": [{"tool": "web_fetch", "pattern": "*.example.com", "policy": "deny"}]})
}

fn patch(stage: &Stage, body: Value) -> Value {
    let answer = stage.answer(request("PATCH", PATH).bearer(ADMIN).json(&body));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

fn denies(tool: &str) -> Rules {
    Rules { tools: [(tool.to_owned(), Policy::Deny)].into(), ..Rules::default() }
}

/// The rules that reach the session when this credential posts a message.
fn posted(stage: &Stage, credential: &str) -> Box<Forward> {
    stage.forward(post("/v1/sessions/s1/messages").bearer(credential).json(&json!({"content": "hi"})))
}

#[test]
fn the_operator_sets_shows_and_removes_them() {
    let stage = Stage::new();
    let made = json!({"id": "acme", "permissions": rules()});
    let made = stage.answer(post("/v1/admin/tenants").bearer(ADMIN).json(&made));
    assert_eq!((made.status, &made.body["permissions"]), (201, &rules()));
    assert_eq!(stage.answer(get(PATH).bearer(ADMIN)).body["permissions"], rules());
    assert_eq!(patch(&stage, json!({"name": "new"}))["permissions"], rules(), "absent members are kept");
    assert_eq!(patch(&stage, json!({"permissions": null})).get("permissions"), None);
    let large: Vec<_> =
        (0..100).map(|n| json!({"pattern": format!("{n}{}", "x".repeat(400)), "policy": "ask"})).collect();
    for (bad, pointer) in [
        (json!([]), "/permissions"),
        (json!({"default": "never"}), "/permissions/default"),
        (json!({"patterns": [{"pattern": "{a", "policy": "ask"}]}), "/permissions/patterns/0/pattern"),
        (json!({"patterns": large}), "/permissions"),
    ] {
        for ask in [request("PATCH", PATH), post("/v1/admin/tenants")] {
            let answer = stage.answer(ask.bearer(ADMIN).json(&json!({"permissions": bad})));
            assert_eq!((answer.status, &answer.body["errors"][0]["pointer"]), (422, &json!(pointer)));
        }
    }
}

#[test]
fn each_update_raises_the_version_that_is_sent_with_the_rules() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, key) = stage.key("acme", json!({}));
    let version = || posted(&stage, &key).principal.policy.version;
    let created = version();
    assert_eq!(created, NOW.0, "higher than that of an earlier tenant with the same id");
    patch(&stage, json!({"permissions": rules()}));
    let changed = version();
    patch(&stage, json!({"permissions": null}));
    assert!(created < changed && changed < version());
}

#[test]
fn rules_and_the_key_id_are_sent_with_each_key() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (id, key) = stage.key("acme", json!({}));
    assert_eq!(posted(&stage, &key).principal.policy.rules, Rules::default());
    patch(&stage, json!({"permissions": {"tools": {"echo": "deny"}}}));
    let principal = posted(&stage, &key).principal;
    assert_eq!((principal.policy.rules, principal.key), (denies("echo"), Some(id.into())));
    let reads = stage.directory.key_reads.get();
    stage.directory.down.set(true);
    assert_eq!(posted(&stage, &key).principal.policy.rules, denies("echo"), "cached with the key");
    assert_eq!(stage.directory.key_reads.get(), reads);
    let dev = posted(&stage, DEV).principal;
    assert_eq!((dev.policy.rules, dev.key), (Rules::default(), Some("dev".into())));
}

#[test]
fn rules_are_sent_with_tokens() {
    let stage = Stage::new();
    let jwk = Signer::Secret.jwk("k");
    let jwt = json!({"issuer": "https://id.example", "any_audience": true, "jwks": {"keys": [jwk]}});
    stage.tenant("acme", jwt);
    patch(&stage, json!({"permissions": {"tools": {"echo": "deny"}}}));
    let claims = json!({"iss": "https://id.example", "sub": "ada", "exp": NOW.0 / 1_000 + 3_600});
    let principal = posted(&stage, &Signer::Secret.token("k", &claims)).principal;
    assert_eq!((principal.policy.rules, principal.key), (denies("echo"), None));
}

#[test]
fn rules_are_merged_key_by_key() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    patch(&stage, json!({"permissions": {"tools": {"echo": "deny", "save": "ask"}}}));
    patch(&stage, json!({"permissions": {"tools": {"save": null, "find": "deny"}}}));
    let tenant = || stage.answer(get("/v1/admin/tenants/acme").bearer(ADMIN)).body;
    assert_eq!(tenant()["permissions"]["tools"], json!({"echo": "deny", "find": "deny"}));
    let path = "/v1/admin/tenants/acme";
    let body = json!({"permissions": {"tools": {"echo": "maybe"}}});
    let refused = stage.answer(request("PATCH", path).bearer(ADMIN).json(&body));
    assert_eq!(
        (refused.status, &refused.body["errors"][0]["pointer"]),
        (422, &json!("/permissions/tools/echo"))
    );
    patch(&stage, json!({"permissions": null}));
    assert_eq!(tenant()["permissions"], Value::Null);
}

#[test]
fn a_tickets_rules_are_current_and_not_in_the_url() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    patch(&stage, json!({"permissions": rules()}));
    let (id, key) = stage.key("acme", json!({}));
    let ticket =
        stage.answer(post("/v1/tickets").bearer(&key).json(&json!({"session": "s1"}))).text("ticket");
    assert!(ticket.len() < 400, "a URL has no room for rules: {}", ticket.len());
    patch(&stage, json!({"permissions": null}));
    patch(&stage, json!({"permissions": {"tools": {"echo": "deny"}}}));
    let opened = || stage.forward(get(&format!("/v1/sessions/s1/ws?ticket={ticket}"))).principal;
    assert_eq!((opened().policy.rules, opened().key), (denies("echo"), Some(id.into())));
    patch(&stage, json!({"permissions": {"tools": {"save": "deny"}}}));
    assert_eq!(opened().policy.rules.tools.len(), 2, "the change invalidates the cache");
    stage.directory.down.set(true);
    assert_eq!(opened().policy.rules.tools.len(), 2, "remembered");
}
