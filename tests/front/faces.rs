//! Requests in the protocols of other servers, up to the object of their session.

use crate::signer::Signer;
use crate::stage::{ADMIN, DEV, NOW, Request, Stage, get, ids, post, request};
use edge_harness::http::faces::{
    socket::{Incoming, SocketFormat},
    ui_stream::ChatSocket,
};
use edge_harness::http::{Handled, face_sockets};
use edge_harness::types::ErrorCode;
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hi"}]})
}

#[test]
fn errors_have_the_form_that_clients_of_openai_read() {
    let stage = Stage::new();
    let no_key = stage.answer(post(CHAT).bearer("sk-wrong").json(&chat("default")));
    assert_eq!((no_key.status, no_key.header("www-authenticate").is_some()), (401, true));
    assert_eq!(no_key.header("content-type"), Some("application/json"));
    let error = &no_key.body["error"];
    assert_eq!(
        (&error["code"], &error["type"]),
        (&json!("invalid_api_key"), &json!("invalid_request_error"))
    );
    let unknown = stage.answer(post(CHAT).bearer(DEV).json(&chat("missing")));
    assert_eq!((unknown.status, &unknown.body["error"]["code"]), (404, &json!("model_not_found")));
    let malformed = stage.answer(post(CHAT).bearer(DEV).header("content-type", "application/json").body("{"));
    assert_eq!((malformed.status, &malformed.body["error"]["code"]), (400, &json!("malformed_json")));
    let invalid = stage.answer(post(CHAT).bearer(DEV).json(&json!({"model": "default", "messages": [{}]})));
    assert_eq!((invalid.status, &invalid.body["error"]["param"]), (400, &json!("messages.0")));
    let none = stage.answer(get("/v1/models/missing").bearer(DEV));
    assert_eq!((none.status, &none.body["error"]["type"]), (404, &json!("invalid_request_error")));
}

#[test]
fn a_request_goes_to_its_session_or_to_a_new_one() {
    let stage = Stage::new();
    let sent = |headers: &[(&str, &str)], body: &Value| {
        let asked = headers
            .iter()
            .fold(post(CHAT).bearer(DEV).json(body), |asked, (name, value)| asked.header(name, value));
        stage.forward(asked).session.to_string()
    };
    let plain = chat("default");
    assert_eq!(sent(&[("x-session-id", "s1")], &plain), "s1");
    let mut in_body = plain.clone();
    in_body["metadata"] = json!({"session_id": "s2"});
    assert_eq!(sent(&[], &in_body), "s2");
    let mut result = plain.clone();
    result["messages"] = json!([{"role": "tool", "tool_call_id": "call_1.x.ses_3", "content": "7"}]);
    assert_eq!(sent(&[], &result), "ses_3");
    // Ids of other servers may have dots.
    for id in ["functions.look:0", "a.b"] {
        result["messages"][0]["tool_call_id"] = id.into();
        assert!(sent(&[], &result).starts_with("ses_"), "{id}");
    }
    assert_ne!(sent(&[], &plain), sent(&[], &plain));
    let key = [("idempotency-key", "k")];
    assert_eq!(sent(&key, &plain), sent(&key, &plain));
    let invalid = stage.answer(post(CHAT).bearer(DEV).header("x-session-id", "a/b").json(&plain));
    assert_eq!((invalid.status, &invalid.body["error"]["param"]), (400, &json!("metadata.session_id")));
}

#[test]
fn agents_and_models_are_listed_as_models() {
    let stage = Stage::new();
    assert_eq!(ids(&stage.answer(get("/v1/models").bearer(DEV))), ["default", "other", "demo/echo"]);
    let one = stage.answer(get("/v1/models/demo/echo").bearer(DEV));
    assert_eq!((one.status, one.text("object"), one.text("id")), (200, "model".into(), "demo/echo".into()));
}

#[test]
fn a_page_may_send_the_headers_of_the_client_library() {
    let stage = Stage::new();
    let ask = request("OPTIONS", CHAT)
        .header("origin", "https://app.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization,x-stainless-os,x-evil");
    let allowed = stage.answer(ask);
    let headers = allowed.header("access-control-allow-headers").unwrap();
    assert!(headers.contains("x-stainless-os") && headers.contains("x-session-id"), "{headers}");
    assert!(!headers.contains("x-evil"));
}

