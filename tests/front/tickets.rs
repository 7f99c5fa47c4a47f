//! Tickets: who may create them, and what they open.

use crate::stage::{ADMIN, Answer, DEV, NOW, Stage, config, delete, get, post};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use edge_harness::http::GatewayConfig;
use edge_harness::http::crypto::{derive, hmac};
use edge_harness::types::{Scope, Timestamp};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;

/// A ticket of the development key for the session `s1`.
fn ticket(stage: &Stage) -> String {
    stage.answer(post("/v1/tickets").bearer(DEV).json(&json!({ "session": "s1" }))).text("ticket")
}

/// The session's events, opened with a ticket.
fn events(ticket: &str) -> crate::stage::Request {
    get(&format!("/v1/sessions/s1/events?ticket={ticket}"))
}

#[test]
fn a_ticket_grants_access_to_its_session_for_five_minutes() {
    let stage = Stage::new();
    let ask = post("/v1/tickets").bearer(DEV).json(&json!({ "session": "s1", "user": "ada" }));
    let answer = stage.answer(ask);
    assert_eq!((answer.status, answer.text("expires_at").as_str()), (201, "2026-11-20T12:05:00.000Z"));
    let ticket = answer.text("ticket");

    let forward = stage.forward(get(&format!("/v1/sessions/s1/events?after=3&ticket={ticket}&until=idle")));
    assert_eq!(forward.principal.user.as_deref(), Some("ada"));
    assert_eq!(forward.principal.scopes.0, [Scope::Read]);
    assert_eq!(forward.request.uri().query(), Some("after=3&until=idle"), "the ticket is not forwarded");
    assert!(forward.had_ticket && !stage.forward(get("/v1/sessions/s1/ws?after=3").bearer(DEV)).had_ticket);
    let spelled = stage.forward(get(&format!("/v1/sessions/s1/ws?%74icket={ticket}")));
    assert_eq!((spelled.tenant.as_str(), spelled.request.uri().query()), ("dev", None));

    for target in ["/v1/sessions/s2/events", "/v1/sessions/s1", "/v1/sessions/s1/messages", "/v1/sessions"] {
        assert_eq!(stage.answer(get(&format!("{target}?ticket={ticket}"))).status, 401, "{target}");
    }
    assert_eq!(stage.answer(get(&format!("/v1/sessions/s1/events?ticket=x{ticket}"))).status, 401);
    assert_eq!(stage.status_of(&ticket), 401, "a ticket is not a key");
    stage.clock.advance(Duration::from_mins(5));
    assert_eq!(stage.answer(get(&format!("/v1/sessions/s1/events?ticket={ticket}"))).status, 401);
}

#[test]
fn a_ticket_does_not_have_the_address_of_its_creator() {
    let stage = Stage::new();
    let ask = post("/v1/tickets").bearer(DEV).header("cf-connecting-ip", "192.0.2.7");
    let ticket = stage.answer(ask.json(&json!({ "session": "s1" }))).text("ticket");
    let content = B64.decode(ticket.split('.').next().unwrap()).unwrap();
    assert!(!String::from_utf8(content).unwrap().contains("192.0.2.7"), "its holder can read it");
    let forward = stage.forward(events(&ticket).header("cf-connecting-ip", "192.0.2.8"));
    assert_eq!(forward.principal.address, "192.0.2.8".parse().ok());
    assert_eq!(stage.forward(get("/v1/sessions/s1").bearer(DEV)).principal.address, None, "not a cached one");
}

#[test]
fn a_repeated_request_creates_another_ticket() {
    let stage = Stage::new();
    let create = || {
        let ask = post("/v1/tickets").bearer(DEV).header("idempotency-key", "k");
        let answer = stage.answer(ask.json(&json!({ "session": "s1" })));
        (answer.status, answer.text("ticket"))
    };
    let (_, first) = create();
    stage.clock.advance(Duration::from_mins(5));
    assert_eq!(stage.answer(events(&first)).status, 401);
    let (status, second) = create();
    assert_eq!(status, 201);
    assert_eq!(stage.forward(events(&second)).tenant, "dev");
}

#[test]
fn tickets_require_a_signing_key() {
    let stage = Stage::with(GatewayConfig { admin_key: None, ..config() });
    let answer = stage.answer(post("/v1/tickets").bearer(DEV).json(&json!({ "session": "s1" })));
    assert_eq!(answer.code(), (501, "not_configured"));
    assert_eq!(stage.answer(get("/v1/sessions/s1/events?ticket=a.b")).status, 401);
}

