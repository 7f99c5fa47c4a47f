//! Secrets of tenants.

use crate::stage::{ADMIN, Answer, DEV, Stage, config, delete, get, request};
use edge_harness::http::GatewayConfig;
use edge_harness::ports::{Directory, SecretStore, Secrets};
use edge_harness::types::{AuditQuery, TenantId};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;

const VALUE: &str = "the-value-of-the-token";

fn with_key() -> (Stage, String) {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, admin) = stage.key("acme", json!({"scopes": ["chat", "read", "approve", "admin"]}));
    (stage, admin)
}

fn put(stage: &Stage, key: &str, name: &str, value: &str) -> Answer {
    send(stage, key, name, &json!({ "value": value }))
}

fn send(stage: &Stage, key: &str, name: &str, body: &Value) -> Answer {
    stage.answer(request("PUT", &format!("/v1/secrets/{name}")).bearer(key).json(body))
}

fn value(stage: &Stage, tenant: &str, name: &str) -> Option<String> {
    block_on(stage.gateway.secrets.get(&TenantId::from(tenant), name)).unwrap()
}

#[test]
fn a_value_is_stored_encrypted_and_never_shown() {
    let (stage, admin) = with_key();
    let stored = put(&stage, &admin, "CRM_TOKEN", VALUE);
    assert_eq!((stored.status, &stored.body), (201, &json!({"name": "CRM_TOKEN"})));
    stage.clock.advance(Duration::from_secs(5));
    assert_eq!(put(&stage, &admin, "CRM_TOKEN", VALUE).status, 204);
    assert_eq!(put(&stage, &admin, "a", "1").status, 201);
    let list = stage.answer(get("/v1/secrets").bearer(&admin));
    assert_eq!(list.status, 200);
    let data = list.body["data"].as_array().unwrap();
    assert_eq!((data.len(), &list.body["next_cursor"]), (2, &Value::Null));
    assert_eq!(data[0]["name"], "CRM_TOKEN");
    assert_eq!(data[0].as_object().unwrap().len(), 3, "{}", data[0]);
    assert_ne!(data[0]["created_at"], data[0]["updated_at"]);
    let tenant = TenantId::from("acme");
    let encrypted = block_on(stage.secrets.encrypted(&tenant, "CRM_TOKEN")).unwrap().unwrap();
    assert!(!encrypted.contains(VALUE) && !list.body.to_string().contains(VALUE));
    assert_eq!(value(&stage, "acme", "CRM_TOKEN").as_deref(), Some(VALUE));
    let rows = block_on(stage.directory.audit(&tenant, &AuditQuery { limit: 50, ..AuditQuery::default() }));
    let rows: Vec<_> =
        rows.unwrap().into_iter().filter(|row| row.action.to_string() == "secret.stored").collect();
    assert_eq!((rows.len(), &*rows[2].object, rows[2].details.len()), (3, "CRM_TOKEN", 0));
    assert!(!stage.logged(VALUE));
}

#[test]
fn names_and_values_have_limits() {
    let (stage, admin) = with_key();
    let long = "n".repeat(65);
    for name in [long.as_str(), "a-b", "a.b", "%C3%A9", "a%2Fb"] {
        let refused = put(&stage, &admin, name, "x");
        assert_eq!((refused.status, &refused.body["errors"][0]["pointer"]), (422, &json!("/name")), "{name}");
    }
    for body in [
        json!({}),
        json!({"value": ""}),
        json!({"value": "x".repeat(16_385)}),
        json!({"value": 918_273_645}),
        json!({"value": ["hidden-text"]}),
    ] {
        let refused = send(&stage, &admin, "A", &body);
        assert_eq!((refused.status, &refused.body["errors"][0]["pointer"]), (422, &json!("/value")));
        let text = refused.body.to_string();
        assert!(!text.contains("918273645") && !text.contains("hidden-text"), "{text}");
    }
    for count in 0..100 {
        assert_eq!(put(&stage, &admin, &format!("S_{count}"), &"x".repeat(16_384)).status, 201);
    }
    let refused = put(&stage, &admin, "ONE_MORE", "x");
    assert_eq!((refused.status, &refused.body["code"]), (429, &json!("quota_exceeded")));
    assert_eq!(put(&stage, &admin, "S_7", "y").status, 204);
}

