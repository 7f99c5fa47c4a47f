//! The event stream: every record and every byte of text exactly once, wherever a reader reconnects.

use crate::support::{
    Client, Event, Gate, ModelServer, Script, Server, Sse,
    log::{
        Random, Transcript, check, lines, messages, of_type, post_async, records, text, transcript, wait_idle,
    },
    shared,
};
use serde_json::{Value, json};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

fn start(model: &ModelServer) -> Server {
    // Without work after the turns, whose records would follow the end of a turn.
    Server::start(json!({
        "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": model.base_url(), "DEFAULT_MODEL": "openai/m",
        "MEMORY_FLUSH": "never",
    }))
}

/// Creates a session on the shared server, with the model demo/echo.
fn session(name: &str) -> (Client, String) {
    let client = shared().client();
    client.post("/v1/sessions", json!({ "id": name })).expect(201);
    (client, name.to_owned())
}

fn events_at(client: &Client, session: &str, last: Option<&str>, query: &str) -> Sse {
    let client = last.map_or_else(|| client.clone(), |id| client.with_header("last-event-id", id));
    client.stream(&format!("/v1/sessions/{session}/events{query}"))
}

fn say(client: &Client, session: &str, content: &str) -> Sse {
    client.post_stream(&format!("/v1/sessions/{session}/messages"), json!({ "content": content }))
}

/// Parses a stream byte by byte. Returns each event once it is complete.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn push(&mut self, bytes: &[u8]) -> Option<Event> {
        self.0.extend_from_slice(bytes);
        if !self.0.ends_with(b"\n\n") {
            return None;
        }
        let block = String::from_utf8(std::mem::take(&mut self.0)).expect("an event ends between characters");
        assert!(!block.contains('\r'), "LF only: {block:?}");
        let field = |name: &str| {
            block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned))
        };
        Some(Event { id: field("id"), event: field("event")?, data: field("data")? })
    }
}

const CLIENTS: usize = 50;
const MARKS: [&str; 2] = ["¹", "²"];

/// Reads until the session is idle, with connections cut at random bytes. Sends the position of each mark in
/// the text to `seen`.
fn read_with_cuts(client: &Client, random: &mut Random, seen: &mpsc::Sender<usize>) -> (Transcript, usize) {
    let (mut transcript, mut cuts, mut reported) = (Transcript::default(), 0, 0);
    loop {
        let mut stream = events_at(client, "s", transcript.last_id.as_deref(), "?until=idle");
        let mut bytes = Bytes::default();
        // Missed text arrives in one piece, so some connections must live long enough for it.
        let longest = 1 << (5 + random.below(11));
        for _ in 0..1 + random.below(longest) {
            let Ok(byte) = stream.read_bytes(1) else {
                assert!(bytes.0.is_empty(), "the stream ended inside an event");
                return (transcript, cuts);
            };
            let Some(event) = bytes.push(&byte) else { continue };
            transcript.take(&event);
            if reported < MARKS.len() && transcript.texts.values().any(|text| text.contains(MARKS[reported]))
            {
                seen.send(reported).unwrap();
                reported += 1;
            }
        }
        cuts += 1;
    }
}

