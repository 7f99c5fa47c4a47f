//! `kill -9` at any point: the turn continues, and nothing is lost, duplicated, or invented.

use crate::support::{
    Client, Counting, DEV_API_KEY, Gate, ModelServer, Script, Server, http,
    log::{self, Random, check, check_messages, check_request, of_type, post_async, said_by_user, wait_idle},
};
use serde_json::{Value, json};
use std::{thread, time::Duration};

fn start(model: &ModelServer) -> Server {
    start_with(model, json!({}))
}

fn start_with(model: &ModelServer, more: Value) -> Server {
    let mut bindings = json!({"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": model.base_url(),
        "DEFAULT_MODEL": "openai/m", "MEMORY_FLUSH": "never"});
    for (name, value) in more.as_object().unwrap() {
        bindings[name] = value.clone();
    }
    Server::start(bindings)
}

/// Reads up to the next ping.
fn until_ping(stream: &mut crate::support::Sse) {
    let mut read = Vec::new();
    while !read.ends_with(b": ping\n\n") {
        read.extend(stream.read_bytes(1).unwrap());
    }
}

const MESSAGES: &str = "/v1/sessions/s/messages";

fn say(client: &Client, content: &str) -> crate::support::Sse {
    client.post_stream(MESSAGES, json!({ "content": content }))
}

/// Checks an idle session with these user messages.
#[track_caller]
fn check_session(client: &Client, session: &str, said: &[&str]) -> Vec<Value> {
    let records = log::records(client, session);
    check(&records);
    let messages = log::messages(client, session);
    check_messages(&messages);
    assert_eq!(said_by_user(&messages), said);
    assert_eq!(client.get(&format!("/v1/sessions/{session}")).expect(200)["status"], "idle");
    records
}

fn resumed(records: &[Value]) -> usize {
    of_type(records, "turn.resumed").len()
}

#[test]
fn killed_during_text_the_turn_streams_it_again() {
    let (model, gate) = (ModelServer::start(), Gate::new());
    let mut server = start(&model);
    model.script("m", Script::text(["Grüße, "]).hold(&gate));
    model.script("m", Script::text(["Guten ", "Tag"]));
    let mut stream = say(&server.client(), "hello");
    let torn = stream.until_type("message.delta").pop().unwrap();
    gate.reached();
    server.kill();
    assert_eq!(stream.count(), 0);

    server.restart();
    let client = server.client();
    // A reader that reconnects within the lost text learns that it is void.
    let back = client.with_header("last-event-id", torn.id.as_deref().unwrap());
    let events = wait_idle(&back, "s");
    assert_eq!(events[0].event, "turn.resumed");
    assert_eq!(events[0].json()["reason"], "restart");
    assert_eq!(events[0].id.as_deref(), torn.id.as_ref().unwrap().split('.').next());
    let records = check_session(&client, "s", &["hello"]);
    let spoken = of_type(&records, "message.completed");
    assert_eq!(spoken.iter().map(|r| log::text(&r["message"])).collect::<Vec<_>>(), ["Guten Tag"]);
    assert_eq!(records.last().unwrap()["reply"]["text"], "Guten Tag");
}

#[test]
fn killed_during_an_idempotent_call_it_runs_again() {
    let model = ModelServer::start();
    let mut server = start(&model);
    model.script("m", Script::new().tool("c1", "sleep", json!({"ms": 1_000})));
    model.script("m", Script::text(["done"]));
    say(&server.client(), "rest").until_type("tool.started");
    server.restart();
    let client = server.client();
    wait_idle(&client, "s");
    let records = check_session(&client, "s", &["rest"]);
    assert_eq!(of_type(&records, "tool.completed")[0]["result"], "slept 1000 ms");
    assert_eq!((resumed(&records), records.last().unwrap()["reply"]["text"].as_str()), (1, Some("done")));
}