#[test]
fn no_key_that_signs_tickets_can_be_guessed_from_one() {
    let stage = Stage::new();
    let ticket = ticket(&stage);
    let (text, tag) = ticket.split_once('.').unwrap();
    let derived = derive(ADMIN, "ticket");
    for guess in [ADMIN.as_bytes(), &derived] {
        assert_ne!(B64.encode(hmac(guess, &B64.decode(text).unwrap())), tag);
    }
}

#[test]
fn all_isolates_sign_tickets_with_the_same_key() {
    let one = Stage::new();
    let other = |admin_key: &str| {
        let mut stage = Stage::with(GatewayConfig { admin_key: Some(admin_key.into()), ..config() });
        stage.gateway.directory = one.directory.clone();
        // Both stages have the same seed.
        stage.gateway.entropy.fill(&mut [0]);
        stage
    };
    let (two, changed) = (other(ADMIN), other("another-operators-key-with-32-bytes"));
    let [first, second] = [&one, &two].map(ticket);
    assert_eq!(one.forward(events(&second)).session, "s1");
    assert_eq!(two.forward(events(&first)).session, "s1");
    // The new operator's key cannot decrypt the old key of tickets.
    assert_eq!(changed.answer(events(&first)).status, 401);
    assert_eq!(changed.forward(events(&ticket(&changed))).session, "s1");
    one.directory.down.set(true);
    assert_eq!(one.forward(events(&first)).session, "s1", "the key is cached");
}

#[test]
fn a_ticket_has_the_scopes_that_its_creator_chooses_among_its_own() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, key) = stage.key("acme", json!({ "scopes": ["chat", "read", "admin"] }));
    let (_, reader) = stage.key("acme", json!({ "scopes": ["read"] }));
    let ask = |key: &str, scopes: Value| -> Answer {
        stage.answer(post("/v1/tickets").bearer(key).json(&json!({ "session": "s1", "scopes": scopes })))
    };
    for (scopes, expected) in [
        (json!(null), vec![Scope::Read]),
        (json!(["read"]), vec![Scope::Read]),
        (json!(["read", "chat", "read"]), vec![Scope::Chat, Scope::Read]),
    ] {
        let forward = stage.forward(events(&ask(&key, scopes).text("ticket")));
        assert_eq!(forward.principal.scopes.0, expected);
    }
    for (key, scopes, pointer) in [
        (&key, json!([]), "/scopes"),
        (&key, json!("read"), "/scopes"),
        (&key, json!(["read", "root"]), "/scopes/1"),
        (&key, json!(["read", "admin"]), "/scopes/1"),
        (&reader, json!(["chat"]), "/scopes/0"),
    ] {
        let refused = ask(key, scopes.clone());
        assert_eq!(
            (refused.status, &refused.body["errors"][0]["pointer"]),
            (422, &json!(pointer)),
            "{scopes}"
        );
    }
    let chat_only = ask(&key, json!(["chat"])).text("ticket");
    assert_eq!(stage.answer(events(&chat_only)).code(), (403, "missing_scope"));
}

#[test]
fn a_ticket_ends_with_the_key_that_created_it() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let create = |body: Value| {
        let (id, key) = stage.key("acme", body);
        let made = stage.answer(post("/v1/tickets").bearer(&key).json(&json!({ "session": "s1" })));
        (id, made.text("ticket"))
    };
    let (here, elsewhere) = (create(json!({})), create(json!({})));
    let (_, short) = create(json!({ "expires_at": Timestamp(NOW.0 + 30_000) }));
    for ticket in [&here.1, &elsewhere.1, &short] {
        assert_eq!(stage.forward(events(ticket)).tenant, "acme");
    }
    let path = format!("/v1/admin/tenants/acme/keys/{}", here.0);
    assert_eq!(stage.answer(delete(&path).bearer(ADMIN)).status, 204);
    assert_eq!(stage.answer(events(&here.1)).status, 401, "at once in this isolate");

    stage.forward(events(&elsewhere.1));
    stage.revoke_elsewhere("acme", &elsewhere.0);
    stage.clock.advance(Duration::from_secs(30));
    assert_eq!(stage.forward(events(&elsewhere.1)).tenant, "acme", "cached");
    assert_eq!(stage.answer(events(&short)).status, 401, "the key has expired");
    stage.clock.advance(Duration::from_secs(30));
    let reads = stage.directory.key_reads.get();
    assert_eq!([(); 3].map(|()| stage.answer(events(&elsewhere.1)).status), [401; 3]);
    assert_eq!(stage.directory.key_reads.get(), reads + 1, "the deleted key is cached too");
}
