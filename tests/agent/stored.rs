//! Sessions that other versions have stored.
//!
//! `stored.txt` holds records and documents that this and earlier versions wrote, one on each line. `stored/*.txt` hold
//! whole sessions in the middle of a turn: their log, and their documents with their keys.

use crate::http::{call as request, read, respond, respond_beside, set_header, stream};
use crate::scripts::{ruling, step_of};
use crate::stage::{Stage, ms};
use edge_harness::agent::host::suspensions::CallAnswer;
use edge_harness::platform::in_memory::{
    MemorySessionStore,
    models::{ScriptedResponse, answer, call},
};
use edge_harness::ports::{
    SessionStore,
    session_store::{Batch, StoredRecord},
};
use edge_harness::session::{
    DocumentKey, OpenError, Session,
    artifacts::Pointer,
    decode, encode,
    hub::Hub,
    idempotency::FirstResponse,
    window::{Bounds, ContextState},
};
use edge_harness::types::{
    Cursor, Decision, EventKind, ModelRequest, Part, Policy, QueuedTurn, Record, ResolvedBy, TaskDetails,
    Timestamp, TurnStatus,
    background::Subagents,
    session::{ChildState, SCHEMA, Webhook},
    suspension::Suspension,
};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{collections::BTreeSet, rc::Rc};

fn rewritten<T: serde::Serialize + serde::de::DeserializeOwned>(json: &str) -> String {
    decode::<T>(json).and_then(|value| encode(&value)).unwrap_or_else(|error| panic!("{error}: {json}"))
}

#[test]
fn stored_json_is_read_and_written_as_it_was() {
    for line in include_str!("stored.txt").lines() {
        let (name, json) = line.split_once('\t').unwrap();
        let again = match name {
            "document state" => {
                an_earlier_state_loses_nothing(json);
                continue;
            }
            "document context" => rewritten::<ContextState>(json),
            "document queue" => rewritten::<QueuedTurn>(json),
            "document approval" | "document answer" => rewritten::<Suspension>(json),
            "document artifact" => rewritten::<Pointer>(json),
            "document response" => rewritten::<FirstResponse>(json),
            "document state/child" => rewritten::<ChildState>(json),
            "document state/subagents" => rewritten::<Subagents>(json),
            "document task" => rewritten::<TaskDetails>(json),
            "document state/webhooks" => rewritten::<Vec<Webhook>>(json),
            // A hook has its own form, and the keys of the others say everything.
            "document hook"
            | "document canceled"
            | "document artifact-expiry"
            | "document response-expiry" => rewritten::<Value>(json),
            kind => {
                assert_eq!(decode::<Record>(json).unwrap().kind.name(), kind);
                rewritten::<Record>(json)
            }
        };
        assert_eq!(again, json, "{name}");
    }
}

/// Returns a key of each kind of document.
fn keys() -> [DocumentKey; 19] {
    use DocumentKey::*;
    let (at, place) = (Timestamp(0), || "POST /messages/k".to_owned());
    [
        State,
        Guidance,
        Activity,
        Background,
        Child,
        Account,
        Webhooks,
        Subagents,
        Context,
        Canceled,
        Queued("t1".into()),
        Approval("w".into()),
        Answer("q".into()),
        BackgroundTask("trn_1".into()),
        Artifact("art_1".into()),
        ArtifactExpiry(at, "art_1".into()),
        FirstResponse(place()),
        FirstResponseExpiry(at, place()),
        Hook("mine".into()),
    ]
}

#[test]
fn each_kind_of_record_and_of_document_has_a_fixture() {
    let source = include_str!("../../src/session/document_key.rs");
    let (_, variants) = source.split_once("pub enum DocumentKey {").unwrap();
    let variants = variants.split_once("\n}").unwrap().0.lines().map(str::trim);
    let variants = variants.filter(|line| !line.is_empty() && !line.starts_with("///"));
    let name = |text: &str| text.split(['(', ',']).next().unwrap().to_owned();
    let known: BTreeSet<_> = variants.map(name).collect();
    assert_eq!(keys().iter().map(|key| name(&format!("{key:?}"))).collect::<BTreeSet<_>>(), known);

    // The parts of the state have a key each. Other keys are a kind and an id.
    let kind = |key: &str| match key.split_once('/') {
        Some((kind, _)) if !kind.ends_with("state") => kind.to_owned(),
        _ => key.to_owned(),
    };
    let files = [include_str!("stored.txt")].into_iter().chain(WAITING).chain(RUNNING);
    let lines = files.flat_map(str::lines).map(|line| line.split_once('\t').unwrap().0);
    let fixtures: BTreeSet<String> = lines.map(kind).collect();
    let documents = keys().map(|key| format!("document {}", kind(&key.to_string())));
    let all = documents.into_iter().chain(EventKind::NAMES.iter().copied().map(str::to_owned));
    let missing: Vec<_> = all.filter(|name| !fixtures.contains(name)).collect();
    assert!(missing.is_empty(), "add lines to tests/agent/stored.txt: {missing:?}");
}