#[test]
fn killed_during_a_call_with_an_effect_the_outcome_is_unknown_and_the_effect_happens_once() {
    let (model, counting) = (ModelServer::start(), Counting::start());
    let mut server = start(&model);
    let args = json!({"url": counting.url("/once"), "ms": 40_000});
    model.script("m", Script::new().tools([("c1", "counter", args), ("c2", "echo", json!({"text": "two"}))]));
    model.script("m", Script::text(["I shall check"]));
    let mut stream = say(&server.client(), "count");
    stream.until_type("tool.started");
    counting.wait_for("/once");
    server.restart();
    let client = server.client();
    wait_idle(&client, "s");
    let records = check_session(&client, "s", &["count"]);
    let outcomes: Vec<_> = of_type(&records, "tool.completed").iter().map(|r| r["outcome"].clone()).collect();
    assert_eq!(outcomes, ["unknown", "result"]);
    assert_eq!(counting.count("/once"), 1);
    let asked = model.wait_for(2).pop().unwrap().body;
    check_request(&asked);
    let shown =
        asked["messages"].as_array().unwrap().iter().find(|line| line["tool_call_id"] == "c1").unwrap();
    assert!(shown["content"].as_str().unwrap().contains("may or may not"), "{shown}");
    assert_eq!(records.last().unwrap()["type"], "turn.completed");
}

#[test]
fn killed_between_two_steps_the_finished_call_does_not_run_again() {
    let (model, gate, counting) = (ModelServer::start(), Gate::new(), Counting::start());
    let mut server = start(&model);
    model.script("m", Script::new().tool("c1", "counter", json!({"url": counting.url("/between")})));
    model.script("m", Script::new().hold(&gate));
    model.script("m", Script::text(["after"]));
    let mut stream = say(&server.client(), "step");
    stream.until_type("tool.completed");
    gate.reached();
    server.restart();
    let client = server.client();
    wait_idle(&client, "s");
    let records = check_session(&client, "s", &["step"]);
    assert_eq!(of_type(&records, "tool.completed")[0]["result"], "counted");
    assert_eq!((counting.count("/between"), resumed(&records)), (1, 1));
    // The interrupted step repeats the same request.
    let asked = model.wait_for(3);
    assert_eq!(asked[1].body, asked[2].body);
}

#[test]
fn killed_with_a_queue_every_message_gets_its_turn_in_order() {
    let (model, gate) = (ModelServer::start(), Gate::new());
    let mut server = start(&model);
    model.script("m", Script::text(["one"]).hold(&gate));
    for text in ["one again", "two", "three"] {
        model.script("m", Script::text([text]));
    }
    let client = server.client();
    say(&client, "1").until_type("message.delta");
    let turns = ["2", "3"].map(|text| post_async(&client, "s", text));
    // Records deferred until the end of the streamed text survive too.
    client.patch("/v1/sessions/s", json!({"title": "renamed"})).expect(200);
    server.restart();
    wait_idle(&client, "s");
    let records = check_session(&client, "s", &["1", "2", "3"]);
    let queued: Vec<_> = of_type(&records, "turn.queued").iter().map(|r| r["turn"].clone()).collect();
    assert_eq!(queued, turns);
    let ends = of_type(&records, "turn.completed");
    let replies: Vec<_> = ends.iter().map(|r| r["reply"]["text"].clone()).collect();
    assert_eq!(replies, ["one again", "two", "three"]);
    assert_eq!([&ends[1]["turn"], &ends[2]["turn"]], turns.each_ref());
    assert_eq!(of_type(&records, "session.updated")[0]["changed"]["title"], "renamed");
}

#[test]
fn killed_right_after_the_receipt_the_turn_still_happens() {
    let model = ModelServer::start();
    let mut server = start(&model);
    // The model may or may not have been called before the kill.
    model.choose(|_| Some(Script::text(["here"])));
    let client = server.client();
    let turn = post_async(&client, "s", "hello");
    server.restart();
    // Any request triggers the recovery; this one reads the turn itself.
    let path = format!("/v1/sessions/s/turns/{turn}");
    client.get(&path).expect(200);
    wait_idle(&client, "s");
    check_session(&client, "s", &["hello"]);
    assert_eq!(client.get(&path).expect(200)["reply"]["text"], "here");
}

