#![allow(clippy::unwrap_used)]

use super::*;
use crate::{
    model::testkit::*,
    types::{Role, Thinking, ToolOutcome},
};
use pretty_assertions::assert_eq;
use proptest::prelude::*;

/// Reasoning, redacted reasoning, text and two calls, one of them without arguments.
const TOOLS: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":200,"cache_read_input_tokens":3000,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"I should "}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"lööк."}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQBCg=="}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"Emwk"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"Let me "}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"look 😀"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: content_block_start
data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_1","name":"read","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_start
data: {"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"toolu_2","name":"now","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"path\": \"a"}}

event: content_block_delta
data: {"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":".txt\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":3}

event: content_block_stop
data: {"type":"content_block_stop","index":4}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":89}}

event: message_stop
data: {"type":"message_stop"}

"#;

fn thinking() -> Value {
    json!({"type":"thinking","thinking":"I should lööк.","signature":"EqQBCg=="})
}

fn redacted() -> Value {
    json!({"type":"redacted_thinking","data":"Emwk"})
}

/// Returns a stream with the text "Hm" that stops for `reason`.
fn ending(reason: &str) -> String {
    format!(
        "data: {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{{\"type\":\"text\",\"text\":\"Hm\"}}}}\n\ndata: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{reason}\"}},\"usage\":{{\"input_tokens\":5,\"output_tokens\":2}}}}\n\ndata: {{\"type\":\"message_stop\"}}\n\n"
    )
}

#[test]
fn a_step_with_everything() {
    let outcome = decode_whole(&Anthropic, TOOLS);
    assert_eq!((outcome.thinking.as_str(), outcome.text.as_str()), ("I should lööк.", "Let me look 😀"));
    let inputs = [("read", "{\"path\": \"a.txt\"}"), ("now", "")];
    assert_eq!(outcome.inputs, inputs.map(|(n, a)| (n.to_owned(), a.to_owned())));
    assert_eq!(
        outcome.end.unwrap(),
        ModelResponse {
            parts: vec![
                Part::Reasoning { text: "I should lööк.".into(), provider: Some(thinking()) },
                Part::Reasoning { text: String::new(), provider: Some(redacted()) },
                Part::text("Let me look 😀"),
                tool_call("toolu_1", "read", json!({"path":"a.txt"})),
                tool_call("toolu_2", "now", json!({})),
            ],
            usage: Usage {
                window: None,
                input_tokens: 3210,
                output_tokens: 89,
                cache_read_tokens: 3000,
                cache_write_tokens: 200,
                reasoning_tokens: 0,
                total_tokens: 3299,
            },
            finish: FinishReason::ToolCalls,
        }
    );
}

#[test]
fn reasoning_is_sent_back_verbatim_and_in_place() {
    let response = decode_whole(&Anthropic, TOOLS).end.unwrap();
    let request = ModelRequest {
        model: "claude-sonnet-4-5".into(),
        messages: vec![
            user("Look"),
            message(Role::Assistant, response.parts),
            result("toolu_1", "read", ok("text")),
            result("toolu_2", "now", ToolOutcome::failure("no clock")),
        ],
        thinking: Thinking::High,
        tools_off: false,
        ..ModelRequest::default()
    };
    let marker = json!({"type":"ephemeral"});
    let expected = json!({
        "model": "claude-sonnet-4-5",
        "max_tokens": 24_576,
        "thinking": {"type":"enabled","budget_tokens":16_384},
        "stream": true,
        "messages": [
            {"role":"user","content":[{"type":"text","text":"Look"}]},
            {"role":"assistant","content":[
                thinking(),
                redacted(),
                {"type":"text","text":"Let me look 😀"},
                {"type":"tool_use","id":"toolu_1","name":"read","input":{"path":"a.txt"}},
                {"type":"tool_use","id":"toolu_2","name":"now","input":{}},
            ]},
            {"role":"user","content":[
                {"type":"tool_result","tool_use_id":"toolu_1","content":"<untrusted_output>\ntext\n</untrusted_output>"},
                {"type":"tool_result","tool_use_id":"toolu_2","content":"<untrusted_output>\nError: no clock\n</untrusted_output>","is_error":true,"cache_control":marker},
            ]},
        ],
    });
    assert_eq!(sent(&Anthropic, &request), expected);
}