/// Opens a session whose state was one document, and checks that its parts have all that the document had.
fn an_earlier_state_loses_nothing(json: &str) {
    let store = Rc::new(MemorySessionStore::default());
    store.commit(Batch { put: vec![("state".into(), json.to_owned())], ..Batch::default() }).unwrap();
    let session = Session::open(store, Bounds::wide(), Hub::new(None)).unwrap().unwrap();
    let own = session.state();
    let mut state = json!({});
    let parts =
        [json!(*own.guidance), json!(*own.activity), json!(*own.background), json!(own.child.as_deref())];
    for part in parts.iter().filter_map(Value::as_object) {
        state.as_object_mut().unwrap().extend(part.clone());
    }
    state["meta"] = json!(*own.meta);
    state["meta"].as_object_mut().unwrap().extend(json!(own.activity.totals).as_object().unwrap().clone());
    let before = decode::<Value>(json).unwrap();
    // Only children have this field now.
    let is_child = before["meta"]["parent"].is_object();
    let kept = before.as_object().unwrap().iter().filter(|(field, _)| is_child || *field != "ruled_at");
    // Replaced by the version of the tenant's rules.
    let dropped = ["schema", "sent_rules"];
    for (field, value) in kept.filter(|(field, _)| !dropped.contains(&field.as_str())) {
        assert_eq!(state[field], *value, "{field}");
    }
}

/// Reads a file, approves a write, and asks a question; then responds.
fn script(request: &ModelRequest) -> ScriptedResponse {
    match step_of(request) {
        0 => answer(vec![
            Part::text("First I read."),
            call("r", "read_it", json!({"key": "r"})),
            call("w", "write_it", json!({"key": "a"})),
            call("q", "ask_user", json!({"question": "Which colour?"})),
        ]),
        _ => answer(vec![Part::text("all done")]),
    }
}

fn stage() -> Stage {
    Stage::scripted(script, |builder| builder).0
}

/// A stage whose session was stored by another version.
fn restored(dump: &str) -> Stage {
    let stage = stage();
    let mut batch = Batch::default();
    for line in dump.lines() {
        let (name, json) = line.split_once('\t').unwrap();
        match name.strip_prefix("document ") {
            Some(key) => batch.put.push((key.to_owned(), json.to_owned())),
            None => {
                let record: Value = serde_json::from_str(json).unwrap();
                let turn = record["turn"].as_str().map(Into::into);
                let seq = record["seq"].as_u64().unwrap();
                batch.append.push(StoredRecord { seq, kind: name.to_owned(), turn, json: json.to_owned() });
            }
        }
    }
    stage.store.commit(batch).unwrap();
    stage
}

fn dump(store: &MemorySessionStore) -> String {
    let log = store.log().into_iter().map(|record| format!("{}\t{}\n", record.kind, record.json));
    let documents = store.list("").unwrap();
    let documents = documents.into_iter().map(|(key, json)| format!("document {key}\t{json}\n"));
    log.chain(documents).collect()
}

const WAITING: [&str; 11] = [
    include_str!("stored/waiting_1.txt"),
    include_str!("stored/waiting_2.txt"),
    include_str!("stored/waiting_3.txt"),
    include_str!("stored/waiting_4.txt"),
    include_str!("stored/waiting_5.txt"),
    include_str!("stored/waiting_6.txt"),
    include_str!("stored/waiting_7.txt"),
    include_str!("stored/waiting_8.txt"),
    include_str!("stored/waiting_9.txt"),
    include_str!("stored/waiting_10.txt"),
    include_str!("stored/waiting_11.txt"),
];
const RUNNING: [&str; 11] = [
    include_str!("stored/running_1.txt"),
    include_str!("stored/running_2.txt"),
    include_str!("stored/running_3.txt"),
    include_str!("stored/running_4.txt"),
    include_str!("stored/running_5.txt"),
    include_str!("stored/running_6.txt"),
    include_str!("stored/running_7.txt"),
    include_str!("stored/running_8.txt"),
    include_str!("stored/running_9.txt"),
    include_str!("stored/running_10.txt"),
    include_str!("stored/running_11.txt"),
];