#[test]
fn the_alarm_alone_recovers_a_turn() {
    let (model, gate) = (ModelServer::start(), Gate::new());
    let mut server = start(&model);
    model.script("m", Script::text(["half "]).hold(&gate));
    model.script("m", Script::text(["whole"]));
    say(&server.client(), "hello").until_type("message.delta");
    server.restart();
    let client = server.client();
    // Without any request to the session, the model is called again.
    model.wait_for(2);
    assert_eq!(client.get("/v1/sessions").expect(200)["data"][0]["id"], "s");
    wait_idle(&client, "s");
    assert_eq!(resumed(&check_session(&client, "s", &["hello"])), 1);
}

#[test]
fn a_later_wake_up_does_not_replace_the_alarm_of_a_turn() {
    let (model, gate) = (ModelServer::start(), Gate::new());
    let mut server = start(&model);
    model.script("m", Script::text(["first"]));
    model.script("m", Script::text(["half "]).hold(&gate));
    model.script("m", Script::text(["whole"]));
    let client = server.client();
    // A response stored under a key sets a wake-up for its expiry, a day later.
    let keyed = client.with_header("idempotency-key", "k1");
    keyed.post(MESSAGES, json!({"content": "one"})).expect(200);
    // The first alarm fires after 20 s; listeners keep the object in memory until the second ping.
    let listen = || client.stream("/v1/sessions/s/events?after=4");
    let mut first = listen();
    until_ping(&mut first);
    until_ping(&mut listen());
    say(&client, "two").until_type("message.delta");
    server.restart();
    model.wait_for(3);
    wait_idle(&client, "s");
    check_session(&client, "s", &["one", "two"]);
}

#[test]
fn a_long_turn_continues_after_its_start_has_left_the_window() {
    let (model, gate) = (ModelServer::start(), Gate::new());
    let mut server = start_with(&model, json!({"CONTEXT_STRATEGY": "none", "CONTEXT_MESSAGES": "4"}));
    for step in 0..8 {
        let text = format!("step {step}");
        model.script("m", Script::new().tool(&format!("c{step}"), "echo", json!({ "text": text })));
    }
    model.script("m", Script::text(["nearly "]).hold(&gate));
    model.script("m", Script::text(["there"]));
    say(&server.client(), "go far").until_type("message.delta");
    server.restart();
    let client = server.client();
    wait_idle(&client, "s");
    let records = check_session(&client, "s", &["go far"]);
    assert_eq!(records.last().unwrap()["reply"]["text"], "there");
    let asked = model.wait_for(10);
    check_request(&asked[9].body);
    assert_eq!(asked[8].body, asked[9].body, "the prompt does not depend on the restart");
}

/// Generates the user messages of a random session, as directives of demo/echo.
fn random_messages(random: &mut Random, counting: &Counting, round: u32) -> Vec<String> {
    let count = if random.below(3) == 0 { 3 } else { 1 };
    let mut calls = 0;
    let mut line = |random: &mut Random| {
        calls += 1;
        match random.below(5) {
            0 => format!("/say Größe {calls} 🌍 of {round}"),
            1 => format!("/slow {} {}", random.below(25), 1 + random.below(20)),
            2 => format!("/tool echo {{\"text\": \"e{calls}\"}}"),
            3 => format!("/tool sleep {{\"ms\": {}, \"key\": \"{calls}\"}}", random.below(150)),
            _ => {
                let url = counting.url(&format!("/{round}/{calls}"));
                format!("/tool counter {{\"url\": \"{url}\", \"ms\": {}}}", random.below(150))
            }
        }
    };
    let message = |number| {
        let mut text = format!("message {number} of round {round}");
        for step in 0..1 + random.below(4) {
            text += if step == 0 { "\n" } else { "\n/then " };
            let lines: Vec<String> = (0..1 + random.below(3)).map(|_| line(random)).collect();
            text += &lines.join("\n");
        }
        text
    };
    (0..count).map(message).collect()
}

