//! The event stream of one turn.

use crate::http::{ask, read_data, stream};
use crate::stage::Stage;
use serde_json::Value;

/// Reads the stream of a turn. Returns the types of its events, and whether it has ended.
fn read(stage: &Stage, query: &str) -> (Vec<String>, bool) {
    let mut open = stream(ask(stage, "GET /events", query, &Value::Null).unwrap());
    let (events, has_ended) = read_data(stage, &mut open, 100);
    let name =
        |event: &String| serde_json::from_str::<Value>(event).unwrap()["type"].as_str().unwrap().to_owned();
    (events.iter().map(name).collect(), has_ended)
}

#[test]
fn the_stream_of_a_turn_ends_although_the_reader_has_all_of_it() {
    let stage = Stage::demo();
    stage.post("t1", "/say Hello.");
    stage.settle();
    let (events, has_ended) = read(&stage, "turn=t1");
    assert_eq!((events.last().map(String::as_str), has_ended), (Some("turn.completed"), true));
    let last = stage.sent_records().last().unwrap()["seq"].clone();
    assert_eq!(read(&stage, &format!("turn=t1&after={last}")), (vec![], true));
    assert_eq!(read(&stage, "turn=unknown"), (vec![], true));
    assert!(!read(&stage, "").1, "the stream of the session stays open");
}
