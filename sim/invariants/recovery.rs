//! What a crash changes: 9.

use super::super::{outside::Outside, tools, world::World};
use super::view::{Turn, View};
use serde_json::Value;

/// What is told not to have run did not run.
pub fn unknown(outside: &Outside, view: &View) {
    let runs = outside.runs.borrow();
    for (turn, call) in view.turns.iter().flat_map(|turn| turn.calls.iter().map(move |call| (turn, call))) {
        let Some(outcome) = view.outcome(call) else { continue };
        let ran =
            runs.iter().any(|run| run.session == view.name && run.turn == turn.id && run.call_id == call.id);
        let denied = outcome.value["outcome"] == "denied";
        if ran && denied && !tools::is_idempotent(&call.name) {
            outside.find(9, format!("{} is said not to have run, and did", call.id));
        }
    }
}

/// A quiet world that was disturbed ends as the same world undisturbed, but for calls of which
/// nobody knows.
pub fn same(disturbed: &World, reference: &World) {
    let (found, expected) = (View::of(&disturbed.node(0)), View::of(&reference.node(0)));
    let outside = &disturbed.outside;
    let said = |view: &View| view.turns.iter().map(|turn| turn.said.clone()).collect::<Vec<_>>();
    if said(&found) != said(&expected) {
        return outside.find(9, format!("{:?} instead of {:?}", said(&found), said(&expected)));
    }
    for (turn, like) in found.turns.iter().zip(&expected.turns) {
        let (is, should) = (Ended::of(&found, turn), Ended::of(&expected, like));
        if is.end != should.end {
            outside.find(9, format!("“{}” ended as {} instead of {}", turn.said, is.end, should.end));
        }
        let calls = is.calls.iter().zip(&should.calls);
        let mut unknown: Vec<&str> = Vec::new();
        for ((name, outcome), (same, expected)) in calls {
            if outcome == "unknown" {
                // Nobody knows whether it failed for good, which would have closed the tool.
                unknown.push(name);
            } else if (name, outcome) != (same, expected) && !unknown.contains(&name.as_str()) {
                outside.find(9, format!("“{}”: {name} {outcome} instead of {same} {expected}", turn.said));
            }
        }
        if is.calls.len() != should.calls.len() {
            outside.find(9, format!("“{}”: {:?} instead of {:?}", turn.said, is.calls, should.calls));
        }
    }
}

struct Ended {
    end: Value,
    calls: Vec<(String, String)>,
}

impl Ended {
    fn of(view: &View, turn: &Turn) -> Self {
        let end = turn.ends.first().map(|end| &view.entries[*end].value);
        let end = end.map(|end| serde_json::json!([end["status"], end["stop_reason"], end["reply"]["text"]]));
        let calls = turn.calls.iter().map(|call| {
            let outcome = view.outcome(call).map(|entry| &entry.value);
            let outcome = outcome.map(|value| format!("{} {}", value["outcome"], value["result"]));
            let outcome = outcome.unwrap_or_default();
            let unknown = outcome.starts_with("\"unknown\"");
            (call.name.clone(), if unknown { "unknown".into() } else { outcome })
        });
        Self { end: end.unwrap_or_default(), calls: calls.collect() }
    }
}