#[test]
fn the_whole_request() {
    let request = ModelRequest {
        model: "m".into(),
        system: "Be kind.".into(),
        volatile: "Today is Friday.".into(),
        tail: "Sum up.".into(),
        messages: vec![
            user("Hello"),
            message(
                Role::Assistant,
                vec![
                    Part::Reasoning {
                        text: "other's".into(),
                        provider: Some(json!({"type":"reasoning","id":"rs"})),
                    },
                    Part::Reasoning { text: "cut off".into(), provider: None },
                    tool_call("functions.read:0", "read", json!({})),
                ],
            ),
            result("functions.read:0", "read", ok("x")),
            message(Role::Assistant, vec![Part::text("Hi"), Part::text(" ")]),
            user("More"),
        ],
        media: Default::default(),
        tools: vec![spec("zeta"), spec("alpha")].into(),
        max_output_tokens: Some(2_000),
        thinking: Thinking::Off,
        tenant: None,
        tools_off: false,
    };
    let marker = json!({"type":"ephemeral"});
    let schema = json!({"type":"object","required":["what"]});
    let expected = json!({
        "model": "m",
        "max_tokens": 2_000,
        "stream": true,
        "system": [{"type":"text","text":"Be kind.","cache_control":marker}],
        "tools": [
            {"name":"zeta","description":"Does zeta.","input_schema":schema},
            {"name":"alpha","description":"Does alpha.","input_schema":schema,"cache_control":marker},
        ],
        "messages": [
            {"role":"user","content":[{"type":"text","text":"Hello"}]},
            {"role":"assistant","content":[{"type":"tool_use","id":"functions_read_0","name":"read","input":{}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"functions_read_0","content":"<untrusted_output>\nx\n</untrusted_output>"}]},
            {"role":"assistant","content":[{"type":"text","text":"Hi","cache_control":marker}]},
            {"role":"user","content":[
                {"type":"text","text":"Today is Friday."},
                {"type":"text","text":"More","cache_control":marker},
                {"type":"text","text":"Sum up."},
            ]},
        ],
    });
    assert_eq!(sent(&Anthropic, &request), expected);
}

#[test]
fn a_tail_after_an_assistant_message_is_a_user_message() {
    let messages = vec![user("Hello"), message(Role::Assistant, vec![Part::text("no JSON")])];
    let request = ModelRequest { messages, tail: "Again.".into(), ..ModelRequest::default() };
    let sent = sent(&Anthropic, &request);
    let last = sent["messages"].as_array().and_then(|messages| messages.last()).cloned();
    assert_eq!(last, Some(json!({"role":"user","content":[{"type":"text","text":"Again."}]})));
}

#[test]
fn forbidden_tools_stay_in_the_prompt() {
    let request = |tools: Vec<std::rc::Rc<crate::types::ToolSpec>>| ModelRequest {
        messages: vec![user("Hi")],
        tools: tools.into(),
        tools_off: true,
        ..ModelRequest::default()
    };
    let json = sent(&Anthropic, &request(vec![spec("read")]));
    let choice = json!({"type": "none"});
    assert_eq!((json["tools"].as_array().map(Vec::len), &json["tool_choice"]), (Some(1), &choice));
    assert_eq!(sent(&Anthropic, &request(Vec::new())).get("tool_choice"), None);
}

