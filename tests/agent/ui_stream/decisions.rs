//! Calls that the page decides in its message, also those of subagents.

use super::{chunks, output, post, send, states, text_of, user};
use crate::scripts::calls_first;
use crate::stage::Stage;
use crate::subagents::{child, children, ruled};
use edge_harness::platform::in_memory::models::call;
use edge_harness::types::{ErrorCode, Part, Policy};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A session in which calls of these tools need an approval.
fn asks_for(tools: &[&str], calls: fn() -> Vec<Part>) -> Stage {
    let (stage, _) = Stage::scripted(calls_first(calls), |builder| builder);
    stage.host().create(crate::stage::meta(stage.host().now())).unwrap();
    stage.permit(|own| own.tools.extend(tools.iter().map(|tool| ((*tool).to_owned(), Policy::Ask))));
    stage
}

/// A message of the assistant in which the page has decided these calls.
fn decided(calls: &[(&str, bool)]) -> Value {
    let parts = calls.iter().map(|(id, approved)| {
        json!({
            "type": "dynamic-tool", "toolName": "write_it", "toolCallId": id, "state": "approval-responded",
            "input": {}, "approval": {"id": id, "approved": approved},
        })
    });
    json!({"id": "a", "role": "assistant", "parts": parts.collect::<Vec<_>>()})
}

#[test]
fn a_call_of_a_subagent_is_decided_in_the_message() {
    for approved in [true, false] {
        let stage = ruled("write_it", Policy::Ask);
        let asks = user("delegate:write:a");
        let first = post(&stage, json!([asks]));
        let id = format!("{}/w", child(&stage));
        // All other calls have an output, so the page sends the decision by itself.
        let waits = BTreeMap::from([("d", "tool-output-available"), (&*id, "tool-approval-request")]);
        assert_eq!(states(&first), waits);
        let request = first.iter().find(|chunk| chunk["type"] == "tool-approval-request").unwrap();
        assert_eq!((&request["approvalId"], &request["toolCallId"]), (&json!(id), &json!(id)));
        let second = post(&stage, json!([asks, decided(&[(&id, approved)])]));
        assert_eq!(second[0], first[0], "the same message");
        let outcome = if approved { "tool-output-available" } else { "tool-output-denied" };
        assert_eq!(states(&second), BTreeMap::from([("d", "tool-output-available"), (&*id, outcome)]));
        assert!(text_of(&second).starts_with("it came to: it came to: "), "{}", text_of(&second));
        assert_eq!(stage.runs.borrow().get("a"), approved.then_some(&1));
        let again = json!({"id": "s", "messages": [asks, decided(&[(&id, approved)])]});
        let problem = send(&stage, "POST /api/chat", &again).map(drop).unwrap_err();
        assert_eq!(problem.code, ErrorCode::NotWaiting);
    }
    // One of two, and then the other.
    let stage = ruled("write_it", Policy::Ask);
    let asks = user("delegate:twice:a");
    post(&stage, json!([asks]));
    let [one, other] = ["w1", "w2"].map(|call| format!("{}/{call}", child(&stage)));
    let second = post(&stage, json!([asks, decided(&[(&one, true)])]));
    let waits = [
        ("d", "tool-output-available"),
        (&*one, "tool-output-available"),
        (&*other, "tool-approval-request"),
    ];
    assert_eq!(states(&second), BTreeMap::from(waits));
    let third = post(&stage, json!([asks, decided(&[(&one, true), (&other, true)])]));
    assert!(text_of(&third).starts_with("it came to"));
    assert_eq!((stage.runs.borrow().get("w1"), stage.runs.borrow().get("w2")), (Some(&1), Some(&1)));
}

