//! Reads of a log larger than a page: they are bounded in bytes, and lose nothing.

use crate::http::{ask, call, request, respond, respond_beside, whole};
use crate::stage::Stage;
use edge_harness::http::{Body, upgrade::Upgrade};
use edge_harness::platform::in_memory::{MemorySessionStore, models::answer};
use edge_harness::ports::{
    Batch, SessionStore, StoreError,
    session_store::{PAGE_BYTES, Page, Select},
};
use edge_harness::session::window::{Bounds, ContextWindow, MAX_LOAD};
use edge_harness::types::{Cursor, ErrorCode, Part};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{cell::Cell, rc::Rc};

const LARGE: usize = 900_000;

/// A stage with this many turns, each with a large message.
fn stage_of(turns: usize) -> Stage {
    let (stage, _) = Stage::scripted(|_| answer(vec![Part::text("fine")]), |builder| builder);
    for turn in 0..turns {
        stage.post(&format!("t{turn}"), &format!("{turn} {}", "x".repeat(LARGE)));
        stage.settle();
    }
    stage
}

/// Counts the bytes that are read.
struct Counting(Rc<MemorySessionStore>, Cell<usize>);

impl SessionStore for Counting {
    fn exists(&self) -> Result<bool, StoreError> {
        self.0.exists()
    }

    fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        self.0.commit(batch)
    }

    fn last_seq(&self) -> Result<u64, StoreError> {
        self.0.last_seq()
    }

    fn read(&self, select: Select<'_>) -> Result<Page, StoreError> {
        let page = self.0.read(select)?;
        let bytes: usize = page.records.iter().map(|record| record.json.len()).sum();
        self.1.set(self.1.get() + bytes);
        Ok(page)
    }

    fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.0.get(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        self.0.list(prefix)
    }

    fn keys(&self, from: &str, to: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        self.0.keys(from, to, limit)
    }

    fn erase(&self) -> Result<(), StoreError> {
        self.0.erase()
    }
}

#[test]
fn opening_a_session_reads_a_bounded_number_of_bytes() {
    let stage = stage_of(20);
    for bounds in [Bounds::messages(200), Bounds::wide()] {
        let store = Counting(stage.store.clone(), Cell::default());
        let window = ContextWindow::load(&store, bounds).unwrap();
        assert!(store.1.get() <= MAX_LOAD + PAGE_BYTES, "{} bytes read", store.1.get());
        assert_eq!(window.messages().last().unwrap().text(), "fine");
        assert!(window.messages()[0].text().contains("xxx"), "the window begins with a user's message");
    }
    stage.crash();
    assert!(whole(ask(&stage, "GET /v1/sessions/s", "", &json!({})).unwrap())["last_seq"].is_u64());
}

#[test]
fn a_window_that_begins_inside_a_large_turn_starts_with_its_user_message_and_a_whole_step() {
    let store = Rc::new(MemorySessionStore::default());
    let at = "2026-11-20T12:00:00.000Z";
    let mut records = vec![json!({"type": "turn.started", "message": {
        "id": "msg_1", "seq": 1, "role": "user", "created_at": at, "turn": "t", "parts": [{"type": "text", "text": "go"}],
    }})];
    for step in 0..6 {
        let call = |n: usize| format!("c{step}_{n}");
        records.extend((0..2).map(|n| {
            json!({"type": "tool.started", "message": format!("msg_s{step}"), "call_id": call(n),
                "name": "echo", "args": {}, "args_hash": "h", "effect": "read_only"})
        }));
        records.extend((0..2).map(|n| {
            json!({"type": "tool.completed", "call_id": call(n), "name": "echo", "elapsed_ms": 1,
                "outcome": "result", "result": "x".repeat(LARGE)})
        }));
    }
    for (index, mut record) in records.into_iter().enumerate() {
        let kind = record["type"].as_str().unwrap().to_owned();
        let seq = index as u64 + 1;
        for (field, value) in [("seq", json!(seq)), ("at", json!(at)), ("turn", json!("t"))] {
            record[field] = value;
        }
        let turn = Some("t".into());
        let stored =
            edge_harness::ports::session_store::StoredRecord { seq, kind, turn, json: record.to_string() };
        store.commit(Batch { append: vec![stored], ..Batch::default() }).unwrap();
    }
    let window = ContextWindow::load(store.as_ref(), Bounds::messages(200)).unwrap();
    let shown: Vec<u64> = window.messages().iter().map(|message| message.seq).collect();
    // Eight results of 900 kB fit: the last four of six steps.
    assert_eq!(shown, [1, 10, 12, 13, 14, 16, 17, 18, 20, 21, 22, 24, 25]);
}

