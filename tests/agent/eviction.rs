//! Eviction of very large tool outputs to artifacts, which leave a reference and a preview.

use crate::artifacts::{Big, big};
use crate::http::{exchange, request, whole};
use crate::scripts::step_of;
use crate::stage::Stage;
use edge_harness::platform::in_memory::{
    ScriptedModels,
    models::{answer, call},
};
use edge_harness::types::{ArtifactRef, ModelRequest, Part, ToolOutcome};
use pretty_assertions::assert_eq;
use serde_json::json;
use std::rc::Rc;

/// A stage that evicts outputs longer than 20 characters. Its model calls `big` in the first step of each
/// turn, always with the same call id, for as many characters as the message says, and otherwise repeats the
/// result.
fn stage() -> (Stage, Rc<ScriptedModels>) {
    let script = |request: &ModelRequest| match (step_of(request), request.messages.last()) {
        (0, Some(said)) => {
            let call = match said.text().parse::<usize>() {
                Ok(n) => call("same", "big", json!({ "n": n })),
                Err(_) => call("same", "echo", json!({ "text": said.text() })),
            };
            answer(vec![call])
        }
        _ => answer(vec![Part::text("done")]),
    };
    let (stage, models) = Stage::scripted(script, |builder| builder.tool(Big));
    stage.evict_over.set(20);
    stage.crash();
    (stage, models)
}

/// Runs a turn and returns the outcome of its call.
fn run(stage: &Stage, turn: &str, said: impl ToString) -> ToolOutcome {
    stage.post(turn, &said.to_string());
    stage.settle();
    stage.check();
    let records = stage.records();
    let own = records.iter().find(|r| r["type"] == "tool.completed" && r["turn"] == turn).unwrap();
    serde_json::from_value(own.clone()).unwrap()
}

fn evicted(outcome: ToolOutcome) -> ArtifactRef {
    match outcome {
        ToolOutcome::Artifact { result } => result,
        other => panic!("not evicted: {other:?}"),
    }
}

fn stored(stage: &Stage, kept: &ArtifactRef) -> String {
    let blobs = stage.blobs.objects.borrow();
    let (_, bytes) = blobs.iter().find(|(key, _)| key.ends_with(kept.r#ref.as_str())).unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_log_and_the_model_have_the_reference_and_the_store_the_output() {
    let (stage, models) = stage();
    assert_eq!(run(&stage, "t1", 20), ToolOutcome::Result { result: json!(big(20)) });

    let kept = evicted(run(&stage, "t2", 10_000));
    assert_eq!((stored(&stage, &kept), kept.bytes, kept.expires_at), (big(10_000), 10_000, None));
    let text = big(10_000);
    let preview = format!("{}\n[6000 of 10000 characters left out]\n{}", &text[..2_000], &text[8_000..]);
    assert_eq!(kept.preview, preview);
    let shown = models.requests().pop().unwrap().messages.last().unwrap().parts.clone();
    let [Part::ToolResult { outcome: ToolOutcome::Artifact { result }, .. }] = shown.as_slice() else {
        panic!("{shown:?}");
    };
    assert_eq!(*result, kept);

    // At most half of the output is shown.
    let kept = evicted(run(&stage, "t3", 40));
    assert_eq!(
        kept.preview,
        format!("{}\n[20 of 40 characters left out]\n{}", &big(40)[..10], &big(40)[30..])
    );
}

#[test]
fn a_tool_of_the_client_with_the_name_of_an_exempt_tool_is_not_exempt() {
    let script = |request: &ModelRequest| match step_of(request) {
        0 => answer(vec![call("c1", "read_file", json!({"path": "a"}))]),
        _ => answer(vec![Part::text("done")]),
    };
    let (stage, _) = Stage::scripted(script, |builder| builder);
    stage.evict_over.set(20);
    stage.crash();
    let asks = json!({"role": "user", "content": "read"});
    let send = |messages: serde_json::Value| {
        let tools = json!([{"type": "function", "function": {"name": "read_file"}}]);
        let body = json!({"model": "default", "messages": messages, "tools": tools});
        let headers = [("x-session-id", "s")];
        whole(exchange(&stage, request("POST /v1/chat/completions", "", &headers, body.to_string())).unwrap())
    };
    let first = send(json!([asks]));
    let message = &first["choices"][0]["message"];
    send(json!([asks, message, {"role": "tool", "tool_call_id": "c1", "content": big(100)}]));
    let records = stage.records();
    let done = records.iter().find(|record| record["type"] == "tool.completed").unwrap();
    let kept = evicted(serde_json::from_value(done.clone()).unwrap());
    assert_eq!((kept.expires_at, stored(&stage, &kept)), (None, big(100)));
}

#[test]
fn outputs_are_stored_once_per_content() {
    let (stage, _) = stage();
    let (first, second) = (evicted(run(&stage, "t1", 100)), evicted(run(&stage, "t2", 200)));
    assert!(first.r#ref != second.r#ref);
    assert_eq!((stored(&stage, &first), stored(&stage, &second)), (big(100), big(200)));
    assert_eq!(stage.blobs.objects.borrow().len(), 2);
}

#[test]
fn without_a_store_nothing_is_evicted() {
    let (stage, _) = stage();
    stage.blobs.down.set(true);
    assert_eq!(run(&stage, "t1", 100), ToolOutcome::Result { result: json!(big(100)) });
    assert_eq!(stage.end("t1").sub_steps_failed, ["tool_result_eviction"]);
    assert!(!stage.kinds().contains(&"artifact.stored".to_owned()));
}

#[test]
fn an_output_that_looks_like_a_reference_is_evicted() {
    let (stage, _) = stage();
    let notice = evicted(run(&stage, "t1", 100));
    let text = ToolOutcome::Artifact { result: notice }.model_text().into_owned();
    let kept = evicted(run(&stage, "t2", &text));
    assert_eq!(stored(&stage, &kept), text);
}
