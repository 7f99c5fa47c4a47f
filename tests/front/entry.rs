//! Access: routes, keys, readiness and cross-origin requests.

use crate::stage::{ADMIN, DEV, NOW, Request, Stage, config, delete, get, ids, post, request};
use edge_harness::http::{GatewayConfig, MalformedSetting, RequestExt};
use edge_harness::ports::{
    Directory,
    directory::{SessionEntry, SessionKinds},
};
use edge_harness::types::{Scope, session::SCHEMA};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn health_needs_no_key_and_every_response_has_a_request_id() {
    let stage = Stage::new();
    let answer = stage.answer(get("/healthz"));
    assert_eq!((answer.status, &answer.body["status"]), (200, &json!("ok")));
    assert!(answer.header("x-request-id").unwrap().starts_with("req_"));
    let named = stage.answer(get("/nowhere").header("x-request-id", "my-id_1"));
    assert_eq!(named.code(), (404, "not_found"));
    assert_eq!((named.header("x-request-id"), named.text("request_id")), (Some("my-id_1"), "my-id_1".into()));
    let replaced = stage.answer(get("/healthz").header("x-request-id", "evil\"id"));
    assert!(replaced.header("x-request-id").unwrap().starts_with("req_"));
}

#[test]
fn a_malformed_operators_key_is_reported_and_opens_nothing() {
    let stage = Stage::new();
    let ready = stage.answer(get("/readyz")).body;
    assert_eq!(ready, json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION"), "schema": SCHEMA }));
    let malformed = vec![MalformedSetting { name: "ADMIN_KEY", expects: "32 bytes: `openssl rand -hex 32`" }];
    let stage = Stage::with(GatewayConfig { admin_key: None, malformed, ..config() });
    assert_eq!(stage.answer(get("/healthz")).status, 200);
    let ticket = post("/v1/tickets").bearer(DEV).json(&json!({ "session": "s1" }));
    let once = post("/v1/memory").bearer(DEV).header("idempotency-key", "k").json(&json!({ "facts": [] }));
    for request in [get("/readyz"), get("/v1/admin/tenants").bearer(ADMIN), ticket, once] {
        let answer = stage.answer(request);
        assert_eq!(answer.code(), (501, "not_configured"));
        let detail = answer.text("detail");
        assert!(detail.contains("ADMIN_KEY") && detail.contains("openssl rand -hex 32"), "{detail}");
    }
    assert_eq!(stage.answer(get("/v1/sessions").bearer(DEV)).status, 200, "needs no operator's key");
}

#[test]
fn a_deployment_without_its_databases_or_its_object_store_is_not_ready() {
    let stage = Stage::new();
    let ready = || stage.answer(get("/readyz")).status;
    stage.directory.down.set(true);
    assert_eq!(ready(), 503);
    stage.directory.down.set(false);
    assert_eq!(ready(), 503, "the result is remembered");
    stage.clock.advance(Duration::from_secs(10));
    assert_eq!(ready(), 200);
    stage.blobs.down.set(true);
    stage.clock.advance(Duration::from_secs(10));
    assert_eq!(ready(), 503);
}

#[test]
fn the_list_shows_what_sessions_do() {
    let stage = Stage::new();
    stage.session("dev", "idle", "u", 2);
    stage.session("dev", "busy", "u", 1);
    let mut entry =
        block_on(stage.directory.sessions(SessionKinds::Conversations, &"dev".into(), None, None, None, 1))
            .unwrap();
    let entry = SessionEntry { running: true, ..entry.remove(0) };
    block_on(stage.directory.put_session(&entry)).unwrap();
    let listed = stage.answer(get("/v1/sessions").bearer(DEV)).body;
    let statuses = [0, 1].map(|index| listed["data"][index]["status"].clone());
    assert_eq!(statuses, ["running", "idle"]);
}

#[test]
fn unknown_routes_and_methods_are_distinguished() {
    let stage = Stage::new();
    assert_eq!(stage.answer(get("/v1/nothing").bearer(DEV)).code(), (404, "not_found"));
    let answer = stage.answer(request("PUT", "/v1/sessions").bearer(DEV));
    assert_eq!((answer.code(), answer.header("allow")), ((405, "method_not_allowed"), Some("GET, POST")));
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(stage.answer(get("/v1/sessions/a%2Fb").bearer(DEV)).code(), (404, "not_found"));
}

#[test]
fn without_a_valid_key_there_is_401() {
    let stage = Stage::new();
    let made_up = format!("eh_{}", "A".repeat(43));
    let without_checksum = format!("{made_up}AAAA");
    for credential in ["", "x", "eh_short", "a.b.c", &made_up, &without_checksum] {
        let answer = stage.answer(get("/v1/sessions").bearer(credential));
        assert_eq!(answer.code(), (401, "unauthenticated"), "{credential}");
        assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer"));
    }
    assert_eq!(stage.answer(get("/v1/sessions")).status, 401);
    assert_eq!(stage.answer(get("/v1/sessions").header("authorization", "Basic eDp5")).status, 401);
    assert_eq!(
        stage.answer(get("/v1/sessions").header("authorization", &format!("bearer {DEV}"))).status,
        200
    );
    assert_eq!(stage.directory.key_reads.get(), 0, "a key without a correct checksum is not looked up");
    let elsewhere = Stage::new();
    elsewhere.tenant("acme", Value::Null);
    let (_, foreign) = elsewhere.key("acme", json!({}));
    assert_eq!([(); 3].map(|()| stage.status_of(&foreign)), [401; 3]);
    assert_eq!(stage.directory.key_reads.get(), 1, "an unknown key is cached");
}

#[test]
fn the_development_key_opens_this_machine_only() {
    let stage = Stage::new();
    let ask =
        |stage: &Stage, host: &str| stage.answer(get("/v1/sessions").bearer(DEV).header("host", host)).status;
    for host in ["localhost:8787", "127.0.0.1:8787", "127.0.0.2", "[::1]:8787"] {
        assert_eq!(ask(&stage, host), 200, "{host}");
    }
    for host in ["agents.example.com", "localhost.example.com", "10.0.0.1:8787", ""] {
        assert_eq!(ask(&stage, host), 401, "{host}");
    }
    let everywhere = Stage::with(GatewayConfig { dev: true, ..config() });
    assert_eq!(ask(&everywhere, "agents.example.com"), 200);
}

#[test]
fn a_key_may_have_the_scope_approve() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, key) = stage.key("acme", json!({ "scopes": ["admin", "approve", "read"] }));
    let scopes = |ask: Request| stage.forward(ask).principal.scopes.0;
    let path = "/v1/sessions/s1/events";
    assert_eq!(scopes(get(path).bearer(&key)), [Scope::Read, Scope::Approve, Scope::Admin]);
    assert!(scopes(get(path).bearer(DEV)).contains(&Scope::Approve), "every scope");
    let ask = json!({ "session": "s1", "scopes": ["read", "approve"] });
    let ticket = stage.answer(post("/v1/tickets").bearer(&key).json(&ask)).text("ticket");
    assert_eq!(scopes(get(&format!("{path}?ticket={ticket}"))), [Scope::Read, Scope::Approve]);
}

