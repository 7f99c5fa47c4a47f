//! The steps of runs in the inbox.

use super::{Work, command, good, plan, world};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[test]
fn the_inbox_has_the_steps_that_need_an_approval() {
    let world = world();
    let run = Work::start(&world, "listed", &["I would test it.".to_owned()], json!({}));
    let waits = run.work(good);
    let deadline = Instant::now() + Duration::from_secs(30);
    let list = |query: &str| {
        let page = run.client.get(&format!("/v1/pending{query}")).expect(200);
        page["data"].as_array().unwrap().clone()
    };
    while list("").len() < 2 {
        assert!(Instant::now() < deadline, "the steps are not in the inbox");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut listed = list("?kind=step");
    listed.sort_by_key(|call| call["step"].to_string());
    let mut feed = run.client.stream("/v1/pending/events?kind=step");
    let mut change = |name: &str| feed.until(|event| event.event == name).pop().expect("an event").json();
    let mut added = [change("pending.added"), change("pending.added")];
    added.sort_by_key(|call| call["step"].to_string());
    assert_eq!(listed, added);
    let of = |call: &Value| ["kind", "run", "session", "step"].map(|name| call[name].clone());
    assert_eq!(of(&listed[0]), [json!("step"), json!(run.id), json!(run.id), json!("diagrams")]);
    assert_eq!(of(&listed[1]), [json!("step"), json!(run.id), json!(run.id), json!("test")]);
    assert_eq!(listed[1]["args_hash"], waits["steps"][0]["args_hash"]);
    assert_eq!((list("").len(), list("?kind=approval").len()), (2, 0));
    // The session of the run has the same calls as approvals.
    assert!(run.pending().iter().all(|call| call["kind"] == "approval"), "{:?}", run.pending());

    run.decide("test", json!({"decision": "decline", "args_hash": listed[1]["args_hash"]})).expect(200);
    let removed = change("pending.removed");
    assert_eq!(of(&removed), [json!("step"), json!(run.id), json!(run.id), Value::Null]);
    assert_eq!(removed["call_id"], listed[1]["call_id"]);
    run.decide("diagrams", json!({"decision": "approve"})).expect(200);
    assert_eq!(run.work(good)["status"], "succeeded");

    // A call of a step that waits for a runner has the kind `external`.
    let deadline = Instant::now() + Duration::from_secs(30);
    let other = Work::start(&world, "waits", &[plan(&[command("look", &[])])], json!({}));
    other.answer("local_repo_tree");
    let call = loop {
        let found = list("?kind=external").into_iter().find(|call| call["step"] == "look");
        if let Some(call) = found {
            break call;
        }
        assert!(Instant::now() < deadline, "the call is not in the inbox");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(of(&call), [json!("external"), json!(other.id), json!(other.id), json!("look")]);
}
