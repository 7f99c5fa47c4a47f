//! Isolation and access: tenants, keys, tokens, tickets, and users.

use crate::support::{ADMIN_KEY, Chat, Client, DEV_API_KEY, Server};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use edge_harness::http::crypto::hmac;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::sync::OnceLock;

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(json!({})))
}

/// Creates a tenant.
#[track_caller]
fn tenant(server: &Server, id: &str) {
    server.admin().post("/v1/admin/tenants", json!({ "id": id })).expect(201);
}

/// Creates a key of a tenant. Returns its public id and a client that uses it.
#[track_caller]
fn key(server: &Server, tenant: &str, body: Value) -> (String, Client) {
    let made = server.admin().post(&format!("/v1/admin/tenants/{tenant}/keys"), body).expect(201);
    (made["id"].as_str().unwrap().to_owned(), server.anonymous().with_key(made["key"].as_str().unwrap()))
}

/// Creates a session with one turn. Returns the turn too.
#[track_caller]
fn conversation(client: &Client, id: &str, user: &str) -> (Chat, String) {
    let chat = Chat::new(client.clone(), id);
    let answer = chat.ask(json!({"content": "/say hello", "user": user}));
    (chat, answer["turn_id"].as_str().unwrap().to_owned())
}

/// Every route of a session, as an intruder would try them.
fn attempts(chat: &Chat, turn: &str) -> Vec<(&'static str, String, Value)> {
    let path = |rest: &str| chat.path(rest);
    vec![
        ("GET", path(""), Value::Null),
        ("PATCH", path(""), json!({"title": "mine now"})),
        ("GET", path("/messages"), Value::Null),
        ("GET", path(&format!("/turns/{turn}")), Value::Null),
        ("GET", path("/events?until=idle"), Value::Null),
        ("GET", path("/ws"), Value::Null),
        ("GET", path("/artifacts/art_1"), Value::Null),
        ("POST", path("/attachments"), json!({})),
        ("POST", path("/fork"), json!({})),
        ("POST", path("/abort"), json!({})),
        ("POST", path("/approvals/call_1"), json!({"decision": "approve"})),
        ("POST", path("/answers/call_1"), json!({"answer": "yes"})),
        ("DELETE", path(&format!("/queue/{turn}")), Value::Null),
        ("DELETE", path(""), Value::Null),
    ]
}

#[track_caller]
fn send(client: &Client, method: &str, path: &str, body: &Value) -> crate::support::Response {
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    client.with_header("content-type", "application/json").send(method, path, &bytes)
}