#[test]
fn reasoning_is_requested_only_where_the_api_allows_it() {
    let budget = |messages: Vec<std::rc::Rc<crate::types::Message>>, cap: Option<u32>| {
        let request = ModelRequest {
            messages,
            max_output_tokens: cap,
            thinking: Thinking::Medium,
            tools_off: false,
            ..ModelRequest::default()
        };
        let json = sent(&Anthropic, &request);
        (json["max_tokens"].clone(), json["thinking"]["budget_tokens"].clone())
    };
    assert_eq!(budget(vec![user("Hi")], None), (json!(12_288), json!(4_096)));
    assert_eq!(budget(vec![user("Hi")], Some(3_000)), (json!(3_000), json!(1_976)));
    assert_eq!(budget(vec![user("Hi")], Some(2_000)), (json!(2_000), json!(null)));
    let other = message(Role::Assistant, vec![tool_call("a", "t", json!({}))]);
    assert_eq!(budget(vec![user("Hi"), other, result("a", "t", ok("x"))], None), (json!(8_192), json!(null)));
}

#[test]
fn address_and_headers() {
    let url = |base: &str| {
        let endpoint = Endpoint { base_url: base.into(), key: Some("k".into()) };
        Anthropic.encode(&endpoint, &ModelRequest::default()).unwrap()
    };
    for base in ["https://h", "https://h/", "https://h/v1", "https://h/v1/"] {
        assert_eq!(url(base).url, "https://h/v1/messages");
    }
    let headers = url("https://h").headers;
    assert!(headers.contains(&("x-api-key".into(), "k".into())));
    assert!(headers.contains(&("anthropic-version".into(), "2023-06-01".into())));
}

#[test]
fn reasons_to_stop() {
    let table = [
        ("end_turn", FinishReason::Stop),
        ("stop_sequence", FinishReason::Stop),
        ("max_tokens", FinishReason::Length),
        ("pause_turn", FinishReason::Pause),
        ("refusal", FinishReason::ContentFilter),
        ("something_new", FinishReason::Stop),
    ];
    for (reason, expected) in table {
        let response = decode_whole(&Anthropic, &ending(reason)).end.unwrap();
        assert_eq!((response.finish, response.usage.total_tokens), (expected, 7), "{reason}");
    }
    let full = decode_whole(&Anthropic, &ending("model_context_window_exceeded")).end.unwrap_err();
    assert_eq!(full.kind, ModelErrorKind::Overflow);
}

#[test]
fn errors_inside_the_stream() {
    let body = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    let error = decode_whole(&Anthropic, body).end.unwrap_err();
    assert_eq!((error.kind, error.cause.as_deref()), (ModelErrorKind::Unavailable, Some("Overloaded")));
}

#[test]
fn an_early_end_is_a_cut_stream() {
    for end in 0..TOOLS.find("event: message_stop").unwrap() {
        let outcome = decode(&Anthropic, vec![TOOLS.as_bytes()[..end].to_vec()]);
        assert_eq!(outcome.end.unwrap_err().kind, ModelErrorKind::Cut, "{end}");
    }
}

#[test]
fn a_response_that_is_not_streamed() {
    let body = json!({"type":"message","role":"assistant","content":[
        thinking(), {"type":"text","text":"Hi"}, {"type":"tool_use","id":"a","name":"t","input":{"x":1}}],
        "stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":2}});
    let response = decode_whole(&Anthropic, &body.to_string()).end.unwrap();
    assert_eq!(
        response.parts,
        vec![
            Part::Reasoning { text: "I should lööк.".into(), provider: Some(thinking()) },
            Part::text("Hi"),
            tool_call("a", "t", json!({"x":1})),
        ]
    );
    assert_eq!(response.usage.total_tokens, 3);
}

#[test]
fn single_byte_chunks_give_the_same_response() {
    assert_eq!(decode(&Anthropic, bytewise(TOOLS)), decode_whole(&Anthropic, TOOLS));
    assert_eq!(decode(&Anthropic, bytewise(&TOOLS.replace('\n', "\r\n"))), decode_whole(&Anthropic, TOOLS));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn chunk_boundaries_do_not_matter(cuts in proptest::collection::vec(any::<usize>(), 0..10)) {
        prop_assert_eq!(decode(&Anthropic, cut_at(TOOLS, &cuts)), decode_whole(&Anthropic, TOOLS));
    }
}