#[test]
fn a_request_without_a_body_goes_to_the_session_of_its_path() {
    let stage = Stage::new();
    let sent = stage.forward(get("/v1/responses/resp_trn_1_0.s1").bearer(DEV));
    assert_eq!((&*sent.session, sent.body_read), ("s1", false));
    let sent = stage.forward(get("/api/chat/s2/stream").bearer(DEV));
    assert_eq!((&*sent.session, sent.body_read), ("s2", false));
    let unknown = stage.answer(get("/v1/responses/trn_1").bearer(DEV));
    assert_eq!((unknown.status, &unknown.body["error"]["code"]), (404, &json!("not_found")));
}

fn a2a(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

#[test]
fn tasks_of_all_contexts_are_listed_in_pages() {
    let stage = Stage::new();
    let of = |n: u64| format!("default-{n:04}");
    for n in 0..30 {
        stage.session("dev", &of(n), "default", 29 - n);
        // The second page of the newest context, whose token is 5, has one more task.
        let (tasks, next) = match n {
            29 => (json!([{"id": "a"}, {"id": "b"}]), "5"),
            7 => (json!([]), ""),
            _ => (json!([{"id": of(n)}]), ""),
        };
        let body = json!({"jsonrpc": "2.0", "id": 7, "result": {"tasks": tasks, "nextPageToken": next}});
        let pieces = vec![Ok(body.to_string().into())];
        stage.objects.responses.borrow_mut().insert(format!("dev/{}/a2a", of(n)), (200, pieces));
    }
    let ask = |params: Value| {
        let asked = post("/a2a").bearer(DEV).header("a2a-version", "1.0").json(&a2a("ListTasks", params));
        let found = stage.answer(asked);
        assert_eq!(found.status, 200);
        found.body["result"].clone()
    };
    let first = ask(json!({"pageSize": 2, "includeArtifacts": true}));
    assert_eq!(first["tasks"], json!([{"id": "a"}, {"id": "b"}]));
    let (session, sent) = stage.objects.posted.borrow()[0].clone();
    assert_eq!((session, &sent["method"]), (of(29), &json!("ListTasks")));
    let own = json!({"contextId": of(29), "includeArtifacts": true, "pageSize": 2, "pageToken": ""});
    assert_eq!(sent["params"], own);
    let body = json!({"jsonrpc": "2.0", "id": 7, "result": {"tasks": [{"id": "c"}], "nextPageToken": ""}});
    let pieces = vec![Ok(body.to_string().into())];
    stage.objects.responses.borrow_mut().insert(format!("dev/{}/a2a", of(29)), (200, pieces));
    let mut listed = Vec::new();
    let mut page = first;
    while page["nextPageToken"] != "" {
        page = ask(json!({"pageSize": 9, "pageToken": page["nextPageToken"]}));
        listed.extend(
            page["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()),
        );
    }
    let sent = stage.objects.posted.borrow()[1].1["params"].clone();
    assert_eq!(sent["pageToken"], json!("5"), "where the first page ended");
    let expected: Vec<_> =
        std::iter::once("c".to_owned()).chain((0..29).rev().filter(|n| *n != 7).map(of)).collect();
    assert_eq!(listed, expected);
    let fails = |code: i32, status: u16, expected: i32| {
        let error = json!({"code": code, "message": "no"});
        let body = json!({"jsonrpc": "2.0", "id": 7, "error": error}).to_string();
        stage
            .objects
            .responses
            .borrow_mut()
            .insert(format!("dev/{}/a2a", of(20)), (200, vec![Ok(body.into())]));
        let asked = post("/a2a").bearer(DEV).header("a2a-version", "1.0").json(&a2a("ListTasks", json!({})));
        let found = stage.answer(asked);
        assert_eq!((found.status, &found.body["error"]["code"]), (status, &json!(expected)));
    };
    fails(-32603, 503, -32603);
    fails(-32602, 200, -32602);
    let body = json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32001, "message": "erased"}}).to_string();
    stage.objects.responses.borrow_mut().insert(format!("dev/{}/a2a", of(20)), (200, vec![Ok(body.into())]));
    let wide = ask(json!({"pageSize": 100}));
    assert_eq!(
        wide["tasks"].as_array().unwrap().len(),
        19,
        "a page covers 20 contexts, one of which was erased"
    );
}