#[test]
fn tenants_and_keys_are_created_and_removed() {
    let (server, admin) = (server(), server().admin());
    tenant(server, "acme");
    assert_eq!(admin.post("/v1/admin/tenants", json!({"id": "acme"})).expect(409)["code"], "already_exists");
    assert_eq!(admin.get("/v1/admin/tenants/acme").expect(200)["id"], "acme");
    let (old_id, old) = key(server, "acme", json!({"name": "first"}));
    let (chat, turn) = conversation(&old, "acme-1", "ann");

    // Scopes: a reader may only read, and only the operator may use the administration.
    let (_, reader) = key(server, "acme", json!({"scopes": ["read"]}));
    let seen = Chat::new(reader.clone(), &chat.id);
    assert_eq!(seen.get(&format!("/turns/{turn}"))["status"], "completed");
    assert_eq!(seen.log(), chat.log());
    for (method, path, body) in [
        ("POST", chat.path("/messages"), json!({"content": "x"})),
        ("POST", chat.path("/steer"), json!({"content": "x"})),
        ("POST", "/v1/sessions".into(), json!({})),
        ("PATCH", chat.path(""), json!({})),
        ("DELETE", chat.path(""), Value::Null),
        ("POST", chat.path("/fork"), json!({})),
        ("POST", chat.path("/abort"), json!({})),
        ("GET", "/v1/admin/tenants".into(), Value::Null),
    ] {
        let refused = send(&reader, method, &path, &body);
        assert_eq!(refused.status, 403, "{method} {path}: {}", refused.text());
        assert_eq!(refused.json()["code"], "missing_scope");
    }
    let (_, writer) = key(server, "acme", json!({"scopes": ["chat"]}));
    assert_eq!(Chat::new(writer.clone(), &chat.id).say("/say hi")["reply"]["text"], "hi");
    writer.get(&chat.path("/messages")).expect(403);

    // Rotation: both keys work until the old one is revoked.
    let (_, new) = key(server, "acme", json!({}));
    for client in [&old, &new] {
        client.get(&chat.path("")).expect(200);
    }
    assert_eq!(admin.delete(&format!("/v1/admin/tenants/acme/keys/{old_id}")).status, 204);
    old.get(&chat.path("")).expect(401);
    new.get(&chat.path("")).expect(200);
    admin.delete(&format!("/v1/admin/tenants/acme/keys/{old_id}")).expect(404);
    let keys = admin.get("/v1/admin/tenants/acme/keys").expect(200);
    assert_eq!(keys["data"].as_array().unwrap().len(), 3);
    assert!(
        keys["data"]
            .as_array()
            .unwrap()
            .iter()
            .all(|key| key["key"].is_null() && key["id"] != old_id.as_str())
    );

    for (path, body) in [
        ("/keys", json!({"scopes": ["root"]})),
        ("/keys", json!({"scopes": []})),
        ("/keys", json!({"expires_at": "2001-01-01T00:00:00Z"})),
        ("", json!({"id": "a/b"})),
        ("", json!({"id": "x", "jwt": {"issuer": "i"}})),
        ("", json!({"id": "x", "name": ""})),
    ] {
        let path = if path.is_empty() {
            "/v1/admin/tenants".to_owned()
        } else {
            format!("/v1/admin/tenants/acme{path}")
        };
        assert!(!admin.post(&path, body).expect(422)["errors"].as_array().unwrap().is_empty());
    }
    admin.post("/v1/admin/tenants/unknown/keys", json!({})).expect(404);
}

