//! Runs that fail, and go on.

use super::{Work, command, good, plan, world};
use crate::support::log::{self, of_type};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

#[test]
fn a_failed_step_names_itself_and_a_retry_goes_on_from_it() {
    let world = world();
    let steps = [command("a", &[]), command("b", &["a"]), command("c", &["b"]), command("d", &["c"])];
    let run = Work::start(&world, "fails", &[plan(&steps)], json!({}));
    assert_eq!(run.client.post(&run.path("/retry"), json!({})).expect(409)["code"], "session_busy");
    let ended =
        run.work(|_, args| if args["command"] == "b" { Err("exit code 2".into()) } else { Ok("ok".into()) });
    assert_eq!((&ended["status"], &ended["error"]["step"]), (&json!("failed"), &json!("b")));
    assert_eq!(run.statuses(), ["a succeeded", "b failed", "c skipped", "d skipped"]);

    // The events of a run that has ended are contiguous, and the stream ends.
    let mut stream = run.client.stream(&run.path("/events?until=idle"));
    let events: Vec<_> = stream.by_ref().collect();
    assert!(!stream.cut);
    let streamed = log::transcript(&events);
    streamed.check();
    assert_eq!(streamed.records, run.log());
    assert_eq!(events.last().unwrap().json()["type"], "turn.completed");
    let paged: Vec<Value> = (0..)
        .map(|n| log::lines(&run.client, &run.path(&format!("/events?after={}&limit=7", n * 7))))
        .take_while(|page| !page.is_empty())
        .flatten()
        .collect();
    assert_eq!(paged, run.log());

    let at_end = run.log().len();
    run.client.post(&run.path("/cancel"), json!({})).expect(200);
    assert_eq!((run.show()["status"].clone(), run.log().len()), (json!("failed"), at_end));
    run.client.post(&run.path("/retry"), json!({"from": "x"})).expect(422);
    let keyed = run.client.with_header("idempotency-key", "r1");
    keyed.post(&run.path("/retry"), json!({})).expect(202);
    keyed.post(&run.path("/retry"), json!({})).expect(202);
    assert_eq!(run.work(good)["status"], "succeeded");
    assert_eq!(of_type(&run.log(), "run.requested").len(), 2);
    let done = run.done.borrow().join(" ");
    assert_eq!(done.matches("$ a").count(), 1, "{done}");
    assert_eq!(run.client.post(&run.path("/retry"), json!({})).expect(422)["errors"][0]["pointer"], "/from");
    run.client.post(&run.path("/retry"), json!({"from": "d"})).expect(202);
    assert_eq!(run.work(good)["steps"][3]["attempts"], 2);
    log::check(&run.log());
}