#[test]
fn requests_of_a2a_that_no_session_can_serve_are_errors_with_their_id() {
    let stage = Stage::new();
    let ask = |version: &str, body: &Value| {
        stage.answer(post("/a2a").bearer(DEV).header("a2a-version", version).json(body))
    };
    let message = |more: Value| {
        let mut params =
            json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}});
        more.as_object().unwrap().iter().for_each(|(name, value)| params[name] = value.clone());
        params
    };
    let push = json!({"configuration": {"taskPushNotificationConfig": {"url": "https://example.com"}}});
    for (version, body, code) in [
        ("0.3", a2a("GetTask", json!({"id": "t.s"})), -32009),
        ("1.0", a2a("Dance", json!({})), -32601),
        ("1.0", a2a("GetTask", json!({})), -32602),
        ("1.0", a2a("GetTask", json!({"id": "t"})), -32001),
        ("1.0", a2a("ListTasks", json!({"contextId": "a/b"})), -32602),
        ("1.0", a2a("ListTasks", json!({"pageSize": 0})), -32602),
        ("1.0", a2a("ListTasks", json!({"pageToken": "7"})), -32602),
        ("1.0", a2a("SendMessage", message(push)), -32003),
        (
            "1.0",
            a2a("CreateTaskPushNotificationConfig", json!({"taskId": "t.s", "url": "https://example.com"})),
            -32003,
        ),
        ("1.0", a2a("GetTaskPushNotificationConfig", json!({"taskId": "t.s", "id": "a"})), -32003),
        ("1.0", a2a("ListTaskPushNotificationConfigs", json!({"taskId": "t.s"})), -32003),
        ("1.0", a2a("DeleteTaskPushNotificationConfig", json!({"taskId": "t.s", "id": "a"})), -32003),
        ("1.0", a2a("SendMessage", json!({"message": {"role": "ROLE_USER", "parts": []}})), -32602),
        ("1.0", a2a("GetExtendedAgentCard", json!({})), -32004),
    ] {
        let found = ask(version, &body);
        let error = &found.body["error"];
        assert_eq!(
            (found.status, &found.body["id"], &error["code"]),
            (200, &json!(7), &json!(code)),
            "{body}"
        );
        let info = &error["data"][0];
        assert_eq!(info["@type"], json!("type.googleapis.com/google.rpc.ErrorInfo"));
    }
    let wrong = stage.answer(post("/a2a").bearer("sk-wrong").json(&a2a("GetTask", json!({"id": "t.s"}))));
    assert_eq!((wrong.status, &wrong.body["error"]["code"]), (401, &json!(-32603)));
    let unknown = post("/a2a/missing").bearer(DEV).header("a2a-version", "1.0");
    let unknown = stage.answer(unknown.json(&a2a("SendMessage", message(json!({})))));
    assert_eq!(
        (unknown.status, &unknown.body["error"]["data"][0]["metadata"]["code"]),
        (404, &json!("unknown_agent"))
    );
    let sent = |params: Value| {
        let asked = post("/a2a/other").bearer(DEV).header("a2a-version", "1.0");
        stage.forward(asked.json(&a2a("SendMessage", params))).session.to_string()
    };
    let of = |field: &str, id: &str| {
        let mut params = message(json!({}));
        params["message"][field] = id.into();
        params
    };
    assert_eq!([sent(of("contextId", "s1")), sent(of("taskId", "trn_1.s2"))], ["s1", "s2"]);
    assert_ne!(sent(message(json!({}))), sent(message(json!({}))));
}