/// Runs a session until some random point. Returns whether it is unknown if the first message was accepted.
fn up_to_a_random_point(server: &Server, random: &mut Random, session: &str, said: &[String]) -> bool {
    let (client, path) = (server.client(), format!("/v1/sessions/{session}/messages"));
    let post_all = |texts: &[String]| texts.iter().for_each(|text| drop(post_async(&client, session, text)));
    let kind = random.below(4);
    eprintln!("{session}, kind {kind}: {said:?}");
    match kind {
        // After a number of events of the first message's stream, with the other messages queued.
        0 => {
            let mut stream = client.post_stream(&path, json!({ "content": said[0] }));
            post_all(&said[1..]);
            let events = random.below(25);
            stream.by_ref().take(events.try_into().unwrap()).for_each(drop);
        }
        // After a number of bytes of the session's stream, possibly in a later turn.
        1 => {
            post_all(said);
            let mut stream = client.stream(&format!("/v1/sessions/{session}/events?until=idle"));
            let _ = stream.read_bytes(usize::try_from(random.below(6_000)).unwrap());
        }
        // Some time after the receipt.
        2 => {
            post_all(said);
            thread::sleep(Duration::from_millis(random.below(400)));
        }
        // While the message itself is being sent.
        _ => {
            post_all(&said[1..]);
            let headers = [
                ("authorization", format!("Bearer {DEV_API_KEY}")),
                ("content-type", "application/json".into()),
            ];
            let headers = headers.map(|(name, value)| (name.to_owned(), value));
            let (address, body) = (server.address(), json!({ "content": said[0] }).to_string());
            thread::spawn(move || drop(http::send(address, "POST", &path, &headers, body.as_bytes())));
            thread::sleep(Duration::from_micros(random.below(15_000)));
        }
    }
    kind == 3
}

/// Checks an idle random session. Returns the number of its resumes.
fn check_random_session(
    client: &Client,
    session: &str,
    said: &[String],
    doubtful: bool,
    counting: &Counting,
) -> usize {
    let mut expected: Vec<&str> = said.iter().map(String::as_str).collect();
    if doubtful {
        // It was accepted last or never, but not in part.
        expected.rotate_left(1);
        if said_by_user(&log::messages(client, session)).len() < expected.len() {
            expected.pop();
        }
    }
    let records = check_session(client, session, &expected);
    let ends: Vec<_> = records.iter().filter(|r| !r["stop_reason"].is_null()).collect();
    assert_eq!(ends.len(), expected.len());
    assert!(ends.iter().all(|end| end["type"] == "turn.completed"), "{ends:#?}");
    for started in of_type(&records, "tool.started") {
        let completed = of_type(&records, "tool.completed");
        let same = |r: &&&Value| r["call_id"] == started["call_id"] && r["turn"] == started["turn"];
        let outcome = completed.iter().find(same).unwrap()["outcome"].as_str().unwrap();
        let Some(url) = started["args"]["url"].as_str() else {
            assert_eq!(outcome, "result", "{started}");
            continue;
        };
        let count = counting.count(&url[counting.url("").len()..]);
        assert!(matches!((outcome, count), ("result", 1) | ("unknown", 0 | 1)), "{outcome}, counted {count}");
    }
    resumed(&records)
}

#[test]
fn killed_at_random_points() {
    // Two sessions die at once, each at its own point.
    const ROUNDS: u32 = 50;
    let (model, counting, mut random) = (ModelServer::start(), Counting::start(), Random::new());
    let mut server = start(&model);
    let mut resumes = 0;
    for round in 0..ROUNDS {
        let sessions = [2 * round, 2 * round + 1].map(|number| {
            let session = format!("s{number}");
            let create = json!({"id": session, "model": "demo/echo"});
            server.client().post("/v1/sessions", create).expect(201);
            let said = random_messages(&mut random, &counting, number);
            let doubtful = up_to_a_random_point(&server, &mut random, &session, &said);
            (session, said, doubtful)
        });
        server.restart();
        let client = server.client();
        for (session, said, doubtful) in sessions {
            wait_idle(&client, &session);
            resumes += check_random_session(&client, &session, &said, doubtful, &counting);
            // The next prompt contains every call with its result.
            let before = model.received().len();
            client.patch(&format!("/v1/sessions/{session}"), json!({"model": "openai/m"})).expect(200);
            model.script("m", Script::text(["all well"]));
            let path = format!("/v1/sessions/{session}/messages");
            let answer = client.post(&path, json!({"content": "well?"})).expect(200);
            assert_eq!(answer["reply"]["text"], "all well");
            check_request(&model.received()[before].body);
        }
    }
    assert!(resumes > 5, "only {resumes} kills hit a running turn: the test no longer tests anything");
    eprintln!("{resumes} turns were resumed in {ROUNDS} rounds");
}