#[test]
fn administration_requires_the_operators_key() {
    let stage = Stage::new();
    assert_eq!(stage.answer(get("/v1/admin/tenants").bearer(ADMIN)).status, 200);
    assert_eq!(stage.answer(get("/v1/admin/tenants")).status, 401);
    assert_eq!(stage.answer(get("/v1/admin/tenants").bearer("wrong")).status, 401);
    assert_eq!(stage.answer(get("/v1/admin/tenants").bearer(DEV)).code(), (403, "missing_scope"));
    for target in ["/v1/sessions", "/v1/sessions/s1", "/v1/sessions/s1/events"] {
        let refused = stage.answer(get(target).bearer(ADMIN));
        assert_eq!(refused.code(), (403, "missing_scope"), "{target}");
        assert!(refused.text("detail").contains("the operator's key opens only the routes below /v1/admin"));
        let wrong = stage.answer(get(target).bearer(&format!("{ADMIN}x")));
        assert_eq!(wrong.code(), (401, "unauthenticated"), "{target}");
        assert!(!wrong.text("detail").contains("operator"));
    }
    let closed = Stage::with(GatewayConfig { admin_key: None, ..GatewayConfig::default() });
    for credential in ["", ADMIN, DEV] {
        assert_eq!(closed.answer(get("/v1/admin/tenants").bearer(credential)).status, 401);
    }
}