#[test]
fn an_agent_has_a_card() {
    let stage = Stage::new();
    let card = stage.answer(get("/.well-known/agent-card.json").header("host", "agents.example"));
    assert_eq!(card.status, 200);
    assert_eq!(card.body["supportedInterfaces"][0]["url"], json!("https://agents.example/a2a"));
    let tag = card.header("etag").unwrap().to_owned();
    let again =
        get("/.well-known/agent-card.json").header("host", "agents.example").header("if-none-match", &tag);
    assert_eq!(stage.answer(again).status, 304);
    let other = stage.answer(get("/a2a/other/.well-known/agent-card.json").header("host", "localhost:8787"));
    assert_eq!(
        (&other.body["name"], &other.body["supportedInterfaces"][0]["url"]),
        (&json!("other"), &json!("http://localhost:8787/a2a/other"))
    );
    assert_eq!(stage.answer(get("/a2a/missing/.well-known/agent-card.json")).status, 404);
}

#[test]
fn the_card_of_an_agent_of_a_tenant_needs_a_credential_of_the_tenant() {
    let stage = Stage::new();
    let keys = ["acme", "globex"].map(|tenant| {
        stage.tenant(tenant, Value::Null);
        stage.key(tenant, json!({"scopes": ["chat", "read", "admin"]})).1
    });
    let definition = json!({"instructions": "Be brief."});
    let stored = stage.answer(request("PUT", "/v1/agents/support").bearer(&keys[0]).json(&definition));
    assert_eq!(stored.status, 201);
    let card = || get("/a2a/support/.well-known/agent-card.json").header("host", "agents.example");
    let own = stage.answer(card().bearer(&keys[0]));
    assert_eq!((own.status, &own.body["name"]), (200, &json!("support")));
    assert_eq!(own.header("cache-control"), Some("private, max-age=300"));
    assert_eq!(stage.answer(card()).status, 404);
    assert_eq!(stage.answer(card().bearer(&keys[1])).status, 404);
    assert_eq!(stage.answer(card().bearer("wrong")).status, 401);
}

#[test]
fn a_key_that_may_read_reads_tasks() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let [reader, sender, approver] =
        ["read", "chat", "approve"].map(|scope| stage.key("acme", json!({"scopes": [scope]})).1);
    let ask = |key: &str, method: &str, params: Value| {
        post("/a2a").bearer(key).header("a2a-version", "1.0").json(&a2a(method, params))
    };
    let task = json!({"id": "trn_1.s1"});
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]});
    for method in ["GetTask", "SubscribeToTask"] {
        for key in [&reader, &sender] {
            assert_eq!(&*stage.forward(ask(key, method, task.clone())).session, "s1", "{method}");
        }
    }
    assert_eq!(stage.answer(ask(&reader, "ListTasks", json!({}))).status, 200);
    stage.forward(ask(&sender, "SendMessage", json!({ "message": message })));
    for (key, method, params) in [
        (&reader, "SendMessage", json!({ "message": message })),
        (&reader, "SendStreamingMessage", json!({ "message": message })),
        (&reader, "CancelTask", task.clone()),
        (&approver, "GetTask", task.clone()),
    ] {
        let refused = stage.answer(ask(key, method, params));
        let code = &refused.body["error"]["data"][0]["metadata"]["code"];
        assert_eq!((refused.status, code), (403, &json!("missing_scope")), "{method}");
    }
}

#[test]
fn a_socket_of_another_protocol_needs_an_upgrade_and_a_page_that_may_call_the_api() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, key) = stage.key("acme", json!({}));
    for path in ["/api/chat", "/v1/responses"] {
        assert_eq!(stage.answer(get(path)).status, 400);
        let upgrade = || get(path).header("host", "agents.example").header("upgrade", "websocket");
        let foreign = stage.answer(upgrade().header("origin", "https://evil.example"));
        assert_eq!(foreign.status, 403);
        for request in [
            upgrade(),
            upgrade().header("origin", "https://app.example"),
            upgrade().header("origin", "https://agents.example"),
        ] {
            assert!(matches!(stage.send(request.bearer(&key)), Handled::Socket(_)), "{path}");
        }
    }
}

