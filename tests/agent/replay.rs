//! A reader that reconnects at any position receives every record once and every byte of text once.

use crate::http::principal;
use crate::stage::{Stage, ms};
use edge_harness::session::hub::{ByteReceiver, Interest, Listener};
use edge_harness::types::{Cursor, Message};
use futures::{FutureExt, StreamExt};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;

/// An event as a client of the stream parses it.
#[derive(Clone, Debug)]
struct Event {
    id: Option<Cursor>,
    data: Value,
}

fn parse(bytes: &[u8]) -> Vec<Event> {
    let text = std::str::from_utf8(bytes).unwrap();
    let blocks = text.split("\n\n").filter(|block| block.contains("data: "));
    blocks
        .map(|block| {
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
            let id = field("id: ").map(|id| Cursor::parse(id).unwrap());
            Event { id, data: serde_json::from_str(field("data: ").unwrap()).unwrap() }
        })
        .collect()
}

/// Connects a reader at `cursor`. Returns the frames that it missed, and a stream of later ones.
fn come_back(stage: &Stage, cursor: Cursor, page: usize) -> (Vec<Event>, ByteReceiver) {
    let session = stage.session();
    let (mut place, mut missed) = (session.resolve_cursor(cursor).unwrap(), Vec::new());
    loop {
        let (frames, next) = session.replay(place, None, true, page).unwrap();
        frames.iter().for_each(|frame| missed.extend(parse(&frame.sse())));
        match next {
            Some(next) => place = next,
            None => break,
        }
    }
    missed.extend(session.hub().streamed_after(place).iter().flat_map(|frame| parse(&frame.sse())));
    let (listener, stream) = Listener::new(Interest::default(), &principal());
    session.hub().listen(listener);
    (missed, stream)
}

fn drain(stream: &mut ByteReceiver) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(Some(Ok(bytes))) = stream.next().now_or_never() {
        events.extend(parse(&bytes));
    }
    events
}

/// Checks that a reader that started at `cursor` has received everything.
fn is_the_rest(stage: &Stage, cursor: Cursor, events: &[Event]) {
    let records: Vec<&Value> = events.iter().map(|e| &e.data).filter(|data| data["seq"].is_u64()).collect();
    let from = if cursor.offset.is_some() { cursor.seq } else { cursor.seq + 1 };
    let log: Vec<Value> =
        stage.sent_records().into_iter().filter(|r| r["seq"].as_u64() >= Some(from)).collect();
    assert_eq!(records, log.iter().collect::<Vec<_>>(), "every record after {cursor} once");

    // Text by the sequence number of its message.
    let mut text: BTreeMap<u64, String> = BTreeMap::new();
    let mut last = (cursor.seq, cursor.offset.unwrap_or(0));
    for event in events {
        let Some(id) = event.id else { continue };
        let here = (id.seq, id.offset.unwrap_or(u64::MAX));
        assert!(here > last || (id.offset.is_none() && id.seq > cursor.seq), "{id} behind {last:?}");
        last = here;
        if event.data["type"] == "message.delta" {
            text.entry(id.seq).or_default().push_str(event.data["delta"].as_str().unwrap());
        }
    }
    for record in log.iter().filter(|record| record["type"] == "message.completed") {
        let message: Message = serde_json::from_value(record["message"].clone()).unwrap();
        let seen = if message.seq == cursor.seq { cursor.offset.unwrap_or(0) } else { 0 };
        let rest = message.text().get(usize::try_from(seen).unwrap()..).unwrap().to_owned();
        assert_eq!(
            text.remove(&message.seq).unwrap_or_default(),
            rest,
            "text of {} behind {cursor}",
            message.seq
        );
    }
}

fn line() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        4 => Just("/slow 10 4"),
        2 => Just("/say Grüße, 世界 🌍 and more words"),
        2 => Just("/tool echo {\"text\": \"ö\"}"),
        1 => Just("/think hm"),
        1 => Just("/fail cut"),
        2 => Just("/then /say nächstes"),
        1 => Just("/then /tool absent {}"),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_can_leave_and_come_back_anywhere(
        said in prop::collection::vec(prop::collection::vec(line(), 1..5), 1..4),
        ticks in 0u64..40,
        place in any::<prop::sample::Index>(),
        page in 1usize..6,
    ) {
        let stage = Stage::demo();
        for (turn, lines) in said.iter().enumerate() {
            stage.post(&format!("t{turn}"), &lines.join("\n"));
        }
        let (mut seen, mut all) = come_back(&stage, Cursor::default(), page);
        stage.run();
        for _ in 0..ticks {
            stage.tick(ms(5));
        }
        seen.extend(drain(&mut all));

        // Every id sent so far is a valid position to reconnect at.
        let ids: Vec<Cursor> = seen.iter().filter_map(|event| event.id).collect();
        let cursor = if ids.is_empty() { Cursor::default() } else { *place.get(&ids) };
        let (mut rest, mut stream) = come_back(&stage, cursor, page);
        stage.settle();
        stage.check();
        rest.extend(drain(&mut stream));
        is_the_rest(&stage, cursor, &rest);
        seen.extend(drain(&mut all));
        is_the_rest(&stage, Cursor::default(), &seen);

        // Also long after, and between any two characters of a text.
        for record in stage.records() {
            let seq = record["seq"].as_u64().unwrap();
            is_the_rest(&stage, Cursor::after(seq), &come_back(&stage, Cursor::after(seq), page).0);
            if record["type"] == "message.completed" {
                let message: Message = serde_json::from_value(record["message"].clone()).unwrap();
                for (offset, _) in message.text().char_indices() {
                    let cursor = Cursor { seq, offset: Some(offset as u64) };
                    is_the_rest(&stage, cursor, &come_back(&stage, cursor, page).0);
                }
            }
        }
    }
}

#[test]
fn a_cursor_that_does_not_exist_counts_as_the_start() {
    let stage = Stage::demo();
    stage.post("t1", "hello");
    stage.settle();
    for cursor in [Cursor::after(1_000), Cursor { seq: 1_000, offset: Some(3) }] {
        is_the_rest(&stage, Cursor::default(), &come_back(&stage, cursor, 2).0);
    }
}

#[test]
fn tokens_that_arrive_together_are_sent_together() {
    let stage = Stage::demo();
    stage.post("t1", "/say Hello.");
    stage.settle();
    let (_, mut stream) = come_back(&stage, Cursor::default(), 100);
    stage.post("t2", "/say one two three");
    stage.settle();
    let deltas = drain(&mut stream).into_iter().filter(|event| event.data["type"] == "message.delta");
    let texts: Vec<_> = deltas.map(|event| event.data["delta"].clone()).collect();
    assert_eq!(texts, ["one two three"]);
}

#[test]
fn a_reader_of_a_long_log_continues_after_any_record() {
    let stage = Stage::demo();
    let calls: String = (0..95).map(|n| format!("/tool echo {{\"text\": \"größe {n}\"}}\n")).collect();
    for turn in 0.. {
        stage.post(&format!("t{turn}"), &calls);
        stage.settle();
        if stage.session().last_seq() >= 10_000 {
            break;
        }
    }
    let last = stage.session().last_seq();
    for seq in [0, 1, 500, 4_999, 9_999, last - 1, last] {
        let (missed, _) = come_back(&stage, Cursor::after(seq), 100);
        let seqs = missed.iter().filter_map(|event| event.data["seq"].as_u64());
        assert!(seqs.eq(seq + 1..=last), "every record after {seq} once");
    }
}