#[test]
fn readers_that_are_cut_off_anywhere_see_everything_once() {
    let (model, mut random) = (ModelServer::start(), Random::new());
    let gates = [Gate::new(), Gate::new()];
    let server = start(&model);
    let client = server.client();
    client.post("/v1/sessions", json!({"id": "s"})).expect(201);
    let words = |script: Script, from: u32| {
        (from..from + 40).fold(script, |script, n| script.say(&format!("Wörter {n} 🌍🏳️‍🌈 ünd “mehr” ")))
    };
    let first = words(Script::new().think("hm, möglich"), 0).say(MARKS[0]).hold(&gates[0]);
    let calls = [("c1", "echo", json!({"text": "Größe 🦀"})), ("c2", "sleep", json!({"ms": 30}))];
    model.script("m", words(first, 40).tools(calls));
    model.script("m", words(words(Script::new(), 100).say(MARKS[1]).hold(&gates[1]), 140));
    model.script("m", words(Script::new(), 200));

    let mut reference = events_at(&client, "s", None, "");
    let turn = post_async(&client, "s", "los 🚀");
    post_async(&client, "s", "weiter ❤️");
    let (sender, seen) = mpsc::channel();
    let cuts = AtomicUsize::new(0);
    let transcripts = Mutex::new(Vec::new());
    let whole = thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let (mut random, sender) = (Random::seeded(random.next()), sender.clone());
            let (client, cuts, transcripts) = (&client, &cuts, &transcripts);
            scope.spawn(move || {
                let (transcript, own) = read_with_cuts(client, &mut random, &sender);
                cuts.fetch_add(own, Ordering::Relaxed);
                transcripts.lock().unwrap().push(transcript);
            });
        }
        for (mark, gate) in gates.iter().enumerate() {
            // Every reader is within the streamed text when it continues.
            for _ in 0..CLIENTS {
                assert_eq!(seen.recv_timeout(crate::support::PATIENCE), Ok(mark));
            }
            gate.open();
        }
        let mut ends = 0;
        let mut events = Vec::new();
        while ends < 2 {
            events.extend(reference.until_type("turn.completed"));
            ends += 1;
        }
        events
    });
    let reference = transcript(&whole);
    reference.check();
    assert_eq!(reference.texts.len(), 3);
    assert!(reference.texts.values().all(|text| text.chars().count() > 500));
    for transcript in transcripts.into_inner().unwrap() {
        assert_eq!(transcript, reference);
    }
    let cuts = cuts.into_inner();
    assert!(cuts > CLIENTS, "only {cuts} cuts: the test no longer tests anything");

    // Later, reconnect at each position of the uninterrupted reader.
    let stored = records(&client, "s");
    assert_eq!(stored, reference.records);
    let mut so_far = Transcript::default();
    for event in &whole {
        so_far.take(event);
        let mut again = so_far.clone();
        let rest: Vec<Event> = events_at(&client, "s", again.last_id.as_deref(), "?until=idle").collect();
        rest.iter().for_each(|event| again.take(event));
        assert_eq!(again, reference);
    }
    // A stream of one turn contains that turn only.
    assert!(of_type(&stored, "turn.started").iter().any(|record| record["turn"] == turn.as_str()));
}

#[test]
fn two_watchers_see_the_same_and_outlive_the_turn() {
    let (client, session) = session("two-watchers");
    let mut watchers = [(); 2].map(|()| events_at(&client, &session, None, ""));
    let mut turns = Vec::new();
    for content in ["/say one ü\n/then /tool echo {\"text\": \"x\"}", "/slow 1 5"] {
        let mut posted = say(&client, &session, content);
        let events: Vec<Event> = posted.by_ref().collect();
        assert_eq!((events[0].event.as_str(), posted.retry), ("turn.started", Some(2000)));
        assert_eq!(events.last().unwrap().event, "turn.completed");
        assert!(!posted.cut);
        turns.push(events);
    }
    let seen = watchers.each_mut().map(|watcher| {
        let mut events = watcher.until_type("turn.completed");
        events.extend(watcher.until_type("turn.completed"));
        events
    });
    assert_eq!(seen[0], seen[1]);
    assert_eq!(watchers[0].retry, Some(2000));
    assert_eq!(seen[0][0].event, "session.created");
    assert_eq!(seen[0][1..], turns.concat());
    transcript(&seen[0]).check();
}

#[test]
fn until_idle_ends_with_the_last_turn_of_the_queue() {
    let (client, session) = session("until-idle");
    assert_eq!(wait_idle(&client, &session).len(), 1);
    for content in ["/slow 20 5", "/say two", "/say three"] {
        post_async(&client, &session, content);
    }
    let events = wait_idle(&client, &session);
    assert_eq!(events.iter().filter(|event| event.event == "turn.completed").count(), 3);
    assert_eq!(events.last().unwrap().event, "turn.completed");
    transcript(&events).check();
    let refused = client.get(&format!("/v1/sessions/{session}/events?until=noon")).expect(422);
    assert_eq!(refused["errors"][0]["pointer"], "?until");
}

