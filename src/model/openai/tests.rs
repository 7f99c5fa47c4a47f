#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    model::testkit::*,
    types::{Part, Role, Thinking, ToolOutcome},
};
use pretty_assertions::assert_eq;
use proptest::prelude::*;
use serde_json::json;

const TEXT: &str = r#"data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"gpt-5-mini","service_tier":"default","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"finish_reason":null}],"usage":null,"obfuscation":"x"}

data: {"choices":[{"index":0,"delta":{"content":"Grüß \"dich\" "},"finish_reason":null}],"usage":null,"obfuscation":"abc"}

data: {"choices":[{"index":0,"delta":{"content":"😀"},"finish_reason":null}],"usage":null}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}

data: {"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":7,"total_tokens":27,"prompt_tokens_details":{"cached_tokens":16,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":4}}}

data: [DONE]

"#;

/// Two calls whose pieces are interleaved, and one call without arguments.
const CALLS: &str = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"read","arguments":""}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"list","arguments":"{\"d"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\":"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"ir\":1}"}},{"index":0,"function":{"arguments":"\"ü\"}"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":2,"id":"call_c","type":"function","function":{"name":"now","arguments":""}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}

data: [DONE]

"#;

/// A compatible server: CRLF, comments, reasoning, null fields, no usage.
const THINKING: &str = ": OPENROUTER PROCESSING\r\n\r\ndata:{\"choices\":[{\"delta\":{\"reasoning_content\":\"Let me \",\"content\":null}}]}\r\n\r\n: ping\r\n\r\ndata:{\"choices\":[{\"delta\":{\"reasoning\":\"see\",\"tool_calls\":null}}]}\r\n\r\ndata:{\"choices\":[{\"delta\":{\"content\":\"Yes\"},\"finish_reason\":\"length\"}]}\r\n\r\ndata: [DONE]\r\n\r\n";

#[test]
fn the_providers_total_is_kept() {
    let total = |text: &str| decode_whole(&OpenAi, text).end.unwrap().usage.total_tokens;
    assert_eq!(total(&TEXT.replace("\"total_tokens\":27", "\"total_tokens\":220")), 220);
    assert_eq!(total(&TEXT.replace("\"total_tokens\":27,", "")), 27);
}

#[test]
fn text_and_usage() {
    let outcome = decode_whole(&OpenAi, TEXT);
    assert_eq!(outcome.text, "Grüß \"dich\" 😀");
    assert_eq!(
        outcome.end.unwrap(),
        ModelResponse {
            parts: vec![Part::text("Grüß \"dich\" 😀")],
            usage: Usage {
                window: None,
                input_tokens: 20,
                output_tokens: 7,
                cache_read_tokens: 16,
                cache_write_tokens: 0,
                reasoning_tokens: 4,
                total_tokens: 27
            },
            finish: FinishReason::Stop,
        }
    );
}

#[test]
fn parallel_calls_by_index() {
    let outcome = decode_whole(&OpenAi, CALLS);
    let inputs = [("read", r#"{"path":"ü"}"#), ("list", r#"{"dir":1}"#), ("now", "")];
    assert_eq!(outcome.inputs, inputs.map(|(n, a)| (n.to_owned(), a.to_owned())));
    let response = outcome.end.unwrap();
    assert_eq!(
        response.parts,
        vec![
            tool_call("call_a", "read", json!({"path":"ü"})),
            tool_call("call_b", "list", json!({"dir":1})),
            tool_call("call_c", "now", json!({})),
        ]
    );
    assert_eq!((response.finish, response.usage.total_tokens), (FinishReason::ToolCalls, 12));
}

#[test]
fn reasoning_of_compatible_servers() {
    let outcome = decode_whole(&OpenAi, THINKING);
    assert_eq!((outcome.thinking.as_str(), outcome.text.as_str()), ("Let me see", "Yes"));
    let response = outcome.end.unwrap();
    let thought = Part::Reasoning { text: "Let me see".into(), provider: None };
    assert_eq!((response.parts, response.finish), (vec![thought, Part::text("Yes")], FinishReason::Length));
}

#[test]
fn a_response_that_is_not_streamed() {
    let body = r#" {"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","tool_calls":[{"id":"a","type":"function","function":{"name":"t","arguments":"{}"}},{"type":"function","function":{"name":"t","arguments":"{\"x\":1}"}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;
    let outcome = decode(&OpenAi, bytewise(body));
    let response = outcome.end.unwrap();
    let calls = [tool_call("a", "t", json!({})), tool_call("", "t", json!({"x":1}))];
    assert_eq!(response.parts, [&[Part::text("Hi")][..], &calls].concat());
    assert_eq!(response.finish, FinishReason::ToolCalls);
}

#[test]
fn errors_inside_the_stream() {
    let before = r#"data: {"choices":[{"delta":{"content":"Hal"}}]}"#;
    let table = [
        (
            r#"data: {"error":{"message":"prompt too big","code":"context_length_exceeded"}}"#,
            ModelErrorKind::Overflow,
        ),
        (
            r#"data: {"error":{"code":429,"message":"slow"},"choices":[{"delta":{},"finish_reason":"error"}]}"#,
            ModelErrorKind::RateLimited,
        ),
        ("event: error\ndata: {\"message\":\"boom\"}", ModelErrorKind::Unavailable),
        (r#"data: {"choices":[{"delta":{},"finish_reason":"error"}]}"#, ModelErrorKind::Unavailable),
        (r#"data: {"choices":[{"#, ModelErrorKind::Cut),
        ("data: [DONE]", ModelErrorKind::Cut),
        (": over", ModelErrorKind::Cut),
    ];
    for (event, expected) in table {
        let outcome = decode_whole(&OpenAi, &format!("{before}\n\n{event}\n\n"));
        assert_eq!(outcome.text, "Hal", "{event}");
        assert_eq!(outcome.end.unwrap_err().kind, expected, "{event}");
    }
}

#[test]
fn a_stream_without_finish_reason_is_cut() {
    let known = TEXT.find("\"stop\"}]").unwrap();
    for end in 0..TEXT.len() {
        let outcome = decode(&OpenAi, vec![TEXT.as_bytes()[..end].to_vec()]);
        match outcome.end {
            Ok(response) => assert!(end > known && response.parts == [Part::text("Grüß \"dich\" 😀")]),
            Err(error) => assert_eq!(error.kind, ModelErrorKind::Cut, "{end}"),
        }
    }
}

#[test]
fn single_byte_chunks_give_the_same_response() {
    for body in [TEXT, CALLS, THINKING] {
        assert_eq!(decode(&OpenAi, bytewise(body)), decode_whole(&OpenAi, body));
        let crlf = body.replace("\r\n", "\n").replace('\n', "\r\n");
        assert_eq!(decode(&OpenAi, bytewise(&crlf)), decode_whole(&OpenAi, body));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn chunk_boundaries_do_not_matter(cuts in proptest::collection::vec(any::<usize>(), 0..10)) {
        for body in [TEXT, CALLS, THINKING] {
            prop_assert_eq!(decode(&OpenAi, cut_at(body, &cuts)), decode_whole(&OpenAi, body));
        }
    }
}

#[test]
fn the_whole_request() {
    let foreign = json!({"type":"thinking","thinking":"hm","signature":"s"});
    let request = ModelRequest {
        model: "gpt-5-mini".into(),
        system: "Be kind.".into(),
        volatile: "Today is Friday.".into(),
        tail: "Sum up.".into(),
        messages: vec![
            user("Hello"),
            message(Role::Assistant, vec![Part::text("Hi")]),
            user("Read it"),
            message(
                Role::Assistant,
                vec![
                    Part::Reasoning { text: "hm".into(), provider: Some(foreign) },
                    tool_call("a", "read", json!({"p":1})),
                    tool_call("b", "list", json!({})),
                ],
            ),
            result("a", "read", ok("text")),
            result("b", "list", ToolOutcome::failure("gone")),
            message(Role::Assistant, vec![Part::Reasoning { text: "hm".into(), provider: None }]),
        ],
        media: Default::default(),
        tools: vec![spec("zeta"), spec("alpha")].into(),
        max_output_tokens: Some(100),
        thinking: Thinking::Low,
        tenant: None,
        tools_off: false,
    };
    let tool = |name: &str| json!({"type":"function","function":{"name":name,"description":format!("Does {name}."),"parameters":{"type":"object","required":["what"]}}});
    let expected = json!({
        "model": "gpt-5-mini",
        "messages": [
            {"role":"system","content":"Be kind."},
            {"role":"user","content":"Hello"},
            {"role":"assistant","content":"Hi"},
            {"role":"system","content":"Today is Friday."},
            {"role":"user","content":"Read it"},
            {"role":"assistant","content":null,"tool_calls":[
                {"id":"a","type":"function","function":{"name":"read","arguments":"{\"p\":1}"}},
                {"id":"b","type":"function","function":{"name":"list","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"a","content":"<untrusted_output>\ntext\n</untrusted_output>"},
            {"role":"tool","tool_call_id":"b","content":"<untrusted_output>\nError: gone\n</untrusted_output>"},
            {"role":"user","content":"Sum up."},
        ],
        "tools": [tool("zeta"), tool("alpha")],
        "stream": true,
        "stream_options": {"include_usage": true},
        "max_completion_tokens": 100,
        "reasoning_effort": "low",
    });
    assert_eq!(sent(&OpenAi, &request), expected);
}

#[test]
fn invented_tool_names_are_sanitized() {
    let long = "n".repeat(70);
    let names = ["functions.echo", "", "größe", &long, "read-it_2"];
    let calls = names.iter().map(|name| tool_call("a", name, json!({}))).collect();
    let messages = vec![user("Hi"), message(Role::Assistant, calls)];
    let json = sent(&OpenAi, &ModelRequest { messages, ..ModelRequest::default() });
    let calls = json["messages"][1]["tool_calls"].as_array().unwrap();
    let sent: Vec<_> = calls.iter().map(|call| call["function"]["name"].as_str().unwrap()).collect();
    assert_eq!(sent, ["functions_echo", "_", "gr__e", &long[..64], "read-it_2"]);
}

#[test]
fn forbidden_tools_stay_in_the_prompt() {
    let request = |tools: Vec<std::rc::Rc<crate::types::ToolSpec>>| ModelRequest {
        messages: vec![user("Hi")],
        tools: tools.into(),
        tools_off: true,
        ..ModelRequest::default()
    };
    let json = sent(&OpenAi, &request(vec![spec("read")]));
    assert_eq!((json["tools"].as_array().map(Vec::len), &json["tool_choice"]), (Some(1), &json!("none")));
    assert_eq!(sent(&OpenAi, &request(Vec::new())).get("tool_choice"), None);
}

#[test]
fn a_minimal_request_omits_optional_fields_and_carries_the_key() {
    let request = ModelRequest { model: "m".into(), messages: vec![user("Hi")], ..ModelRequest::default() };
    assert_eq!(
        sent(&OpenAi, &request),
        json!({"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":true,"stream_options":{"include_usage":true}})
    );
    let endpoint =
        |key: Option<&str>| Endpoint { base_url: "http://h/v1/".into(), key: key.map(str::to_owned) };
    let with = OpenAi.encode(&endpoint(Some("k")), &request).unwrap();
    assert_eq!(with.url, "http://h/v1/chat/completions");
    assert!(with.headers.contains(&("authorization".into(), "Bearer k".into())));
    let without = OpenAi.encode(&endpoint(None), &request).unwrap();
    assert!(without.headers.iter().all(|(name, _)| name != "authorization"));
}
