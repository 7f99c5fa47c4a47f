//! Limits of a tenant over time, and its usage.

use crate::support::{Chat, Client, Response, Server};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(json!({"TENANT_CONCURRENT_TURNS": "50"})))
}

/// Creates a tenant with limits, and returns a client with its key.
#[track_caller]
fn tenant(id: &str, limits: &Value) -> Client {
    let admin = server().admin();
    admin.post("/v1/admin/tenants", json!({"id": id, "limits": limits})).expect(201);
    let key = admin.post(&format!("/v1/admin/tenants/{id}/keys"), json!({})).expect(201);
    server().anonymous().with_key(key["key"].as_str().unwrap())
}

/// Reads the usage until `is_complete`, because reports arrive after the reply.
#[track_caller]
fn usage(client: &Client, query: &str, is_complete: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let found = client.get(&format!("/v1/usage?{query}")).expect(200);
        if is_complete(&found["total"]) {
            return found;
        }
        assert!(Instant::now() < deadline, "{found}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_second_session_runs_after_the_first() {
    let client = tenant("single", &json!({"concurrent_turns": 1}));
    let (first, second) = (Chat::new(client.clone(), "one"), Chat::new(client, "two"));
    first.begin(json!({"content": "/slow 100 60"}));
    first.begin(json!({"content": "/say queued"}));
    let refused = second.post("/messages", json!({"content": "/say hi"}));
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    let problem = refused.json();
    assert_eq!((&problem["code"], &problem["limit"]), (&json!("rate_limited"), &json!("concurrent_turns")));
    assert_eq!(second.client.get(&second.path("")).status, 404, "nothing is stored");
    first.until_idle();
    for turn in 0..4 {
        let chat = if turn % 2 == 0 { &second } else { &first };
        assert_eq!(chat.say("/say done")["reply"]["text"], "done");
    }
}

#[test]
fn an_answer_waits_for_a_slot_like_a_message() {
    let client = tenant("patient", &json!({"concurrent_turns": 1}));
    let (asking, running) = (Chat::new(client.clone(), "asking"), Chat::new(client, "running"));
    let waiting = asking.say("/tool ask_user {\"question\": \"Which?\"}");
    let call = waiting["pending"][0]["call_id"].as_str().unwrap().to_owned();
    running.begin(json!({"content": "/slow 100 40"}));
    let answer = || asking.post(&format!("/answers/{call}"), json!({"answer": "blue"}));
    let refused = answer();
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    let problem = refused.json();
    assert_eq!((&problem["code"], &problem["limit"]), (&json!("rate_limited"), &json!("concurrent_turns")));
    let view = asking.client.get(&asking.path("")).expect(200);
    assert_eq!((&view["status"], &view["pending"][0]["call_id"]), (&json!("waiting"), &json!(call)));
    running.until_idle();
    assert_eq!(answer().expect(200)["status"], "completed");
}

#[test]
fn turns_of_a_day_are_limited_and_counted() {
    let client = tenant("daily", &json!({"turns_per_day": 2}));
    let chat = Chat::new(client.clone(), "d");
    chat.ask(json!({"content": "/tool echo {\"text\": \"hi\"}", "user": "ann"}));
    Chat::new(client.clone(), "e").ask(json!({"content": "/say hi", "user": "bob"}));
    let refused = chat.post("/messages", json!({"content": "/say hi", "user": "ann"}));
    assert_eq!(refused.status, 429, "{}", refused.text());
    let problem = refused.json();
    assert_eq!((&problem["code"], &problem["limit"]), (&json!("quota_exceeded"), &json!("turns_per_day")));
    assert!(problem["resets_at"].as_str().unwrap().ends_with("T00:00:00.000Z"));

    let by_user = usage(&client, "group=user", |total| total["turns"] == 2);
    let turns = |user: usize| (&by_user["data"][user]["user"], &by_user["data"][user]["turns"]);
    assert_eq!([turns(0), turns(1)], [(&json!("ann"), &json!(1)), (&json!("bob"), &json!(1))]);
    let path = "/v1/admin/tenants/daily/usage";
    for group in ["day", "agent", "model", "user"] {
        let found = server().admin().get(&format!("{path}?group={group}")).expect(200);
        let sum = |name: &str| -> u64 {
            found["data"].as_array().unwrap().iter().map(|row| row[name].as_u64().unwrap()).sum()
        };
        for name in ["turns", "steps", "tool_calls", "input_tokens", "output_tokens", "total_tokens"] {
            assert_eq!(found["total"][name], sum(name), "{group} {name}");
        }
        assert_eq!(found["total"], by_user["total"]);
    }
    let logged: u64 = ["d", "e"]
        .iter()
        .flat_map(|id| Chat::new(client.clone(), id).log())
        .filter(|record| record["type"] == "turn.completed")
        .map(|record| record["usage"]["total_tokens"].as_u64().unwrap())
        .sum();
    assert_eq!(by_user["total"]["total_tokens"], logged);
    assert_eq!(server().admin().get(&format!("{path}?group=week")).status, 422);
}

#[test]
fn a_flood_of_new_sessions_is_refused_without_starting_them() {
    let client = tenant("flood", &json!({"concurrent_turns": 1}));
    let running = Chat::new(client.clone(), "running");
    running.begin(json!({"content": "/slow 100 100"}));
    let waits: Vec<u64> = thread::scope(|scope| {
        let send = |number: usize| {
            let chat = Chat::new(client.clone(), &format!("flood-{number}"));
            scope.spawn(move || chat.post("/messages", json!({"content": "/say hi"})))
        };
        let sent: Vec<_> = (0..40).map(send).collect();
        let refused = sent.into_iter().map(|response| response.join().unwrap());
        let wait = |response: Response| {
            assert_eq!((response.status, &response.json()["limit"]), (429, &json!("concurrent_turns")));
            assert!(response.header("x-edge-harness-reached").is_none());
            response.header("retry-after").unwrap().parse().unwrap()
        };
        refused.map(wait).collect()
    });
    // A session says five seconds; the gateway spreads the retries of those that it refuses itself.
    assert!(waits.iter().filter(|wait| **wait > 5).count() >= 20, "{waits:?}");
    running.begin(json!({"content": "/say queued"}));
    running.until_idle();
    assert_eq!(Chat::new(client, "flood-0").say("/say hi")["reply"]["text"], "hi");
}

#[test]
fn requests_of_a_minute_are_limited() {
    let client = tenant("hasty", &json!({"requests_per_min": 3}));
    // A new minute may begin in between.
    let refused = (0..8).map(|_| client.get("/v1/usage")).find(|response| response.status == 429);
    let refused = refused.expect("a refusal");
    assert_eq!(refused.json()["code"], "rate_limited");
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds));
}

