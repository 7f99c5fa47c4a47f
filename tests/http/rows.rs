//! The cost of a search: rows that D1 reads, by its own count, in a database shared with another user.

use crate::support::{Client, Server};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::env;

/// Number of turns of each of two users. `ROWS=100000` runs the test at the size of the goal.
fn turns() -> u64 {
    env::var("ROWS").map_or(10_000, |rows| rows.parse().unwrap())
}

/// Number of turns to add at once.
const AT_ONCE: u64 = 2_000;

#[track_caller]
fn ask(client: &Client, user: &str, call: Value) -> (Value, u64, u64) {
    let answer = client.post("/fixtures/memory", json!({ "user": user, "call": call })).expect(200);
    (answer["returned"].clone(), answer["read"].as_u64().unwrap(), answer["written"].as_u64().unwrap())
}

fn fill(client: &Client, user: &str) {
    for from in (0..turns()).step_by(AT_ONCE as usize) {
        let to = from + AT_ONCE;
        let (added, _, written) = ask(client, user, json!({ "add": { "from": from, "to": to } }));
        assert_eq!(added, AT_ONCE);
        // Four per turn: its row, key, place, and terms. One per session, and a few more.
        assert!(written <= 4 * AT_ONCE + AT_ONCE / 100 + 5, "{written} rows written for {AT_ONCE} turns");
    }
}

fn count(found: &Value) -> u64 {
    found.as_array().unwrap().len() as u64
}

#[test]
fn a_search_reads_few_rows_beyond_its_results() {
    let server = Server::start(json!({}));
    let client = server.client();
    fill(&client, "ann");
    fill(&client, "bob");
    let turns = turns();

    let terms = ["all", "seventh", "rare", "n77", "nothing", "or"];
    let (found, read, written) = ask(&client, "ann", json!({ "statistics": { "terms": terms } }));
    let numbers =
        json!([turns, turns * 7, turns / 100, [turns, turns.div_ceil(7), turns.div_ceil(1_000), 1, 0, 0]]);
    assert_eq!((found, written), (numbers, 0));
    assert!(read <= 1 + terms.len() as u64, "{read} rows read for the frequencies");

    for (any_of, none_of, limit) in [
        (json!([["all"]]), json!([]), 200),
        (json!([["all"], ["rare"]]), json!(["seventh"]), 130),
        (json!([["seventh", "rare"], ["n77"]]), json!([]), 50),
        (json!([["n77", "rare"]]), json!([]), 50),
    ] {
        let find = json!({ "find": { "any_of": any_of, "none_of": none_of, "limit": limit } });
        let (found, read, _) = ask(&client, "ann", find.clone());
        // The collection's number is looked up twice: for its terms and for its rows.
        assert!(read <= 2 * count(&found) + 2, "{read} rows read for {} found by {find}", count(&found));
    }
    let find = json!({ "find": { "any_of": [["all"]], "none_of": [], "limit": 3 } });
    let newest = [turns - 1, turns - 2, turns - 3].map(|number| number.to_string());
    assert_eq!(ask(&client, "ann", find.clone()).0, json!(newest));
    assert_eq!(ask(&client, "unknown", find).0, json!([]));

    let places = json!([["s3", 10, 17], ["s4", 0, 3], ["s9", 98, 105], ["no", 0, 9]]);
    let (found, read, _) = ask(&client, "ann", json!({ "around": { "places": places } }));
    let keys: Vec<String> = (310..317).chain(400..403).chain(998..1_000).map(|n| n.to_string()).collect();
    assert_eq!(found, json!(keys));
    // One per neighbor, and the end of each run.
    assert!(read <= count(&found) + 2 * 4 + 1, "{read} rows read for {} neighbors", count(&found));

    // A complete search, for words that are frequent, rare, unique, and absent.
    let nowhere: String = (0..20).map(|number| format!(" nowhere{number}")).collect();
    for query in ["n77", "seventh", "the rare seventh", "which rare seventh is n77 or n4321", "all"] {
        let query = format!("{query}{nowhere}");
        let (found, read, _) = ask(&client, "ann", json!({ "search": { "query": query } }));
        assert!(read <= 500, "{read} rows read for {} hits of {query}", count(&found));
        assert!(query.starts_with("all") || count(&found) > 0, "{query}");
        if query.contains("n77") {
            assert_eq!(found[0], "77", "{query}");
        }
    }
}

#[test]
fn adding_one_turn_writes_few_rows_and_erasing_leaves_none() {
    let server = Server::start(json!({}));
    let client = server.client();
    ask(&client, "ann", json!({ "add": { "from": 0, "to": 50 } }));
    ask(&client, "bob", json!({ "add": { "from": 0, "to": 50 } }));
    let (added, _, written) = ask(&client, "ann", json!({ "add": { "from": 50, "to": 51 } }));
    assert_eq!((added, written), (json!(1), 8));
    let (added, _, written) = ask(&client, "ann", json!({ "add": { "from": 50, "to": 51 } }));
    assert_eq!((added, written), (json!(0), 0));
    assert_eq!(ask(&client, "ann", json!("erase")).0, json!(false));
    let statistics = json!({ "statistics": { "terms": ["all"] } });
    assert_eq!(ask(&client, "ann", statistics.clone()).0, json!([0, 0, 0, [0]]));
    assert_eq!(ask(&client, "bob", statistics).0, json!([50, 350, 1, [50]]));
}

#[test]
fn adding_a_fact_writes_few_rows() {
    let server = Server::start(json!({}));
    let client = server.client();
    let add = |from: u64, to: u64| {
        let call = json!({ "user": "ann", "facts": true, "call": { "add": { "from": from, "to": to } } });
        client.post("/fixtures/memory", call).expect(200)["written"].as_u64().unwrap()
    };
    let (first, next, many) = (add(0, 1), add(1, 2), add(2, 14));
    assert!(first <= 12 && next <= 10 && many <= 70, "{first}, {next}, then {many} for 12");
}
