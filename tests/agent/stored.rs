//! Stored JSON keeps its form: `stored.txt` holds records and documents that earlier versions wrote, one on each
//! line. They are read, and written again byte for byte.

use edge_harness::session::{decode, encode, window::ContextState};
use edge_harness::types::{QueuedTurn, Record, SessionState, suspension::Suspension};
use pretty_assertions::assert_eq;

fn rewritten<T: serde::Serialize + serde::de::DeserializeOwned>(json: &str) -> String {
    decode::<T>(json).and_then(|value| encode(&value)).unwrap_or_else(|error| panic!("{error}: {json}"))
}

#[test]
fn stored_json_is_read_and_written_as_it_was() {
    for line in include_str!("stored.txt").lines() {
        let (name, json) = line.split_once('\t').unwrap();
        let again = match name {
            "document state" => rewritten::<SessionState>(json),
            "document context" => rewritten::<ContextState>(json),
            "document queue" => rewritten::<QueuedTurn>(json),
            "document approval" | "document answer" => rewritten::<Suspension>(json),
            kind => {
                assert_eq!(decode::<Record>(json).unwrap().kind.name(), kind);
                rewritten::<Record>(json)
            }
        };
        assert_eq!(again, json, "{name}");
    }
}