#[test]
fn the_pages_of_messages_are_bounded_and_complete() {
    let stage = stage_of(5);
    let (mut cursor, mut texts) = (String::new(), Vec::new());
    loop {
        let query = format!("limit=200{cursor}");
        let page = whole(ask(&stage, "GET /messages", &query, &json!({})).unwrap());
        let messages = page["data"].as_array().unwrap();
        assert!(page.to_string().len() < 2 * PAGE_BYTES + LARGE, "{} messages", messages.len());
        texts.extend(messages.iter().map(|m| m["parts"][0]["text"].as_str().unwrap()[..4].to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let expected: Vec<String> = (0..5).flat_map(|turn| [format!("{turn} xx"), "fine".to_owned()]).collect();
    assert_eq!(texts, expected);
}

#[test]
fn a_fork_copies_a_log_of_several_pages() {
    let stage = stage_of(5);
    let other = Rc::new(stage_of(0));
    let fork = respond_beside(&stage, &other, &call("POST /fork", "", &json!({}))).unwrap();
    let last_seq = stage.session().last_seq();
    assert_eq!(whole(fork)["last_seq"], last_seq);
    let first = &other.records()[0];
    assert_eq!((&first["type"], &first["forked_from"]), (&json!("session.created"), &json!("s")));
    assert!(other.store.log()[1..] == stage.store.log()[1..]);
    other.check();
    // The copy continues after an eviction.
    other.crash();
    other.post("next", "hello");
    other.settle();
    assert_eq!(other.end("next").reply.unwrap().text, "fine");
}

#[test]
fn a_fork_at_a_message_ends_with_it() {
    let stage = stage_of(4);
    let messages = stage.records();
    let second = messages.iter().filter(|record| record["type"] == "turn.started").nth(1).unwrap();
    let other = Rc::new(stage_of(0));
    let at = json!({"at_message": second["message"]["id"]});
    respond_beside(&stage, &other, &call("POST /fork", "", &at)).unwrap();
    let seq = second["seq"].as_u64().unwrap() as usize;
    assert!(other.store.log()[1..seq] == stage.store.log()[1..seq]);
    // The turn that the message began is ended.
    assert_eq!(other.kinds()[seq..], ["turn.canceled"]);
    let unknown = call("POST /fork", "", &json!({"at_message": "msg_unknown"}));
    assert_eq!(
        respond_beside(&stage, &other, &unknown).map(drop).unwrap_err().code,
        ErrorCode::ValidationFailed
    );
}

/// Stores the first page of a copy without the session.
fn unfinished_copy(from: &Stage) -> Stage {
    let stage = stage_of(0);
    let append = from.store.log().into_iter().take(2).collect();
    stage.store.commit(Batch { append, ..Batch::default() }).unwrap();
    stage
}

#[test]
fn a_copy_that_is_not_completed_is_no_session_and_is_deleted() {
    let source = stage_of(1);
    let stage = unfinished_copy(&source);
    let missing = ask(&stage, "GET /v1/sessions/s", "", &json!({})).map(drop).unwrap_err();
    assert_eq!(missing.code, ErrorCode::NotFound);
    stage.wake();
    assert_eq!(stage.store.log().len(), 0);

    let stage = unfinished_copy(&source);
    stage.post("t", "hello");
    stage.settle();
    stage.check();
    assert_eq!(stage.kinds()[..2], ["session.created", "turn.started"]);
}

#[test]
fn the_records_of_a_fork_that_could_not_be_stored_are_deleted_later() {
    let (source, other) = (stage_of(1), Rc::new(stage_of(0)));
    // The records are stored, the session is not.
    other.store.die_after(Some(1));
    respond_beside(&source, &other, &call("POST /fork", "", &json!({}))).map(drop).unwrap_err();
    other.store.die_after(None);
    assert!(!other.store.log().is_empty());
    assert!(other.take_wake_up().is_some(), "an alarm");
    other.wake();
    assert_eq!(other.store.log().len(), 0);
}

fn upgrade(stage: &Stage, after: &str) -> Box<Upgrade> {
    let headers = [("upgrade", "websocket")];
    let asked = request("GET /ws", &format!("after={after}"), &headers, "");
    match respond(stage, &asked).unwrap().into_body() {
        Body::WebSocket(upgrade) => upgrade,
        _ => panic!("no WebSocket"),
    }
}

#[test]
fn a_socket_that_has_missed_a_lot_catches_up_in_several_connections() {
    let stage = stage_of(9);
    let (mut after, mut seen, mut connections) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let Upgrade { missed, is_behind, .. } = *upgrade(&stage, &after);
        connections += 1;
        assert!(missed.iter().map(|frame| frame.json().len()).sum::<usize>() <= (4 << 20) + 2 * PAGE_BYTES);
        let events: Vec<Value> =
            missed.iter().map(|frame| serde_json::from_str(frame.json()).unwrap()).collect();
        seen.extend(events.iter().filter_map(|event| event["seq"].as_u64()));
        if !is_behind {
            break;
        }
        after = seen.last().unwrap().to_string();
    }
    assert_eq!(seen, (1..=stage.session().last_seq()).collect::<Vec<_>>());
    assert_eq!(connections, 2);
    assert_eq!(stage.session().resolve_cursor(Cursor::after(3)).unwrap(), Cursor::after(3));
}