#[test]
fn data_of_one_tenant_is_invisible_to_another() {
    let server = server();
    tenant(server, "ours");
    tenant(server, "theirs");
    let ((_, ours), (_, theirs)) = (key(server, "ours", json!({})), key(server, "theirs", json!({})));
    let (chat, turn) = conversation(&ours, "shared-name", "ann");
    ours.post("/v1/sessions", json!({"id": "listed"})).expect(201);
    let log = chat.log();
    let never = Chat::new(theirs.clone(), "never-there");
    for client in [&theirs, &server.client()] {
        for ((method, path, body), (_, absent, _)) in
            attempts(&chat, &turn).into_iter().zip(attempts(&never, &turn))
        {
            let (refused, unknown) =
                (send(client, method, &path, &body), send(client, method, &absent, &body));
            assert_eq!(refused.status, unknown.status, "{method} {path}: {}", refused.text());
            // Foreign and missing resources must be indistinguishable.
            let [mut refused, mut unknown] = [refused.json(), unknown.json()];
            for problem in [&mut refused, &mut unknown] {
                problem["request_id"] = Value::Null;
            }
            assert_eq!(refused, unknown, "{method} {path}");
            assert!(path.ends_with("/ws") || refused["status"] == 404, "{method} {path}: {refused}");
        }
    }
    for list in ["/v1/sessions", "/v1/sessions?user=ann", "/v1/sessions?user=default"] {
        assert_eq!(theirs.get(list).expect(200)["data"], json!([]), "{list}");
    }
    // Naming another tenant's or user's ids in a body, query, or header has no effect.
    let tricks = theirs
        .with_header("x-edge-harness-forward", r#"{"principal":{"tenant":"ours","user":null,"scopes":["chat","read"]},"session":"shared-name","id":"x","answer_headers":[]}"#)
        .with_header("x-edge-harness-internal", r#"{"erase":{"tenant":"ours","session":"shared-name"}}"#);
    tricks.get(&format!("{}?tenant=ours", chat.path(""))).expect(404);
    // The same id names a different session.
    let (own, _) = conversation(&theirs, "shared-name", "bob");
    assert_eq!(own.get("")["user"], "bob");
    assert_eq!(own.client.delete(&own.path("")).status, 204);
    // The follow-ups of the turn may add a record.
    assert!(chat.log().starts_with(&log));

    // A foreign session allows neither tickets nor forks.
    let ticket = theirs.post("/v1/tickets", json!({"session": chat.id})).json()["ticket"]
        .as_str()
        .unwrap_or("none")
        .to_owned();
    let refused = server.anonymous().get(&chat.path(&format!("/events?until=idle&ticket={ticket}")));
    assert!([401, 404].contains(&refused.status), "{}", refused.text());
}

#[test]
fn tickets_open_the_streams_of_their_own_session_only() {
    let server = server();
    tenant(server, "tickets");
    let (_, client) = key(server, "tickets", json!({}));
    let (chat, turn) = conversation(&client, "ticketed", "ann");
    let (other, _) = conversation(&client, "unticketed", "ann");
    let made = client.post("/v1/tickets", json!({"session": chat.id, "user": "ann"})).expect(201);
    let ticket = made["ticket"].as_str().unwrap();
    assert!(made["expires_at"].as_str().unwrap().ends_with('Z'));
    let anonymous = server.anonymous();

    let events: Vec<_> =
        anonymous.stream(&chat.path(&format!("/events?until=idle&ticket={ticket}"))).collect();
    let stored: Vec<Value> =
        events.iter().filter(|e| !e.event.ends_with(".delta")).map(crate::support::Event::json).collect();
    assert_eq!(stored, chat.log());
    let mut socket = anonymous.websocket(&chat.path(&format!("/ws?after=0&ticket={ticket}")));
    let first: Value = serde_json::from_str(socket.read().unwrap().to_text().unwrap()).unwrap();
    assert_eq!((&first["seq"], &first["type"]), (&json!(1), &json!("session.created")));

    for (method, path, body) in attempts(&other, &turn) {
        let path = format!("{path}{}ticket={ticket}", if path.contains('?') { '&' } else { '?' });
        assert_eq!(send(&anonymous, method, &path, &body).status, 401, "{method} {path}");
    }
    for (method, path, body) in attempts(&chat, &turn) {
        if !path.contains("/events") && !path.contains("/ws") {
            assert_eq!(
                send(&anonymous, method, &format!("{path}?ticket={ticket}"), &body).status,
                401,
                "{method} {path}"
            );
        }
    }
    for forged in
        [ticket.replace('.', "A."), ticket[..ticket.len() - 1].to_owned(), format!("{ticket}A"), "x".into()]
    {
        anonymous.get(&chat.path(&format!("/events?until=idle&ticket={forged}"))).expect(401);
    }
    // A ticket for another user gives no access to this session.
    let strange = client.post("/v1/tickets", json!({"session": chat.id, "user": "bob"})).json();
    if let Some(ticket) = strange["ticket"].as_str() {
        anonymous.get(&chat.path(&format!("/events?until=idle&ticket={ticket}"))).expect(404);
    }
    // A reader's ticket allows no more than the reader may do.
    let (_, reader) = key(server, "tickets", json!({"scopes": ["read"]}));
    let ticket = reader.post("/v1/tickets", json!({"session": chat.id})).expect(201)["ticket"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut socket = anonymous.websocket(&chat.path(&format!("/ws?ticket={ticket}")));
    socket.send(r#"{"type": "message", "content": "/say intruded"}"#.into()).unwrap();
    let refused: Value = serde_json::from_str(socket.read().unwrap().to_text().unwrap()).unwrap();
    assert_eq!((&refused["type"], &refused["problem"]["code"]), (&json!("error"), &json!("missing_scope")));
    // A ticket ends with the key that created it.
    let (id, brief) = key(server, "tickets", json!({}));
    let made = brief.post("/v1/tickets", json!({"session": chat.id, "user": "ann"})).expect(201);
    let events = chat.path(&format!("/events?until=idle&ticket={}", made["ticket"].as_str().unwrap()));
    assert_eq!(anonymous.get(&events).status, 200);
    assert_eq!(server.admin().delete(&format!("/v1/admin/tenants/tickets/keys/{id}")).status, 204);
    anonymous.get(&events).expect(401);
}

const SECRET: &[u8] = b"a secret of more than thirty-two bytes";

/// Signs a token of the issuer `https://id.example`.
fn token(secret: &[u8], claims: Value) -> String {
    let mut all = json!({"iss": "https://id.example", "exp": 4_000_000_000_u64});
    claims.as_object().unwrap().iter().for_each(|(name, value)| all[name] = value.clone());
    let text = format!("{}.{}", B64.encode(r#"{"alg":"HS256","kid":"k1"}"#), B64.encode(all.to_string()));
    format!("{text}.{}", B64.encode(hmac(secret, text.as_bytes())))
}

#[test]
fn an_address_with_many_invalid_credentials_is_refused_for_a_minute() {
    let server = Server::start(json!({}));
    server.admin().post("/v1/admin/tenants", json!({"id": "calm"})).expect(201);
    let (_, known) = key(&server, "calm", json!({}));
    let at =
        |client: &Client, address: &str| client.with_header("cf-connecting-ip", address).get("/v1/sessions");
    let made_up = |n: usize, address: &str| {
        let issuer = format!("https://made-up-{n}.example");
        at(&server.anonymous().with_key(&token(SECRET, json!({"iss": issuer, "sub": "ann"}))), address)
    };
    at(&known, "192.0.2.7").expect(200);
    let mut answers = (0..200).map(|n| made_up(n, "192.0.2.7"));
    let accepted = answers.by_ref().take(30).map(|answer| answer.status).collect::<Vec<_>>();
    assert_eq!(accepted, [401; 30]);
    let refused = answers.find(|answer| answer.status == 429).expect("the limit");
    assert!((1..=60).contains(&refused.header("retry-after").unwrap().parse::<u32>().unwrap()));
    assert_eq!(refused.expect(429)["code"], "rate_limited");
    at(&known, "192.0.2.7").expect(200);
    made_up(200, "192.0.2.8").expect(401);
    // A developer's own machine is not limited.
    for n in 300..340 {
        made_up(n, "127.0.0.1").expect(401);
    }
}

#[test]
fn a_token_authenticates_its_own_user_only() {
    let server = server();
    let jwt = json!({"issuer": "https://id.example", "audience": "edge",
        "jwks": {"keys": [{"kty": "oct", "kid": "k1", "k": B64.encode(SECRET)}]}});
    let made = server.admin().post("/v1/admin/tenants", json!({"id": "tokens", "jwt": jwt})).expect(201);
    assert!(!made.to_string().contains(&B64.encode(SECRET)), "{made}");
    let holder = |claims: Value| server.anonymous().with_key(&token(SECRET, claims));
    let ann = holder(json!({"sub": "ann", "aud": "edge"}));
    let bob = holder(json!({"sub": "bob", "aud": ["other", "edge"]}));

    let (chat, turn) = conversation(&ann, "token-1", "ann");
    assert_eq!(chat.get("")["user"], "ann");
    // A token may name its own user, and no other: nothing happens then, instead of something to the token's user.
    ann.post("/v1/sessions?user=ann", json!({"id": "token-2", "user": "ann"})).expect(201);
    ann.post("/v1/memory", json!({"facts": [{"text": "Ann keeps bees."}]})).expect(201);
    for (method, path, body) in [
        ("POST", "/v1/sessions?user=bob", json!({})),
        ("POST", "/v1/sessions", json!({"user": "bob"})),
        ("POST", "/v1/sessions/token-3/messages", json!({"content": "x", "user": "bob"})),
        ("POST", "/v1/sessions/token-1/messages?user=bob", json!({"content": "x"})),
        ("GET", "/v1/sessions?user=bob", json!({})),
        ("GET", "/v1/sessions/token-1?user=bob", json!({})),
        ("DELETE", "/v1/sessions/token-1?user=bob", json!({})),
        ("DELETE", "/v1/memory?user=bob", json!({})),
        ("POST", "/v1/memory", json!({"user": "bob", "facts": [{"text": "x"}]})),
        ("PUT", "/v1/workspace/files/x.md?user=bob", json!({})),
        ("POST", "/v1/tickets", json!({"session": "token-1", "user": "bob"})),
    ] {
        let refused = send(&ann, method, path, &body).expect(422);
        let pointer = if path.contains('?') { "?user" } else { "/user" };
        let found = (&refused["code"], &refused["errors"][0]["pointer"]);
        assert_eq!(found, (&json!("user_mismatch"), &json!(pointer)), "{method} {path}");
    }
    assert_eq!(ann.get("/v1/memory/search?q=bees").expect(200)["hits"].as_array().unwrap().len(), 1);
    ann.get("/v1/sessions/token-3").expect(404);
    // A ticket is removed from the URL, also where it is of no use and the body has been read.
    ann.post("/v1/sessions?ticket=x", json!({"id": "token-4"})).expect(201);
    let sessions = |client: &Client, query: &str| -> Vec<String> {
        let list = client.get(&format!("/v1/sessions{query}")).expect(200);
        list["data"].as_array().unwrap().iter().map(|s| s["user"].as_str().unwrap().to_owned()).collect()
    };
    ann.post("/v1/sessions", json!({"id": "token-1"})).expect(200);
    assert!(sessions(&ann, "").iter().all(|user| user == "ann"));
    assert_eq!(sessions(&bob, ""), Vec::<String>::new());
    for (method, path, body) in
        attempts(&chat, &turn).into_iter().filter(|(_, path, _)| !path.ends_with("/ws"))
    {
        let refused = send(&bob, method, &path, &body);
        assert_eq!(refused.status, 404, "{method} {path}: {}", refused.text());
        let named = format!("{path}{}user=ann", if path.contains('?') { '&' } else { '?' });
        assert_eq!(send(&bob, method, &named, &body).status, 422, "{method} {named}");
    }
    bob.post(&chat.path("/messages"), json!({"content": "x", "user": "ann"})).expect(422);
    bob.post("/v1/sessions", json!({"id": chat.id})).expect(404);
    let ticket = bob.post("/v1/tickets", json!({"session": chat.id})).json();
    if let Some(ticket) = ticket["ticket"].as_str() {
        server.anonymous().get(&chat.path(&format!("/events?until=idle&ticket={ticket}"))).expect(404);
    }
    // A key of the tenant may access all users, but the named user must be the owner.
    let (_, staff) = key(server, "tokens", json!({}));
    staff.get(&chat.path("?user=ann")).expect(200);
    staff.get(&chat.path("?user=bob")).expect(404);

    for (why, token) in [
        ("expired", token(SECRET, json!({"sub": "ann", "aud": "edge", "exp": 1_000_000_000}))),
        (
            "wrong secret",
            token(b"another secret of more than 32 bytes!", json!({"sub": "ann", "aud": "edge"})),
        ),
        ("no audience", token(SECRET, json!({"sub": "ann"}))),
        ("other audience", token(SECRET, json!({"sub": "ann", "aud": "other"}))),
        ("other issuer", token(SECRET, json!({"sub": "ann", "aud": "edge", "iss": "https://evil.example"}))),
        ("not yet", token(SECRET, json!({"sub": "ann", "aud": "edge", "nbf": 3_999_999_999_u64}))),
        ("no sub", token(SECRET, json!({"aud": "edge"}))),
        ("sub that leaves its place", token(SECRET, json!({"sub": "../ann", "aud": "edge"}))),
        ("no signature", {
            let text = token(SECRET, json!({"sub": "ann", "aud": "edge"}));
            text.rsplit_once('.').map(|(signed, _)| format!("{signed}.")).unwrap()
        }),
        (
            "algorithm none",
            format!(
                "{}.{}.",
                B64.encode(r#"{"alg":"none"}"#),
                B64.encode(r#"{"iss":"https://id.example","sub":"ann","aud":"edge","exp":4000000000}"#)
            ),
        ),
    ] {
        let refused = server.anonymous().with_key(&token).get("/v1/sessions");
        assert_eq!((refused.status, &refused.json()["code"]), (401, &json!("unauthenticated")), "{why}");
        assert!(refused.header("www-authenticate").is_some(), "{why}");
    }
    // User names in the form of identity providers.
    let odd = holder(json!({"sub": "auth0|7 Zoë 山", "aud": "edge"}));
    let (own, _) = conversation(&odd, "token-odd", "auth0|7 Zoë 山");
    assert_eq!(own.get("")["user"], "auth0|7 Zoë 山");
    // A scope claim restricts the scopes, and the tenant restricts those of all tokens.
    for scope in [json!("openid read"), json!(["openid", "read"])] {
        let reader = holder(json!({"sub": "ann", "aud": "edge", "scope": scope}));
        reader.get(&chat.path("")).expect(200);
        reader.post(&chat.path("/messages"), json!({"content": "x"})).expect(403);
    }
    holder(json!({"sub": "ann", "aud": "edge", "scope": "openid profile"})).get(&chat.path("")).expect(200);
    let admin = holder(json!({"sub": "ann", "aud": "edge", "scope": "chat read admin"}));
    let shared = "/v1/workspace/files/shared.md?layer=shared";
    admin.put(shared, json!({})).expect(403);
}

#[test]
fn a_user_named_with_a_key_must_own_the_session() {
    let server = server();
    tenant(server, "users");
    let (_, client) = key(server, "users", json!({}));
    let (chat, turn) = conversation(&client, "anns", "ann");
    let log = chat.log();
    for (method, path, body) in
        attempts(&chat, &turn).into_iter().filter(|(_, path, _)| !path.ends_with("/ws"))
    {
        let path = format!("{path}{}user=bob", if path.contains('?') { '&' } else { '?' });
        let refused = send(&client, method, &path, &body);
        assert_eq!(refused.status, 404, "{method} {path}: {}", refused.text());
    }
    for path in ["/messages", "/steer"] {
        chat.post(path, json!({"content": "x", "user": "bob"})).expect(404);
    }
    client.post("/v1/sessions", json!({"id": "anns", "user": "bob"})).expect(404);
    assert_eq!(chat.log(), log);
    client.post(&chat.path("/messages"), json!({"content": "/say me", "user": "ann"})).expect(200);
    client.post("/v1/sessions", json!({"id": "anns", "user": "ann"})).expect(200);
}

#[test]
fn secrets_are_stored_hashed_or_encrypted_and_never_logged() {
    let server = Server::start(json!({}));
    let admin = server.admin();
    let secret = B64.encode(SECRET);
    let jwt = json!({"issuer": "https://id.example", "any_audience": true,
        "jwks": {"keys": [{"kty": "oct", "kid": "k1", "k": secret}]}});
    admin.post("/v1/admin/tenants", json!({"id": "sealed", "jwt": jwt})).expect(201);
    let keyed = admin.with_header("idempotency-key", "once");
    let made = keyed.post("/v1/admin/tenants/sealed/keys", json!({"name": "a-name-to-be-found"})).expect(201);
    let key = made["key"].as_str().unwrap().to_owned();
    let client = server.anonymous().with_key(&key);
    let (chat, _) = conversation(&client, "sealed-1", "ann");
    let ticket = client.post("/v1/tickets", json!({"session": chat.id})).expect(201)["ticket"]
        .as_str()
        .unwrap()
        .to_owned();
    let signed = token(SECRET, json!({"sub": "ann"}));
    server.anonymous().with_key(&signed).get(&chat.path("")).expect(200);
    assert_eq!(
        server.anonymous().get(&chat.path(&format!("/events?until=idle&ticket={ticket}"))).status,
        200
    );
    client.get("/fixtures/panic").expect(500);

    // The search itself works.
    assert!(server.state_holds(b"a-name-to-be-found"));
    server.expect_log("as asked");
    for secret in [
        &*key,
        &key[3..],
        DEV_API_KEY,
        ADMIN_KEY,
        &*secret,
        &*signed,
        &*ticket,
        std::str::from_utf8(SECRET).unwrap(),
    ] {
        assert!(!server.state_holds(secret.as_bytes()), "{secret} is stored");
        assert!(!server.log().contains(secret), "{secret} is logged");
    }
}

#[test]
fn a_deleted_tenant_leaves_neither_keys_nor_sessions() {
    let mut server = Server::start(json!({}));
    tenant(&server, "gone");
    let (_, client) = key(&server, "gone", json!({}));
    tenant(&server, "stays");
    let (_, other) = key(&server, "stays", json!({}));
    let words = "the words to be erased";
    for id in ["gone-1", "gone-2"] {
        client.post("/v1/sessions", json!({ "id": id })).expect(201);
        Chat::new(client.clone(), id).say(&format!("/say {words}"));
    }
    let (kept, _) = conversation(&other, "gone-1", "ann");
    assert!(server.rows().contains(words));
    assert_eq!(server.admin().delete("/v1/admin/tenants/gone").status, 204);
    client.get("/v1/sessions").expect(401);
    client.get("/v1/sessions/gone-1").expect(401);
    let progress = server.admin().get("/v1/admin/tenants/gone").expect(200);
    assert!(progress["deleted_at"].is_string() && progress.get("name").is_none(), "{progress}");
    server.admin().delete("/v1/admin/tenants/gone").expect(404);
    // The id stays taken, because its old keys may still be cached.
    assert_eq!(
        server.admin().post("/v1/admin/tenants", json!({"id": "gone"})).expect(409)["code"],
        "already_exists"
    );
    assert_eq!(server.scheduled()["outcome"], "ok");
    server.restart();
    client.get("/v1/sessions").expect(401);
    let rows = server.rows();
    assert!(!rows.contains(words) && !rows.contains("gone-2"), "{rows}");
    assert_eq!(kept.get("")["user"], "ann");
}

#[test]
fn concurrent_changes_of_a_tenants_rules_are_all_kept() {
    let server = server();
    tenant(server, "crowded");
    let tools = ["a", "b", "c", "d"];
    std::thread::scope(|scope| {
        for tool in tools {
            let patch = json!({"permissions": {"tools": {tool: "deny"}}});
            scope.spawn(move || server.admin().patch("/v1/admin/tenants/crowded", patch).expect(200));
        }
    });
    let rules = server.admin().get("/v1/admin/tenants/crowded").expect(200)["permissions"]["tools"].clone();
    assert_eq!(rules, json!({"a": "deny", "b": "deny", "c": "deny", "d": "deny"}));
}

#[test]
fn a_socket_is_subject_to_rules_that_change_while_it_is_open() {
    let server = server();
    tenant(server, "changing");
    let (_, client) = key(server, "changing", json!({"scopes": ["chat", "read"]}));
    let (chat, _) = conversation(&client, "s", "ann");
    let mut socket = client.websocket(&chat.path("/ws?user=ann"));
    let rules = json!({"permissions": {"tools": {"echo": "deny"}}});
    server.admin().patch("/v1/admin/tenants/changing", rules).expect(200);
    // The rules that a socket has are at most 45 seconds old. A request of the same isolate brings new ones.
    client.get(&chat.path("?user=ann")).expect(200);
    let command = json!({"type": "message", "content": "/tool echo {\"text\": \"x\"}"});
    socket.send(command.to_string().into()).unwrap();
    let outcome = loop {
        let frame: Value = serde_json::from_str(socket.read().unwrap().to_text().unwrap()).unwrap();
        if frame["type"] == "tool.completed" {
            break frame;
        }
    };
    assert!(outcome.to_string().contains("a rule of the tenant forbids echo"), "{outcome}");
}

#[test]
fn limits_of_a_tenant_are_stored_and_apply_to_its_sessions() {
    let server = Server::start(json!({}));
    let limits = json!({"models": ["demo/*"]});
    server.admin().post("/v1/admin/tenants", json!({"id": "limited", "limits": limits})).expect(201);
    let shown = server.admin().get("/v1/admin/tenants/limited").expect(200);
    assert_eq!(shown["limits"], limits);
    let key = json!({"scopes": ["chat", "read"]});
    let key = server.admin().post("/v1/admin/tenants/limited/keys", key).expect(201)["key"].clone();
    let client = server.anonymous().with_key(key.as_str().unwrap());
    client.post("/v1/sessions", json!({"id": "one", "model": "demo/echo"})).expect(201);
    let limits = json!({"limits": {"models": ["openai/*"]}});
    server.admin().patch("/v1/admin/tenants/limited", limits).expect(200);
    let refused = client.post("/v1/sessions", json!({"id": "two", "model": "demo/echo"})).expect(422);
    assert_eq!(refused["errors"][0]["pointer"], "/model");
}
