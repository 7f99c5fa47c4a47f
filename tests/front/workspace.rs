//! The workspace of a user with an agent.

use crate::signer::Signer;
use crate::stage::{ADMIN, Answer, DEV, NOW, Request, Stage, delete, get, post, request};
use edge_harness::http::erasure::sweep;
use edge_harness::workspace::stored::MAX_INLINE;
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;

const FILES: &str = "/v1/workspace/files";

fn file(path: &str) -> String {
    format!("{FILES}/{path}")
}

fn put(path: &str, body: impl Into<bytes::Bytes>) -> Request {
    request("PUT", &file(path)).body(body)
}

/// A request with the development key.
fn ask(stage: &Stage, request: Request) -> Answer {
    stage.answer(request.bearer(DEV))
}

fn read(stage: &Stage, path: &str) -> (u16, Value) {
    let answer = ask(stage, get(&file(path)));
    (answer.status, if answer.status == 200 { answer.body } else { answer.body["code"].clone() })
}

fn etag(answer: &Answer) -> String {
    answer.header("etag").expect("an etag").to_owned()
}

#[test]
fn head_returns_the_headers_of_get() {
    let stage = Stage::new();
    let made = ask(&stage, put("a.md", "text"));
    let head = ask(&stage, request("HEAD", &file("a.md")));
    assert_eq!((head.status, etag(&head), head.body), (200, etag(&made), Value::Null));
    assert_eq!(ask(&stage, request("HEAD", &file("b.md"))).status, 404);
    assert_eq!(ask(&stage, request("HEAD", "/v1/tickets")).status, 405);
}

#[test]
fn a_file_is_written_read_replaced_listed_and_deleted() {
    let stage = Stage::new();
    let made = ask(&stage, put("notes/a.md", "# Grüße"));
    assert_eq!(made.status, 201);
    let entry = json!({
        "path": "notes/a.md", "bytes": 9, "etag": etag(&made), "layer": "user",
        "updated_at": "2026-11-20T12:00:00.000Z",
    });
    assert_eq!(made.body, entry);
    let found = ask(&stage, get(&file("/notes/a.md")));
    assert_eq!((found.status, &found.body, etag(&found)), (200, &json!("# Grüße"), etag(&made)));
    for (name, value) in [
        ("content-type", "text/markdown; charset=utf-8"),
        ("content-disposition", "attachment; filename=\"a.md\""),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "sandbox; default-src 'none'"),
    ] {
        assert_eq!(found.header(name), Some(value));
    }
    let same = ask(&stage, get(&file("notes/a.md")).header("if-none-match", &format!("W/{}", etag(&made))));
    assert_eq!((same.status, etag(&same)), (304, etag(&made)));
    assert_eq!(ask(&stage, put("notes/a.md", "new")).status, 200);
    let list = ask(&stage, get(&format!("{FILES}?prefix=notes/")));
    assert_eq!((list.body["data"][0]["bytes"].as_u64(), &list.body["next_cursor"]), (Some(3), &Value::Null));
    for _ in 0..2 {
        assert_eq!(ask(&stage, delete(&file("notes/a.md"))).status, 204);
    }
    assert_eq!(read(&stage, "notes/a.md"), (404, json!("not_found")));
    assert_eq!(ask(&stage, get(FILES)).body["data"], json!([]));
}

#[test]
fn preconditions_protect_others_changes() {
    let stage = Stage::new();
    let create = || put("a", "one").header("if-none-match", "*");
    let made = ask(&stage, create());
    assert_eq!(made.status, 201);
    assert_eq!(ask(&stage, create()).code(), (412, "precondition_failed"));
    let tag = etag(&made);
    let second = ask(&stage, put("a", "two").header("if-match", &tag));
    assert_eq!(second.status, 200);
    let late = |request: Request, tags: &str| ask(&stage, request.header("if-match", tags)).status;
    assert_eq!(late(put("a", "three"), &tag), 412);
    assert_eq!(late(put("a", "three"), &format!("W/{}", etag(&second))), 412);
    assert_eq!(late(delete(&file("a")), &tag), 412);
    assert_eq!(late(put("none", "x"), "*"), 412);
    assert_eq!(late(put("a", "three"), &format!("{tag}, {}", etag(&second))), 200);
    assert_eq!(late(put("a", "four").header("if-none-match", "*"), "*"), 412);
    assert_eq!(late(put("a", "four"), "*"), 200);
    assert_eq!(read(&stage, "a"), (200, json!("four")));
    // Etags from a list are valid, too.
    let list = ask(&stage, get(FILES));
    assert_eq!(late(delete(&file("a")), list.body["data"][0]["etag"].as_str().unwrap()), 204);
}

