//! The inbox: what waits in all sessions of a caller, as a list and as a feed, and the claims of runners.

use crate::support::{
    Chat, Client, Event, Server, Sse,
    log::{Random, of_type, wait_idle},
    shared,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The external tools of the server: one may run twice, the other may not.
const TOOLS: &str = r#"[{"name": "look_up", "description": "Looks up.", "effect": "read_only", "idempotent": true},
    {"name": "pay", "description": "Pays.", "effect": "read_only"}]"#;

fn asks(id: &str, user: &str) -> Value {
    json!({"id": id, "user": user, "model": "demo/echo"})
}

/// Creates a session of a user.
#[track_caller]
fn chat(client: &Client, id: &str, user: &str) -> Chat {
    client.post("/v1/sessions", asks(id, user)).expect(201);
    Chat::new(client.clone(), id)
}

/// Suspends a call of a session with a question.
#[track_caller]
fn ask(chat: &Chat, question: &str) -> String {
    let waits = chat.ask(json!({"content": format!("/tool ask_user {{\"question\": \"{question}\"}}")}));
    waits["pending"][0]["call_id"].as_str().expect("a call that waits").to_owned()
}

/// Waits until the list of a query fits, and returns it.
#[track_caller]
fn list_until(client: &Client, query: &str, fits: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let page = client.get(&format!("/v1/pending{query}")).expect(200);
        let data = page["data"].as_array().expect("a page").clone();
        if fits(&data) {
            return data;
        }
        assert!(Instant::now() < deadline, "{data:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn sessions(calls: &[Value]) -> Vec<&str> {
    calls.iter().filter_map(|call| call["session"].as_str()).collect()
}

/// Creates a tenant, and a client with these scopes.
fn tenant(server: &Server, id: &str, scopes: Value) -> Client {
    server.admin().post("/v1/admin/tenants", json!({"id": id})).expect(201);
    let made =
        server.admin().post(&format!("/v1/admin/tenants/{id}/keys"), json!({"scopes": scopes})).expect(201);
    server.anonymous().with_key(made["key"].as_str().expect("a key"))
}

#[test]
fn each_caller_sees_what_waits_for_it() {
    let server = shared();
    let acme = tenant(server, "inbox-a", json!(["chat", "read"]));
    let other = tenant(server, "inbox-b", json!(["chat", "read", "approve", "admin"]));
    let (ann, ben) = (chat(&acme, "of-ann", "ann"), chat(&acme, "of-ben", "ben"));
    let call = ask(&ann, "Which?");
    ask(&ben, "Who?");
    let all = list_until(&acme, "", |calls| calls.len() == 2);
    assert_eq!(sessions(&all), ["of-ann", "of-ben"]);
    assert_eq!(
        (&all[0]["call_id"], &all[0]["kind"], &all[0]["user"], &all[0]["payload"]["question"]),
        (&json!(call), &json!("question"), &json!("ann"), &json!("Which?"))
    );
    let of = |query: &str| list_until(&acme, query, |_| true).len();
    assert_eq!((of("?user=ann"), of("?user=cid"), of("?session=of-ben"), of("?kind=approval")), (1, 0, 1, 0));
    assert_eq!(acme.get("/v1/pending?kind=subagent").expect(422)["errors"][0]["pointer"], "?kind");
    assert!(list_until(&other, "", |_| true).is_empty(), "of another tenant");
    let page = acme.get("/v1/pending?limit=1").expect(200);
    let next = page["next_cursor"].as_str().expect("a cursor");
    assert_eq!(sessions(&list_until(&acme, &format!("?limit=1&cursor={next}"), |_| true)), ["of-ben"]);

    ann.post(&format!("/answers/{call}"), json!({"answer": "This"})).expect(200);
    list_until(&acme, "", |calls| sessions(calls) == ["of-ben"]);
    acme.delete(&ben.path("")).expect(204);
    assert!(list_until(&acme, "", |_| true).is_empty(), "an erased session has left");
}

/// Returns the next event that is not a reset: its id, name, and session.
#[track_caller]
fn next(feed: &mut Sse) -> (String, String, String) {
    let Event { id, event, data } =
        feed.until(|event| event.event != "pending.reset").pop().expect("an event");
    let data: Value = serde_json::from_str(&data).expect("JSON");
    (id.expect("an id"), event, data["session"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_feed_continues_where_it_was_left() {
    let client = tenant(shared(), "inbox-feed", json!(["chat", "read"]));
    let one = chat(&client, "one", "ann");
    let call = ask(&one, "Which?");
    list_until(&client, "", |calls| calls.len() == 1);
    let mut feed = client.stream("/v1/pending/events?user=ann");
    assert_eq!(feed.next().expect("an event").event, "pending.reset");
    let (first, name, session) = next(&mut feed);
    assert_eq!((name.as_str(), session.as_str()), ("pending.added", "one"));
    // Live.
    let two = chat(&client, "two", "ann");
    ask(&two, "Who?");
    let (second, name, session) = next(&mut feed);
    assert_eq!((name.as_str(), session.as_str()), ("pending.added", "two"));
    assert!(first.parse::<u64>().unwrap() < second.parse().unwrap());
    drop(feed);
    // Of another user: not in this feed.
    ask(&chat(&client, "three", "ben"), "Where?");
    one.post(&format!("/answers/{call}"), json!({"answer": "This"})).expect(200);
    list_until(&client, "?user=ann", |calls| calls.len() == 1);
    let mut feed = client.with_header("last-event-id", &second).stream("/v1/pending/events?user=ann");
    let (_, name, session) = next(&mut feed);
    assert_eq!((name.as_str(), session.as_str()), ("pending.removed", "one"));
    // An unknown id begins again.
    let mut feed = client.with_header("last-event-id", "999999").stream("/v1/pending/events?user=ann");
    assert_eq!(feed.next().expect("an event").event, "pending.reset");
    assert_eq!(next(&mut feed).2, "two");
}

#[test]
fn across_kills_the_inbox_has_what_waits() {
    let mut server = Server::start(json!({"MEMORY_FLUSH": "never"}));
    let mut random = Random::new();
    for round in 0..8 {
        let id = format!("k{round}");
        let own = chat(&server.client(), &id, "ann");
        // The server dies while the session suspends the call, or notifies the inbox.
        own.begin(json!({"content": "/tool ask_user {\"question\": \"Which?\"}"}));
        std::thread::sleep(Duration::from_millis(random.below(60)));
        server.restart();
        let client = server.client();
        let listed = list_until(&client, "?user=ann", |calls| sessions(calls) == [id.as_str()]);
        let call = listed[0]["call_id"].as_str().expect("a call").to_owned();
        let begun = client.with_header("prefer", "respond-async");
        begun.post(&format!("/v1/sessions/{id}/answers/{call}"), json!({"answer": "This"})).expect(202);
        // And right after the answer.
        if random.below(2) == 0 {
            server.restart();
        }
        let client = server.client();
        wait_idle(&client, &id);
        list_until(&client, "?user=ann", <[Value]>::is_empty);
        assert_eq!(of_type(&Chat::new(client, &id).log(), "answer.given").len(), 1);
    }
}

#[test]
fn a_claimed_call_is_answered_by_its_runner_only() {
    let server = Server::start(json!({"EXTERNAL_TOOLS": TOOLS}));
    let client = server.client();
    let own = chat(&client, "claimed", "ann");
    own.ask(json!({"content": "/tool pay {}"}));
    let call = list_until(&client, "?kind=external", |calls| calls.len() == 1).remove(0);
    let call_id = call["call_id"].as_str().expect("a call").to_owned();
    let claim = |runner: &str| {
        client.post(&format!("/v1/pending/{call_id}/claim"), json!({"runner": runner, "lease_s": 60}))
    };
    let claimed = claim("one").expect(200);
    assert_eq!((&claimed["args"], &claimed["claim"]["runner"]), (&json!({}), &json!("one")));
    assert_eq!(claim("two").expect(409)["code"], "claimed");
    claim("one").expect(200);
    list_until(&client, "", |calls| calls[0]["claim"]["runner"] == "one");
    let answer = |body: Value| own.post(&format!("/answers/{call_id}"), body);
    assert_eq!(answer(json!({"answer": 1})).expect(409)["code"], "claimed");
    assert_eq!(answer(json!({"answer": 1, "runner": "two"})).expect(409)["code"], "claimed");
    assert_eq!(answer(json!({"answer": 1, "runner": "one"})).expect(200)["status"], "completed");
    answer(json!({"answer": 1, "runner": "one"})).expect(200);
    assert_eq!(answer(json!({"answer": 2, "runner": "one"})).expect(409)["code"], "already_decided");
    assert_eq!(of_type(&own.log(), "answer.given").len(), 1);
    list_until(&client, "", <[Value]>::is_empty);
    client.post(&format!("/v1/pending/{call_id}/claim"), json!({"runner": "one"})).expect(404);
    // A question waits for a person.
    let asked = ask(&own, "Which?");
    list_until(&client, "", |calls| calls.len() == 1);
    assert_eq!(
        client.post(&format!("/v1/pending/{asked}/claim"), json!({"runner": "one"})).expect(409)["code"],
        "not_waiting"
    );
}

#[test]
fn the_progress_of_a_claimed_call_is_streamed() {
    let server = Server::start(json!({"EXTERNAL_TOOLS": TOOLS}));
    let client = server.client();
    let own = chat(&client, "progress", "ann");
    let call =
        own.ask(json!({"content": "/tool pay {}"}))["pending"][0]["call_id"].as_str().unwrap().to_owned();
    let mut events = client.stream(&own.path("/events?after=0"));
    events.until(|event| event.event == "turn.waiting");
    let path = |what: &str| format!("/v1/pending/{call}/{what}?session=progress");
    let report = |runner: &str| client.post(&path("progress"), json!({"runner": runner, "output": "half\n"}));
    assert_eq!(report("one").expect(409)["code"], "not_waiting");
    client.post(&path("claim"), json!({"runner": "one"})).expect(200);
    assert_eq!(report("two").expect(409)["code"], "claimed");
    let long = json!({"runner": "one", "output": "x".repeat(20_000)});
    assert_eq!(client.post(&path("progress"), long).expect(422)["errors"][0]["pointer"], "/output");
    report("one").expect(204);
    client.post(&path("progress"), json!({"runner": "one", "progress": 1, "total": 2})).expect(204);
    let mut next = || {
        let event = events.until(|_| true).pop().expect("an event");
        assert_eq!((event.event.as_str(), event.id), ("tool.progress", None));
        serde_json::from_str::<Value>(&event.data).expect("JSON")
    };
    let (first, second) = (next(), next());
    assert_eq!(
        (&first["call_id"], &first["output"], &first["total"]),
        (&json!(call), &json!("half\n"), &Value::Null)
    );
    assert_eq!((&second["progress"], &second["total"]), (&json!(1.0), &json!(2.0)));
    own.post(&format!("/answers/{call}"), json!({"answer": 1, "runner": "one"})).expect(200);
    assert_eq!(report("one").expect(409)["code"], "not_waiting");
    assert_eq!(of_type(&own.log(), "tool.progress").len(), 0, "it is not stored");
}

#[test]
fn a_lease_that_ends_offers_the_call_again_if_it_may_run_twice() {
    let mut server = Server::start(json!({"EXTERNAL_TOOLS": TOOLS}));
    let (again, once) = (chat(&server.client(), "again", "ann"), chat(&server.client(), "once", "ann"));
    again.ask(json!({"content": "/tool look_up {}"}));
    once.ask(json!({"content": "/tool pay {}"}));
    for call in list_until(&server.client(), "", |calls| calls.len() == 2) {
        let (id, session) = (call["call_id"].as_str().unwrap(), call["session"].as_str().unwrap());
        let path = format!("/v1/pending/{id}/claim?session={session}");
        server.client().post(&path, json!({"runner": "one", "lease_s": 1})).expect(200);
    }
    // The runner dies, and so does the server.
    server.restart();
    let client = server.client();
    let left = list_until(&client, "", |calls| calls.len() == 1 && calls[0]["claim"].is_null());
    assert_eq!((&left[0]["session"], &left[0]["name"]), (&json!("again"), &json!("look_up")));
    wait_idle(&client, "once");
    let lost = Chat::new(client.clone(), "once");
    assert_eq!(of_type(&lost.log(), "tool.completed")[0]["outcome"], "unknown");
    let id = left[0]["call_id"].as_str().unwrap();
    client.post(&format!("/v1/pending/{id}/claim"), json!({"runner": "two", "lease_s": 60})).expect(200);
    let again = Chat::new(client, "again");
    again.post(&format!("/answers/{id}"), json!({"answer": 1, "runner": "one"})).expect(409);
    again.post(&format!("/answers/{id}"), json!({"answer": 1, "runner": "two"})).expect(200);
}