/// Writes the dumps of this version. Run it before a stored shape changes, under names with the version's number.
#[test]
#[ignore = "writes files"]
fn write_the_dumps() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agent/stored");
    let stage = stage();
    stage.host().create(crate::stage::meta(stage.host().now())).unwrap();
    stage.permit(|permissions| permissions.tools.extend([("write_it".to_owned(), Policy::Ask)]));
    stage.post("t1", "go");
    stage.post("t2", "and again");
    stage.settle_waiting();
    std::fs::write(format!("{folder}/waiting_{SCHEMA}.txt"), dump(&stage.store)).unwrap();

    let begun = |commits| {
        let stage = self::stage();
        stage.post("t1", "go");
        stage.post("t2", "and again");
        stage.settle_waiting();
        stage.store.die_after(Some(commits));
        say(&stage);
        (0..10).for_each(|_| stage.tick(ms(100)));
        stage.store.die_after(None);
        stage.store.get("state/activity").unwrap().unwrap().contains("\"begun\"").then_some(stage)
    };
    let stage = (1..10).find_map(begun).expect("a commit after which a call has started");
    std::fs::write(format!("{folder}/running_{SCHEMA}.txt"), dump(&stage.store)).unwrap();
}

fn approve(stage: &Stage) {
    let decision = ruling(Decision::Approve);
    stage.host().decide(&stage.session(), &"w".into(), decision, ResolvedBy::default()).unwrap();
    stage.run();
}

fn say(stage: &Stage) {
    let said = CallAnswer::Answer(json!("red"));
    stage.host().answer(&stage.session(), &"q".into(), said, ResolvedBy::default()).unwrap();
    stage.run();
}

fn reply(stage: &Stage, turn: &str) -> (TurnStatus, String) {
    let end = stage.end(turn);
    (end.status, end.reply.unwrap().text)
}

#[test]
fn a_waiting_turn_of_an_earlier_version_continues() {
    for dump in WAITING {
        let stage = restored(dump);
        stage.wake();
        approve(&stage);
        say(&stage);
        stage.settle_waiting();
        assert_eq!(reply(&stage, "t1"), (TurnStatus::Completed, "all done".to_owned()));
        // The queued turn waits for the same, with calls of its own.
        assert!(stage.host().abort(&stage.session(), Vec::new()).unwrap());
        stage.settle();
        stage.check();
        assert_eq!(stage.outcomes("t1"), ["result", "result", "result"]);
        let state: Value = decode(&stage.store.get("state").unwrap().unwrap()).unwrap();
        assert_eq!(state["schema"], SCHEMA);
    }
}

#[test]
fn a_running_turn_of_an_earlier_version_continues() {
    for dump in RUNNING {
        let stage = restored(dump);
        stage.wake();
        stage.settle_waiting();
        assert_eq!(reply(&stage, "t1"), (TurnStatus::Completed, "all done".to_owned()));
    }
}

#[test]
fn a_commit_rewrites_only_the_parts_of_the_state_that_it_changes() {
    let (stage, _) = Stage::scripted(|_| answer(vec![Part::text("hello")]), |builder| builder);
    let keys = || stage.store.take_written();
    stage.post("t1", "go");
    // A new session has the defaults of the other parts.
    assert_eq!(keys(), ["state", "state/activity"]);
    stage.settle();
    stage.follow_up();
    keys();
    stage.post("t2", "again");
    stage.settle();
    stage.follow_up();
    // The start and the end of the turn, its follow-ups, and its report to the ledger.
    assert_eq!(keys(), ["state/activity", "state/activity", "state/activity", "state/account"]);
    stage.clock.advance(ms(1));
    stage.permit(|permissions| permissions.yolo = true);
    assert_eq!(keys(), ["state", "state/activity"]);
}

#[test]
fn a_reply_is_stored_once_and_sent_whole() {
    let text = "word ".repeat(2_000);
    let said = text.clone();
    let (stage, _) = Stage::scripted(move |_| answer(vec![Part::text(said.clone())]), |builder| builder);
    stage.post("t1", "go");
    stage.settle();
    assert_eq!(dump(&stage.store).matches(&text).count(), 1);
    let live = stage.end("t1");
    stage.crash();
    assert_eq!(stage.end("t1"), live);
    let (frames, _) = stage.session().replay(Cursor::default(), None, false, 100).unwrap();
    let bytes: usize = stage.store.log().iter().map(|record| record.json.len()).sum();
    assert!(bytes < text.len() + 2_500, "{bytes} bytes of records");
    let end = frames.iter().find(|frame| frame.event == "turn.completed").expect("an end");
    let end: Value = serde_json::from_str(end.json()).unwrap();
    let message = &end["reply"]["id"];
    let parts = json!([{"type": "text", "text": text}]);
    assert_eq!(end["reply"], json!({"id": message, "text": text, "parts": parts}));
    assert_eq!(end.get("reply_ref"), None);
}