#[test]
fn only_administrators_reach_the_secrets_of_their_tenant() {
    let (stage, admin) = with_key();
    assert_eq!(put(&stage, &admin, "A", "ours").status, 201);
    let (_, user) = stage.key("acme", json!({"scopes": ["chat", "read", "approve"]}));
    assert_eq!(put(&stage, &user, "A", "x").status, 403);
    assert_eq!(stage.answer(get("/v1/secrets").bearer(&user)).status, 403);
    assert_eq!(stage.answer(delete("/v1/secrets/A").bearer(&user)).status, 403);
    stage.tenant("globex", Value::Null);
    let (_, other) = stage.key("globex", json!({"scopes": ["admin"]}));
    assert_eq!(stage.answer(get("/v1/secrets").bearer(&other)).body["data"], json!([]));
    assert_eq!(stage.answer(delete("/v1/secrets/A").bearer(&other)).status, 404);
    assert_eq!(value(&stage, "globex", "A"), None);
    // A row that was moved to another tenant cannot be decrypted.
    let audit = stage.audit_row("globex");
    let encrypted = block_on(stage.secrets.encrypted(&"acme".into(), "A")).unwrap().unwrap();
    block_on(stage.secrets.put("A", &encrypted, edge_harness::types::Timestamp(1), &audit)).unwrap();
    assert_eq!(value(&stage, "globex", "A"), None);
    assert!(stage.logged("secret.not_decrypted") && !stage.logged("ours"));
}

#[test]
fn a_change_counts_at_once_in_its_isolate_and_elsewhere_within_a_minute() {
    let (stage, admin) = with_key();
    put(&stage, &admin, "A", "one");
    let calls = || stage.secrets.calls.get();
    assert_eq!(value(&stage, "acme", "A").as_deref(), Some("one"));
    let before = calls();
    assert_eq!(value(&stage, "acme", "A").as_deref(), Some("one"));
    assert_eq!(calls(), before, "the value is kept");
    put(&stage, &admin, "A", "two");
    assert_eq!(value(&stage, "acme", "A").as_deref(), Some("two"));
    // Deleted by another isolate.
    block_on(stage.secrets.delete("A", &stage.audit_row("acme"))).unwrap();
    assert_eq!(value(&stage, "acme", "A").as_deref(), Some("two"));
    stage.clock.advance(Duration::from_secs(60));
    assert_eq!(value(&stage, "acme", "A"), None);
    put(&stage, &admin, "A", "three");
    assert_eq!(value(&stage, "acme", "A").as_deref(), Some("three"));
    assert_eq!(stage.answer(delete("/v1/secrets/A").bearer(&admin)).status, 204);
    assert_eq!(value(&stage, "acme", "A"), None);
    assert_eq!(stage.answer(delete("/v1/secrets/A").bearer(&admin)).status, 404);
}

#[test]
fn a_deployment_without_the_operators_key_stores_no_secrets() {
    let stage = Stage::with(GatewayConfig { admin_key: None, ..config() });
    let refused = put(&stage, DEV, "A", VALUE);
    assert_eq!((refused.status, &refused.body["code"]), (501, &json!("not_configured")));
    let text = refused.body.to_string();
    assert!(text.contains("wrangler secret put ADMIN_KEY") && !text.contains(VALUE), "{text}");
    assert_eq!(stage.answer(get("/v1/secrets").bearer(DEV)).body["data"], json!([]));
}

#[test]
fn the_erasure_of_a_tenant_erases_its_secrets() {
    let (stage, admin) = with_key();
    put(&stage, &admin, "A", VALUE);
    assert!(value(&stage, "acme", "A").is_some());
    assert_eq!(stage.answer(delete("/v1/admin/tenants/acme").bearer(ADMIN)).status, 204);
    for _ in 1..30 {
        stage.clock.advance(Duration::from_secs(60));
        block_on(edge_harness::http::erasure::sweep(&stage.gateway)).unwrap();
    }
    assert_eq!(block_on(stage.secrets.list(&"acme".into())).unwrap(), []);
    assert_eq!(value(&stage, "acme", "A"), None);
}