#[test]
fn stored_records_are_paged_as_lines() {
    let (client, session) = session("lines");
    for content in ["/say ä one", "/say ö two"] {
        say(&client, &session, content).for_each(drop);
    }
    let all = records(&client, &session);
    check(&all);
    assert_eq!(all.len(), 9);
    let path = format!("/v1/sessions/{session}/events");
    let mut paged = Vec::new();
    while paged.len() < all.len() {
        let page = lines(&client, &format!("{path}?after={}&limit=2", paged.len()));
        assert!(matches!(page.len(), 1 | 2));
        paged.extend(page);
    }
    assert_eq!(paged, all);
    assert_eq!(lines(&client, &format!("{path}?after=9")), Vec::<Value>::new());
    // During a message, its record is still missing.
    assert_eq!(all[2]["type"], "message.completed");
    assert_eq!(lines(&client, &format!("{path}?after=3.2")), all[2..]);
    for limit in ["0", "-1", "x"] {
        let ndjson = client.with_header("accept", "application/x-ndjson");
        assert_eq!(
            ndjson.get(&format!("{path}?limit={limit}")).expect(422)["errors"][0]["pointer"],
            "?limit"
        );
    }
}

#[test]
fn unknown_event_ids_start_from_the_beginning() {
    let (client, session) = session("foreign-ids");
    say(&client, &session, "/say äöü").for_each(drop);
    let whole = wait_idle(&client, &session);
    let deltas: Vec<_> = whole.iter().filter_map(|event| event.id.clone()).collect();
    assert_eq!(deltas, ["1", "2", "3.6", "3", "4", "5"]);
    // Record 3 holds six bytes: 3.3 is inside a character, 3.7 beyond the end.
    for id in ["6", "999", "3.3", "3.7", "6.1", "x", "-1", "1.x", "", "3.", "1e3", "99999999999999999999"] {
        let again: Vec<Event> = events_at(&client, &session, Some(id), "?until=idle").collect();
        assert_eq!(again, whole, "after Last-Event-ID: {id}");
    }
    for after in ["x", "-1", "1.x", "3.", "1e3"] {
        let refused = client.get(&format!("/v1/sessions/{session}/events?after={after}")).expect(422);
        assert_eq!(refused["errors"][0]["pointer"], "?after");
    }
    // The header takes precedence over the query, which is older in a reconnecting browser.
    let both: Vec<Event> = events_at(&client, &session, Some("3"), "?until=idle&after=1").collect();
    assert_eq!(both, whole[4..]);
}

#[test]
fn records_during_a_text_are_numbered_after_it() {
    let (model, gate) = (ModelServer::start(), Gate::new());
    let server = start(&model);
    let client = server.client();
    model.script("m", Script::text(["Grüße, "]).hold(&gate).say("Welt"));
    model.script("m", Script::text(["zwei"]));
    let mut stream = say(&client, "s", "eins");
    let before = stream.until_type("message.delta");
    let second = post_async(&client, "s", "zwei?");
    let patched = client.patch("/v1/sessions/s", json!({"title": "neu", "mode": "plan"})).expect(200);
    assert_eq!((&patched["title"], &patched["queue"][0]["turn"]), (&json!("neu"), &json!(second)));
    // A reader that connects now sees no deferred records and misses no text.
    let mut late = events_at(&client, "s", None, "?until=idle");
    let mut seen = late.until_type("message.delta");
    assert_eq!(seen.last().unwrap().id, before.last().unwrap().id);
    gate.open();
    seen.extend(late);
    let transcript = transcript(&seen);
    transcript.check();
    assert_eq!(transcript.records, records(&client, "s"));
    let order: Vec<_> = transcript.records[2..10].iter().map(|r| r["type"].as_str().unwrap()).collect();
    let expected = [
        "message.completed",
        "usage.updated",
        "turn.completed",
        "turn.queued",
        "followup.queued",
        "session.updated",
        "mode.changed",
        "turn.started",
    ];
    assert_eq!(order, expected);
    // The first turn's own stream contains none of them.
    let rest: Vec<_> = stream.map(|event| event.event).collect();
    assert_eq!(rest, ["message.delta", "message.completed", "usage.updated", "turn.completed"]);
}