#[test]
fn the_handshake_of_a_socket_is_authenticated_if_it_has_a_credential() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, key) = stage.key("acme", json!({}));
    let upgrade = |path: &str| get(path).header("upgrade", "websocket");
    for path in ["/api/chat", "/v1/responses"] {
        let of = |request: Request| stage.answer(request).status;
        assert_eq!(of(upgrade(path).bearer("eh_mistyped")), 401);
        assert_eq!(of(upgrade(path).bearer(ADMIN)), 403);
        let unknown = stage.answer(upgrade(&format!("{path}?agent=missing")).bearer(&key));
        assert!(unknown.body.to_string().contains("there is no agent"), "{unknown:?}");
    }
    assert_eq!(stage.answer(upgrade("/v1/responses")).status, 401);
    // The frames of the AI SDK have the credentials. A limited number of sockets waits for one.
    let mut open: Vec<_> = (0..100).map(|_| stage.send(upgrade("/api/chat"))).collect();
    assert!(open.iter().all(|handled| matches!(handled, Handled::Socket(_))));
    assert_eq!(stage.answer(upgrade("/api/chat")).status, 503);
    assert!(matches!(stage.send(upgrade("/api/chat").bearer(&key)), Handled::Socket(_)));
    open.pop();
    assert!(matches!(stage.send(upgrade("/api/chat")), Handled::Socket(_)));
}

#[test]
fn the_handshake_of_a_socket_names_no_other_user() {
    let stage = Stage::new();
    let issuer = "https://id.example";
    let keys = json!({ "keys": [Signer::Curve(7).jwk("k")] });
    stage.tenant("acme", json!({ "issuer": issuer, "audience": "app", "jwks": keys }));
    let claims = json!({ "iss": issuer, "sub": "ann", "aud": "app", "exp": NOW.0 / 1_000 + 3_600 });
    let token = Signer::Curve(7).token("k", &claims);
    let upgrade =
        |user: &str| get(&format!("/api/chat?user={user}")).header("upgrade", "websocket").bearer(&token);
    assert_eq!(stage.answer(upgrade("bob")).code(), (422, "user_mismatch"));
    assert!(matches!(stage.send(upgrade("ann")), Handled::Socket(_)));
}

#[test]
fn a_frame_is_authenticated_before_it_is_parsed() {
    let stage = Stage::new();
    stage.tenant("acme", Value::Null);
    let (_, key) = stage.key("acme", json!({}));
    let mut handshake = edge_harness::http::Request::default();
    handshake.headers_mut().insert("cf-connecting-ip", "192.0.2.7".parse().unwrap());
    let read = |frame: &str| {
        let head = ChatSocket.head(frame);
        block_on(face_sockets::read(&stage.gateway, &handshake, &ChatSocket, &head, frame))
    };
    let frame = |credential: Option<&str>, messages: Value| {
        let authorization = credential.map(|credential| format!("Bearer {credential}"));
        let headers = json!({ "authorization": authorization });
        json!({ "type": "send", "requestId": "r", "id": "c", "messages": messages, "headers": headers })
            .to_string()
    };
    assert!(matches!(read(&frame(Some(&key), json!([]))), Ok(Incoming::Request(_))));
    let code = |frame: &str| read(frame).expect_err("refused").code;
    // The rest of the frame does not matter without a valid credential.
    for frame in [frame(None, json!([])), r#"{"type": "send"}"#.into(), "{".into()] {
        assert_eq!(code(&frame), ErrorCode::Unauthenticated, "{frame}");
    }
    let malformed = json!({ "type": "send", "headers": { "authorization": format!("Bearer {key}") } });
    assert_eq!(code(&malformed.to_string()), ErrorCode::MalformedJson);
    assert_eq!(code(&frame(Some(&key), vec![1; 100_000].into())), ErrorCode::PayloadTooLarge);
    assert_eq!(code(&frame(Some("a\nb"), json!([]))), ErrorCode::Unauthenticated);
    let stop = json!({ "type": "abort", "requestId": "r" }).to_string();
    assert_eq!(read(&stop), Ok(Incoming::Stop("r".into())));
    // Failures count by address.
    let elsewhere = Stage::new();
    elsewhere.tenant("elsewhere", Value::Null);
    let guessed = (0..42).map(|_| elsewhere.key("elsewhere", json!({})).1);
    let codes: Vec<_> = guessed.skip(10).map(|key| code(&frame(Some(&key), json!([])))).collect();
    assert_eq!(codes[29], ErrorCode::Unauthenticated);
    assert_eq!(codes[30], ErrorCode::RateLimited);
}