#[test]
fn calls_beside_one_that_is_asked_have_an_output_until_they_run() {
    // Otherwise the page would not send the decision by itself.
    let calls =
        || vec![call("r", "read_it", json!({"key": "a"})), call("w", "write_it", json!({"key": "b"}))];
    let stage = asks_for(&["write_it"], calls);
    let first = post(&stage, json!([user("go")]));
    let waits = BTreeMap::from([("r", "tool-output-available"), ("w", "tool-approval-request")]);
    assert_eq!((states(&first), output(&first, "r")), (waits, json!({"status": "waiting"})));
    let second = post(&stage, json!([user("go"), decided(&[("w", true)])]));
    assert_eq!((output(&second, "r"), output(&second, "w")), (json!("read a"), json!("wrote b")));
    // Two subagents, of which one asks first; the other one has an output until it has ended.
    for (task, other) in [("both:twice:a", true), ("both:write:a", true), ("mixed:write:a", false)] {
        let stage = ruled("write_it", Policy::Ask);
        let asks = user(task);
        let mut found = post(&stage, json!([asks]));
        let mut outcomes = BTreeMap::new();
        for _ in 0..9 {
            let states = states(&found);
            let asked: Vec<_> =
                states.iter().filter(|(_, state)| **state == "tool-approval-request").collect();
            let is_settled =
                |state: &&str| ["tool-output-available", "tool-approval-request"].contains(state);
            assert!(states.values().all(is_settled), "{states:?}");
            outcomes.extend(states.keys().map(|id| ((*id).to_owned(), output(&found, id))));
            if asked.is_empty() {
                break;
            }
            let calls: Vec<_> = asked.iter().map(|(id, _)| (**id, true)).collect();
            let answered = decided(&calls);
            found = post(&stage, json!([asks, answered]));
        }
        assert!(text_of(&found).starts_with("it came to"), "{task}: {found:#?}");
        let own: Vec<_> = outcomes.iter().filter(|(id, _)| !id.contains('/')).collect();
        assert_eq!(own.len(), 2, "{own:?}");
        assert!(own.iter().all(|(_, output)| output["status"] != "waiting"), "{own:?}");
        assert_eq!(children(&stage).len(), if other { 2 } else { 1 });
    }
}

#[test]
fn a_tool_of_the_page_runs_only_when_it_is_approved() {
    let calls = || vec![call("l", "look", json!({"at": 1})), call("w", "write_it", json!({"key": "b"}))];
    let stage = asks_for(&["look", "write_it"], calls);
    let body = json!({"id": "s", "messages": [user("go")], "clientTools": [{"name": "look"}]});
    let first = chunks(&stage, "POST /api/chat", &body);
    let waits = BTreeMap::from([("l", "tool-approval-request"), ("w", "tool-approval-request")]);
    assert_eq!(states(&first), waits);
    let runs = |chunks: &[Value]| {
        let of_page = |chunk: &&Value| chunk["type"] == "tool-input-available" && chunk["toolCallId"] == "l";
        let inputs: Vec<_> = chunks.iter().filter(of_page).cloned().collect();
        assert!(inputs.iter().all(|input| input.get("providerExecuted").is_none()), "the page runs it");
        inputs.len()
    };
    assert_eq!(runs(&first), 0);
    // The other call is approved first.
    let second = post(&stage, json!([user("go"), decided(&[("w", true)])]));
    assert_eq!((states(&second), runs(&second)), (BTreeMap::from([("l", "tool-approval-request")]), 0));
    let both = json!([user("go"), decided(&[("w", true), ("l", true)])]);
    let third = post(&stage, both.clone());
    assert_eq!((states(&third)["l"], runs(&third)), ("tool-input-available", 1));
    // A repetition, because the response was lost.
    let third = post(&stage, both);
    assert_eq!((states(&third)["l"], runs(&third)), ("tool-input-available", 1));
    let part = json!({"type": "tool-look", "toolCallId": "l", "state": "output-available", "output": "sun"});
    let last = post(&stage, json!([user("go"), {"id": "a", "role": "assistant", "parts": [part]}]));
    assert_eq!((text_of(&last), output(&last, "l")), ("Done".to_owned(), json!("sun")));
}

#[test]
fn a_call_of_a_subagent_that_was_decided_elsewhere_is_not_reported_as_approved() {
    let stage = ruled("write_it", Policy::Ask);
    let asks = user("delegate:twice:a");
    post(&stage, json!([asks]));
    let [one, other] = ["w1", "w2"].map(|call| format!("{}/{call}", child(&stage)));
    post(&stage, json!([asks, decided(&[(&one, false)])]));
    let last = post(&stage, json!([asks, decided(&[(&one, true), (&other, true)])]));
    assert_eq!(output(&last, &one), json!({"status": "decided"}));
    assert_eq!(output(&last, &other), json!({"status": "approved"}));
    assert_eq!((stage.runs.borrow().get("w1"), stage.runs.borrow().get("w2")), (None, Some(&1)));
}