#[test]
fn an_aborted_text_is_kept_as_far_as_it_was_streamed() {
    let (model, gate) = (ModelServer::start(), Gate::new());
    let server = start(&model);
    let client = server.client();
    model.script("m", Script::text(["Ein halber ", "Satz 🌓 und "]).hold(&gate).say("nie mehr"));
    let mut stream = say(&client, "s", "sprich");
    let mut events = stream.until(|event| event.data.contains("und "));
    assert_eq!(client.post("/v1/sessions/s/abort", json!({})).expect(200)["aborted"], true);
    model.wait_for_abort(0);
    events.extend(stream.by_ref());
    assert_eq!(events.last().unwrap().event, "turn.canceled");
    let all = wait_idle(&client, "s");
    let transcript = transcript(&all);
    transcript.check();
    let streamed: String = events
        .iter()
        .filter(|e| e.event == "message.delta")
        .map(|e| e.json()["delta"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(streamed, "Ein halber Satz 🌓 und ");
    let last = messages(&client, "s").pop().unwrap();
    assert_eq!((text(&last), &last["interrupted"]), (streamed, &json!(true)));
    assert_eq!(client.post("/v1/sessions/s/abort", json!({})).expect(200)["aborted"], false);
}

#[test]
fn a_disconnecting_client_does_not_stop_the_turn() {
    let (model, gate) = (ModelServer::start(), Gate::new());
    let server = start(&model);
    let client = server.client();
    model.script("m", Script::text(["before "]).hold(&gate).tool("c1", "sleep", json!({"ms": 50})));
    model.script("m", Script::text(["after"]));
    let mut watcher = say(&client, "s", "go");
    watcher.until_type("message.delta");
    drop(watcher);
    gate.open();
    let events = wait_idle(&client, "s");
    assert_eq!(events.last().unwrap().json()["reply"]["text"], "after");
    transcript(&events).check();
}

#[test]
fn an_idle_stream_is_pinged() {
    let (client, session) = session("pings");
    let mut stream = events_at(&client, &session, Some("1"), "");
    let mut read = Vec::new();
    while !read.ends_with(b": ping\n\n") {
        read.extend(stream.read_bytes(1).unwrap());
    }
    assert_eq!(read, b"retry: 2000\n\n: ping\n\n");
}

#[test]
fn a_long_log_is_replayed_completely() {
    let (client, session) = session("long-log");
    let calls: String = (0..95).map(|n| format!("/tool echo {{\"text\": \"größe {n}\"}}\n")).collect();
    for _ in 0..11 {
        post_async(&client, &session, &calls);
    }
    wait_idle(&client, &session);
    let stored = records(&client, &session);
    assert!(stored.len() > 2_000, "only {} records", stored.len());
    let events = wait_idle(&client, &session);
    let replayed = transcript(&events);
    replayed.check();
    // Follow-ups may have added records in between.
    assert!(replayed.records.starts_with(&stored));
    let path = format!("/v1/sessions/{session}/events?after=1000&limit=300");
    assert_eq!(lines(&client, &path), stored[1000..1300]);
}

#[test]
fn a_large_log_is_replayed_completely_to_a_slow_reader() {
    let (client, session) = session("heavy-log");
    let heavy = "schwer ".repeat(140_000);
    for n in 0..7 {
        post_async(&client, &session, &format!("/say {n}\n{heavy}"));
    }
    wait_idle(&client, &session);
    let stored = records(&client, &session);
    check(&stored);
    assert_eq!(of_type(&stored, "turn.completed").len(), 7);
    assert!(transcript(&wait_idle(&client, &session)).records.starts_with(&stored));
}