#[test]
fn the_shared_layer_is_writable_by_administrators_and_visible_to_users() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, chat) = stage.key("acme", json!({ "scopes": ["chat", "read"] }));
    let (_, admin) = stage.key("acme", json!({ "scopes": ["chat", "read", "admin"] }));
    let shared = || put("AGENTS.md?layer=shared", "be kind");
    assert_eq!(stage.answer(shared().bearer(&chat)).code(), (403, "missing_scope"));
    let remove = || delete(&file("AGENTS.md?layer=shared"));
    assert_eq!(stage.answer(remove().bearer(&chat)).code(), (403, "missing_scope"));
    let made = stage.answer(shared().bearer(&admin));
    assert_eq!((made.status, &made.body["layer"]), (201, &json!("shared")));

    let text = |target: &str| stage.answer(get(&file(target)).bearer(&chat)).body;
    assert_eq!(text("AGENTS.md?user=ann"), json!("be kind"));
    // Creating a file under a visible shared path is refused; with the shared file's etag the user gets a copy.
    let write = |name: &str, value: &str| {
        stage.answer(put("AGENTS.md?user=ann", "be short").bearer(&chat).header(name, value)).status
    };
    assert_eq!((write("if-none-match", "*"), write("if-match", &etag(&made))), (412, 200));
    assert_eq!(
        (text("AGENTS.md?user=ann"), text("AGENTS.md?user=bob")),
        (json!("be short"), json!("be kind"))
    );
    assert_eq!(text("AGENTS.md?user=ann&layer=shared"), json!("be kind"));
    let layers = |target: &str| {
        let list = stage.answer(get(&format!("{FILES}?{target}")).bearer(&chat)).body;
        let data = list["data"].as_array().unwrap().iter();
        data.map(|entry| entry["layer"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(layers("user=ann"), ["user"]);
    assert_eq!(layers("user=bob"), ["shared"]);
    assert_eq!(layers("user=bob&layer=user"), Vec::<String>::new());
    assert_eq!(layers("user=bob&agent=other"), Vec::<String>::new());
    assert_eq!(stage.answer(get(&format!("{FILES}?layer=all")).bearer(&chat)).status, 422);
}

#[test]
fn users_cannot_read_each_others_files() {
    let stage = Stage::new();
    let (issuer, signer) = ("https://id.example", Signer::Secret);
    let jwt = json!({ "issuer": issuer, "any_audience": true, "jwks": { "keys": [signer.jwk("k")] } });
    stage.tenant("acme", jwt);
    let token = signer.token("k", &json!({ "iss": issuer, "sub": "ann", "exp": NOW.0 / 1_000 + 3_600 }));
    let (_, key) = stage.key("acme", json!({}));
    assert_eq!(stage.answer(put("a?user=ann", "ann's").bearer(&key)).status, 201);
    assert_eq!(stage.answer(put("a?user=bob", "bob's").bearer(&key)).status, 201);
    let text = |target: &str, credential: &str| stage.answer(get(&file(target)).bearer(credential)).body;
    assert_eq!(text("a", &token), json!("ann's"));
    assert_eq!(stage.answer(get(&file("a?user=bob")).bearer(&token)).code(), (422, "user_mismatch"));
    assert_eq!(stage.answer(get(&file("a")).bearer(&key)).status, 404, "the default user has none");
    assert_eq!(read(&stage, "a?user=ann"), (404, json!("not_found")), "another tenant's");
    let (_, reader) = stage.key("acme", json!({ "scopes": ["read"] }));
    for refused in [put("a", "x"), delete(&file("a"))] {
        assert_eq!(stage.answer(refused.bearer(&reader)).code(), (403, "missing_scope"));
    }
    assert_eq!(stage.answer(get(&file("a"))).status, 401);
}

#[test]
fn invalid_files_are_refused() {
    let stage = Stage::new();
    for path in ["a%2F..%2Fb", "..%2Fx", "a%5Cb", "a//b", "a/", "a%00", "a%0Ab", &"x".repeat(513)] {
        assert_eq!(ask(&stage, put(path, "x")).code(), (422, "validation_failed"), "{path}");
    }
    for query in ["?user=a%2Fb", "?user=..", "?agent=a/b", "?agent=", "?layer=x"] {
        assert_eq!(ask(&stage, put(&format!("a{query}"), "x")).code(), (422, "validation_failed"), "{query}");
    }
    assert_eq!(ask(&stage, put("a..b", "x")).status, 201);
    assert_eq!(ask(&stage, put("large", vec![b'x'; (4 << 20) + 1])).code(), (413, "payload_too_large"));
    let posted = ask(&stage, request("POST", &file("a")));
    assert_eq!((posted.status, posted.header("allow")), (405, Some("GET, PUT, DELETE")));
    stage.files.down.set(true);
    assert_eq!(read(&stage, "a..b"), (503, json!("unavailable")));
    assert!(stage.logged("switched off"));
}

#[test]
fn lists_are_paged() {
    let stage = Stage::new();
    for n in 0..5 {
        let layer = if n % 2 == 0 { "?layer=shared" } else { "" };
        assert_eq!(ask(&stage, put(&format!("f{n}{layer}"), "x")).status, 201);
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = ask(&stage, get(&format!("{FILES}?limit=2{cursor}"))).body;
        seen.extend(page["data"].as_array().unwrap().iter().map(|e| e["path"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["f0", "f1", "f2", "f3", "f4"]);
}

#[test]
fn erasing_a_tenant_erases_its_files() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, key) = stage.key("acme", json!({ "scopes": ["chat", "read", "admin"] }));
    let large = || vec![b'x'; MAX_INLINE + 1];
    assert_eq!(stage.answer(put("small", "x").bearer(&key)).status, 201);
    assert_eq!(stage.answer(put("large?layer=shared", large()).bearer(&key)).status, 201);
    assert_eq!(ask(&stage, put("large", large())).status, 201);
    stage.blobs.down.set(true);
    assert_eq!(stage.answer(delete("/v1/admin/tenants/acme").bearer(ADMIN)).status, 204);
    assert_eq!(stage.files.all().len(), 3);
    stage.clock.advance(Duration::from_mins(10));
    assert_eq!(block_on(sweep(&stage.gateway)).unwrap(), false);
    assert!(stage.logged("erasure.failed"));
    assert_eq!(stage.files.all().len(), 3);
    stage.blobs.down.set(false);
    assert_eq!(block_on(sweep(&stage.gateway)).unwrap(), false);
    let left: Vec<_> = stage.files.all().into_iter().map(|(tree, _)| tree.tenant).collect();
    assert_eq!(left, ["dev"]);
    let keys: Vec<_> = stage.blobs.objects.borrow().keys().cloned().collect();
    assert!(keys.len() == 1 && keys[0].starts_with("dev/files/"), "{keys:?}");
}

#[test]
fn unknown_agents_are_refused_on_every_route() {
    let stage = Stage::new();
    let turns =
        json!({"agent": "none", "session": "s", "turns": [{"id": "1", "speaker": "user", "text": "x"}]});
    for asked in [
        put("a?agent=none", "x"),
        get("/v1/workspace/files?agent=none"),
        get("/v1/workspace/files/a?agent=none"),
        request("DELETE", "/v1/workspace/files/a?agent=none"),
        get("/v1/sessions?agent=none"),
        get("/v1/memory/search?q=x&agent=none"),
        get("/v1/memory/log/2026-01-01?agent=none"),
        request("DELETE", "/v1/memory?user=ann&agent=none"),
        post("/v1/memory/search").json(&json!({"q": "x", "agent": "none"})),
        post("/v1/memory").json(&json!({"agent": "none", "facts": [{"text": "x"}]})),
        post("/v1/memory?agent=none").json(&json!({"facts": [{"text": "x"}]})),
        post("/v1/memory/turns").json(&turns),
        post("/v1/memory/consolidate").json(&json!({"agent": "none"})),
        post("/v1/sessions").json(&json!({"agent": "none"})),
        post("/v1/sessions?agent=none").json(&json!({})),
        post("/v1/sessions/s/messages?agent=none").json(&json!({"content": "x"})),
        get("/v1/sessions/s?agent=none"),
        request("DELETE", "/v1/sessions/s?agent=none"),
        post("/v1/tickets?agent=none").json(&json!({"session": "s"})),
    ] {
        let name = asked.target();
        assert_eq!(stage.answer(asked.bearer(DEV)).code(), (404, "unknown_agent"), "{name}");
    }
    for agent in ["default", "other"] {
        let new = post("/v1/sessions").json(&json!({"agent": agent}));
        assert_eq!(stage.forward(new.bearer(DEV)).tenant, "dev");
        assert_eq!(stage.answer(put(&format!("a?agent={agent}"), "x").bearer(DEV)).status, 201);
    }
}