#[test]
fn requests_that_arrive_together_get_all_requests_of_the_minute() {
    let client = tenant("together", &json!({"requests_per_min": 60}));
    thread::scope(|scope| {
        let sent: Vec<_> = (0..60).map(|_| scope.spawn(|| client.get("/v1/models").status)).collect();
        assert!(sent.into_iter().all(|status| status.join().unwrap() == 200));
    });
}

#[test]
fn usage_survives_a_deleted_session_and_ends_with_its_tenant() {
    let client = tenant("leaving", &json!({}));
    let chat = Chat::new(client.clone(), "gone");
    chat.say("/say hi");
    client.delete(&chat.path("")).expect(204);
    assert_eq!(client.get("/v1/usage").expect(200)["total"]["turns"], 1);
}

#[test]
fn a_stream_of_changes_whose_client_has_left_does_not_count() {
    let client = tenant("watched", &json!({}));
    let client =
        client.with_header("content-type", "application/json").with_header("accept", "text/event-stream");
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"notifications": {"toolsListChanged": true}, "_meta": meta});
    let listen =
        json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}).to_string();
    let client = client
        .with_header("mcp-protocol-version", "2026-07-28")
        .with_header("mcp-method", "subscriptions/listen");
    // Reads the head of the response, and leaves.
    let visit = || client.open("POST", "/mcp", listen.as_bytes()).status;
    let (deadline, mut visits) = (Instant::now() + Duration::from_secs(60), Vec::new());
    while visits.iter().filter(|status| **status == 200).count() < 21 {
        let status = visit();
        assert!(matches!(status, 200 | 429), "{status}");
        assert!(Instant::now() < deadline, "{visits:?}");
        visits.push(status);
        if status == 429 {
            thread::sleep(Duration::from_millis(500));
        }
    }
}