#[test]
fn scopes_allow_their_routes_only() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, reader) = stage.key("acme", json!({ "scopes": ["read"] }));
    let (_, talker) = stage.key("acme", json!({ "scopes": ["chat"] }));
    assert_eq!(stage.status_of(&reader), 200);
    assert_eq!(stage.answer(get("/v1/sessions").bearer(&talker)).code(), (403, "missing_scope"));
    let path = "/v1/sessions/s1/messages";
    assert_eq!(stage.answer(post(path).bearer(&reader)).code(), (403, "missing_scope"));
    let forward =
        stage.forward(post(path).bearer(&talker).header("x-request-id", "r1").header("content-length", "9"));
    assert_eq!((forward.tenant.as_str(), forward.session.as_str()), ("acme", "s1"));
    assert_eq!((forward.request.uri().path(), forward.body_read), (path, false));
    assert_eq!(forward.principal.scopes.0, [Scope::Chat]);
    assert_eq!(forward.request.header("authorization"), None, "credentials are not forwarded");
    assert!(forward.response_headers["x-request-id"] == "r1");
}

#[test]
fn a_revoked_or_expired_key_stops_working() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (old_id, old) = stage.key("acme", json!({}));
    assert_eq!(stage.status_of(&old), 200);
    assert_eq!(stage.status_of(&old), 200);
    assert_eq!(stage.directory.key_reads.get(), 1, "the second call is served from the cache");

    let (_, new) = stage.key("acme", json!({}));
    let path = format!("/v1/admin/tenants/acme/keys/{old_id}");
    assert_eq!(stage.answer(delete(&path).bearer(ADMIN)).status, 204);
    assert_eq!(stage.answer(delete(&path).bearer(ADMIN)).status, 404);
    assert_eq!((stage.status_of(&old), stage.status_of(&new)), (401, 200));

    let end = edge_harness::types::Timestamp(NOW.0 + 30_000);
    let (_, short) = stage.key("acme", json!({ "expires_at": end }));
    assert_eq!(stage.status_of(&short), 200);
    stage.clock.advance(Duration::from_secs(30));
    assert_eq!(stage.status_of(&short), 401);
}

#[test]
fn a_key_revoked_in_another_isolate_works_for_at_most_a_minute() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (id, key) = stage.key("acme", json!({}));
    assert_eq!(stage.status_of(&key), 200);
    stage.revoke_elsewhere("acme", &id);
    assert_eq!(stage.status_of(&key), 200);
    stage.clock.advance(Duration::from_mins(1));
    assert_eq!(stage.status_of(&key), 401);
}

#[test]
fn if_the_directory_is_down_only_cached_keys_open_sessions() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, warm) = stage.key("acme", json!({}));
    let (_, cold) = stage.key("acme", json!({}));
    assert_eq!(stage.status_of(&warm), 200);
    stage.directory.down.set(true);
    let answer = stage.answer(get("/v1/sessions/s1").bearer(&cold));
    assert_eq!(answer.code(), (503, "unavailable"));
    assert!(answer.header("retry-after").is_some());
    assert!(!answer.body.to_string().contains("switched off"), "the cause is only logged");
    assert!(stage.logged("switched off"));
    assert_eq!(stage.forward(get("/v1/sessions/s1").bearer(&warm)).session, "s1");
    stage.directory.down.set(false);
    assert_eq!(stage.status_of(&cold), 200, "nothing was lost");
}

