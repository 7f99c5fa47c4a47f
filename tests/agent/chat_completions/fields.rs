//! The fields of a request: those that reach the model, those that are null, and those that are refused.

use super::{CHAT, chat, complete, send, user};
use crate::http::{request, status, whole};
use crate::scripts::says;
use crate::stage::Stage;
use edge_harness::http::routes;
use edge_harness::types::{ErrorCode, Thinking};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

#[test]
fn the_options_of_a_request_reach_the_model() {
    let (stage, models) = Stage::scripted(|_| says("{\"a\": 1}"), |builder| builder);
    let mut body = chat(json!([user("hi")]));
    let options = json!({
        "response_format": {"type": "json_object"}, "max_completion_tokens": 90, "max_tokens": 70,
        "reasoning_effort": "max", "seed": 7, "temperature": 0.5, "logit_bias": {},
    });
    options.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
    let found = complete(&stage, Some("s"), &body);
    assert_eq!(found["choices"][0]["message"]["content"], json!("{\"a\": 1}"));
    let request = &models.requests()[0];
    assert_eq!((request.max_output_tokens, request.thinking), (Some(90), Thinking::High));
    assert!(request.tail.contains("{\"type\":\"object\"}"), "{}", request.tail);
    for (effort, thinking) in [("none", Thinking::Off), ("minimal", Thinking::Off), ("low", Thinking::Low)] {
        body["reasoning_effort"] = effort.into();
        complete(&stage, Some("s"), &body);
        assert_eq!(models.requests().pop().unwrap().thinking, thinking);
    }
}

#[test]
fn requests_that_cannot_be_served_are_refused_with_the_parameter() {
    let stage = Stage::demo();
    let with = |name: &str, value: Value| {
        let mut body = chat(json!([user("hi")]));
        body[name] = value;
        body
    };
    let image = json!([{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]);
    let cases = [
        (with("n", json!(2)), "n"),
        (with("tool_choice", json!("required")), "tool_choice"),
        (with("messages", json!([])), "messages"),
        (with("messages", json!([{"role": "assistant", "content": "hi"}])), "messages"),
        (with("messages", json!([{"role": "user", "content": image}])), "messages.0.content.0"),
        (with("messages", json!([{"role": "robot", "content": "hi"}])), "messages.0.role"),
        (with("model", json!("unknown/none")), "model"),
        (with("tools", json!([{"type": "function", "function": {"name": "ask_user"}}])), "tools.0"),
        (with("tools", json!([{"type": "function", "function": {"name": "read_artifact"}}])), "tools.0"),
    ];
    for (body, param) in cases {
        let problem = send(&stage, None, &body).map(drop).expect_err(param);
        let asked = request(CHAT, "", &[], "");
        let response = routes::problem(&asked.request, &problem, "req_1");
        assert_eq!(status(&response), 400, "{param}");
        let found = whole(response)["error"].clone();
        assert_eq!((&found["param"], &found["type"]), (&json!(param), &json!("invalid_request_error")));
    }
    let expired = json!([{"role": "tool", "tool_call_id": "c9.ses_1", "content": "7"}]);
    let problem = send(&stage, None, &chat(expired)).map(drop).expect_err("no session");
    assert_eq!(problem.code, ErrorCode::NotFound);
}

#[test]
fn a_field_that_is_null_is_absent() {
    let (stage, _) = Stage::scripted(|_| says("Hello"), |builder| builder);
    let nullable = [
        "audio",
        "frequency_penalty",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "metadata",
        "n",
        "reasoning_effort",
        "response_format",
        "seed",
        "stop",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_p",
        "user",
    ];
    let with = |name: &str, value: Value| {
        let mut body = chat(json!([user("hi")]));
        body[name] = value;
        body
    };
    let mut bodies: Vec<_> = nullable.map(|name| with(name, Value::Null)).into();
    bodies.push(with("stream_options", json!({"include_usage": null})));
    let function = json!({"name": "look", "description": null, "parameters": null, "strict": null});
    bodies.push(with("tools", json!([{"type": "function", "function": function}])));
    let said = json!({
        "role": "assistant", "content": null, "tool_calls": null, "refusal": null, "audio": null, "function_call": null,
    });
    bodies.push(chat(json!([user("hi"), said, user("hi")])));
    for body in bodies {
        let found = send(&stage, Some("s"), &body).map(|response| status(&response));
        assert_eq!(found.map_err(|problem| problem.detail), Ok(200), "{body}");
    }
}