#[test]
fn a_session_of_a_newer_version_is_refused_and_left_alone() {
    let own = stage();
    own.post("t1", "go");
    own.settle_waiting();
    for stored in WAITING.into_iter().chain(RUNNING).map(str::to_owned).chain([dump(&own.store)]) {
        let newer = format!("\ndocument state\t{{\"schema\":{},\"shape\":\"unknown\",", SCHEMA + 1);
        let versions = 2..=SCHEMA;
        let stored =
            versions.fold(stored, |stored, version| stored.replace(&format!("{{\"schema\":{version},"), "{"));
        let stage = restored(&stored.replacen("\ndocument state\t{", &newer, 1));
        let before = dump(&stage.store);
        assert_eq!(stage.host().open().err(), Some(OpenError::Newer(SCHEMA + 1)));
        let host = stage.host();
        let refused = [
            host.apply_tenant_policy(&"t".into(), &Default::default()).unwrap_err(),
            block_on(host.erase(&"t".into(), &"s".into())).unwrap_err(),
            host.cancel_task(&"s".into(), &"c".into()).unwrap_err(),
        ];
        for problem in refused {
            assert_eq!((problem.code.status(), problem.code.as_str()), (503, "newer_session"));
        }
        assert_eq!(refusals(&stage, "u"), BTreeSet::from([(503, "newer_session")]));
        assert_eq!(refusals(&stage, "v"), BTreeSet::from([(404, "not_found")]));
        block_on(host.wake()).expect("the alarm is kept");
        assert_eq!(stage.take_wake_up(), Some(ms(600_000)));
        stage.run();
        assert_eq!(dump(&stage.store), before);
    }
}

/// The problems that requests of `user` get.
fn refusals(stage: &Stage, user: &str) -> BTreeSet<(u16, &'static str)> {
    let query = format!("user={user}");
    let requests = [
        ("POST /v1/sessions", "", json!({"id": "s", "user": user})),
        ("GET ", &*query, json!(null)),
        ("GET /view", &query, json!(null)),
        ("GET /events", &query, json!(null)),
        ("PATCH ", &query, json!({"title": "x"})),
        ("DELETE ", &query, json!(null)),
        ("POST /messages", "", json!({"content": "hello", "user": user})),
        ("POST /answers/q", "", json!({"answer": "blue", "user": user})),
        ("POST /abort", &query, json!(null)),
        ("POST /fork", &query, json!({})),
    ];
    let refused = requests.into_iter().flat_map(|(route, query, body)| {
        let mut asked = request(route, query, &body);
        let once = respond(stage, &asked).map(drop).unwrap_err();
        set_header(&mut asked, "idempotency-key", "k");
        [once, respond(stage, &asked).map(drop).unwrap_err()]
    });
    refused.map(|problem| (problem.code.status(), problem.code.as_str())).collect()
}

#[test]
fn records_of_an_unknown_kind_are_copied_and_sent_unchanged() {
    let stage = Stage::demo();
    stage.post("t1", "hello");
    stage.settle();
    let seq = stage.session().last_seq() + 1;
    let json = format!(
        r#"{{"seq":{seq},"at":"2026-11-20T12:00:00.000Z","turn":"t1","type":"turn.sung","notes":[1,{{"b":2,"a":null}}]}}"#
    );
    let (kind, turn) = ("turn.sung".to_owned(), Some("t1".into()));
    let append = vec![StoredRecord { seq, kind, turn, json: json.clone() }];
    stage.store.commit(Batch { append, ..Batch::default() }).unwrap();
    stage.crash();

    let mut asked = request("GET /events", "", &json!(null));
    set_header(&mut asked, "accept", "application/x-ndjson");
    let mut sent = stream(respond(&stage, &asked).unwrap());
    stage.run();
    assert_eq!(read(&mut sent).lines().last(), Some(&*json));

    let other = Rc::new(Stage::demo());
    respond_beside(&stage, &other, &request("POST /fork", "", &json!({}))).unwrap();
    let log = other.store.log();
    let copy = log.iter().find(|record| record.kind == "turn.sung").expect("a copy");
    let parsed = |json: &str| serde_json::from_str::<Value>(json).unwrap();
    assert_eq!((copy.seq, copy.turn.as_deref(), parsed(&copy.json)), (seq, Some("t1"), parsed(&json)));
}