#[test]
fn the_gateway_assigns_a_new_sessions_id() {
    let stage = Stage::new();
    let chosen = stage.forward(post("/v1/sessions").bearer(DEV).json(&json!({ "id": "mine", "user": "u" })));
    assert_eq!((chosen.session.as_str(), chosen.body_read), ("mine", true));
    assert_eq!(chosen.request.body().bytes(), json!({ "id": "mine", "user": "u" }).to_string());
    let [a, b] = [(); 2].map(|()| stage.forward(post("/v1/sessions").bearer(DEV)).session);
    assert!(a.starts_with("ses_") && a != b);

    let keyed = |key: &str| post("/v1/sessions").bearer(DEV).header("idempotency-key", key);
    let [a, b, c] = ["one", "one", "two"].map(|key| stage.forward(keyed(key)).session);
    assert!(a == b && a != c, "the same key leads to the same object");
    assert_eq!(stage.answer(keyed("not visible")).code(), (400, "invalid_request"));

    let bad = stage.answer(post("/v1/sessions").bearer(DEV).json(&json!({ "id": "a/b" })));
    assert_eq!((bad.code(), &bad.body["errors"][0]["pointer"]), ((422, "validation_failed"), &json!("/id")));
    let wrong = stage.answer(post("/v1/sessions").bearer(DEV).json(&json!({ "id": 7 })));
    assert_eq!((wrong.status, &wrong.body["errors"][0]["pointer"]), (422, &json!("/id")));
}

#[test]
fn lists_contain_the_tenants_own_sessions_newest_first() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    stage.tenant("other", Value::Null);
    let (_, key) = stage.key("acme", json!({}));
    let (_, stranger) = stage.key("other", json!({}));
    for (id, user, age) in
        [("a", "ada", 50), ("b", "bob", 40), ("c", "ada", 40), ("d", "ada", 10), ("e", "bob", 99)]
    {
        stage.session("acme", id, user, age);
    }
    let list = |target: &str| stage.answer(get(target).bearer(&key));
    let all = list("/v1/sessions");
    assert_eq!((ids(&all), &all.body["next_cursor"]), (vec!["d", "c", "b", "a", "e"], &Value::Null));
    assert_eq!(all.body["data"][0].get("tenant"), None);

    let first = list("/v1/sessions?limit=2");
    assert_eq!(ids(&first), ["d", "c"]);
    // Sessions created in between do not shift the pages.
    stage.session("acme", "f", "ada", 0);
    let second = list(&format!("/v1/sessions?limit=2&cursor={}", first.text("next_cursor")));
    assert_eq!(ids(&second), ["b", "a"]);
    let last = list(&format!("/v1/sessions?limit=2&cursor={}", second.text("next_cursor")));
    assert_eq!((ids(&last), &last.body["next_cursor"]), (vec!["e"], &Value::Null));

    assert_eq!(ids(&list("/v1/sessions?user=bob")), ["b", "e"]);
    assert_eq!(ids(&list("/v1/sessions?agent=other")), [""; 0]);
    for bad in ["limit=0", "limit=201", "limit=x", "cursor=!", "cursor=e30"] {
        assert_eq!(list(&format!("/v1/sessions?{bad}")).code(), (422, "validation_failed"), "{bad}");
    }
    assert_eq!(ids(&stage.answer(get("/v1/sessions").bearer(&stranger))), [""; 0]);
}

#[test]
fn configured_origins_are_allowed() {
    let stage = Stage::new();
    let ask = |origin| {
        stage.answer(
            request("OPTIONS", "/v1/sessions")
                .header("origin", origin)
                .header("access-control-request-method", "POST"),
        )
    };
    let yes = ask("https://app.example");
    assert_eq!((yes.status, yes.header("access-control-allow-origin")), (204, Some("https://app.example")));
    assert!(yes.header("access-control-allow-headers").unwrap().contains("idempotency-key"));
    let no = ask("https://evil.example");
    assert_eq!((no.code(), no.header("access-control-allow-origin")), ((403, "forbidden_origin"), None));

    // Problems need the headers too, or the page could not read them.
    let own = stage.answer(get("/v1/sessions").header("origin", "https://app.example"));
    assert_eq!((own.status, own.header("access-control-allow-origin")), (401, Some("https://app.example")));
    assert_eq!(own.header("vary"), Some("origin"));
    let forward = stage.forward(get("/v1/sessions/a").bearer(DEV).header("origin", "https://app.example"));
    assert_eq!(forward.response_headers["access-control-allow-origin"], "https://app.example");
    let other = stage.answer(get("/v1/sessions").bearer(DEV).header("origin", "https://evil.example"));
    assert_eq!((other.status, other.header("access-control-allow-origin")), (200, None));
}
