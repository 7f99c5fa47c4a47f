//! Failures of model providers, as the clients of a turn see them.

use crate::support::{Chat, Event, Gate, PROVIDER_KEY, Script, Sse, World};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::sync::OnceLock;

/// The shared server. Each test uses its own models.
fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(World::start)
}

fn error(status: u16, kind: &str, code: &str, message: &str) -> Script {
    Script::error(status, json!({"error": {"type": kind, "code": code, "message": message}}))
}

/// Creates an error inside a 200 response, for the streams of both wires.
fn inside(kind: &str, code: &str, message: &str) -> Script {
    Script::new().error_event(json!({"type": kind, "code": code, "message": message}))
}

#[test]
fn temporary_failures_are_retried_unnoticed() {
    let cases = [
        ("limited", Script::rate_limited(1)),
        ("broken", error(500, "server_error", "", "oops")),
        ("overloaded", error(529, "overloaded_error", "", "Overloaded")),
        ("asked-to", error(400, "odd", "", "try again").header("x-should-retry", "true")),
        ("cut-early", Script::new().cut()),
        ("inside", inside("overloaded_error", "", "Overloaded")),
    ];
    for wire in ["openai", "anthropic"] {
        for (name, trouble) in &cases {
            let model = format!("{wire}-{name}");
            let chat = world().chat(&format!("{wire}/{model}"));
            world().model.script(&model, trouble.clone());
            world().model.script(&model, Script::text(["Here I am."]));
            let answer = chat.say("hello");
            assert_eq!(answer["reply"]["text"], "Here I am.", "{model}: {answer}");
            let expected =
                ["session.created", "turn.started", "message.completed", "usage.updated", "turn.completed"];
            assert_eq!(chat.log_types(), expected, "{model}");
            let received = world().received(&model);
            assert_eq!((received.len(), &received[0].body), (2, &received[1].body), "{model}");
        }
    }
}

#[test]
fn permanent_failures_fail_the_turn_with_a_stable_code() {
    let long = "This model's maximum context length is 8192 tokens.";
    let quota = "You exceeded your current quota.";
    // The provider's error, the code for clients, whether it is retryable, and the number of requests to the
    // provider.
    let cases = [
        ("exhausted", error(500, "server_error", "", "oops"), "provider_unavailable", true, 4),
        ("patience", Script::rate_limited(3600), "provider_rate_limited", true, 1),
        (
            "asked-not-to",
            error(500, "e", "", "no").header("x-should-retry", "false"),
            "provider_unavailable",
            false,
            1,
        ),
        (
            "billing",
            error(429, "insufficient_quota", "insufficient_quota", quota),
            "provider_billing",
            false,
            1,
        ),
        (
            "billing-inside",
            inside("insufficient_quota", "insufficient_quota", quota),
            "provider_billing",
            false,
            1,
        ),
        ("payment", error(402, "billing_error", "", "pay"), "provider_billing", false, 1),
        (
            "credit",
            error(400, "invalid_request_error", "", "Your credit balance is too low"),
            "provider_billing",
            false,
            1,
        ),
        ("auth", error(401, "authentication_error", "invalid_api_key", "bad key"), "provider_auth", false, 1),
        ("overflow-code", Script::overflow(), "context_overflow", false, 1),
        (
            "overflow-text",
            error(400, "invalid_request_error", "", "prompt is too long: 9 tokens > 8 maximum"),
            "context_overflow",
            false,
            1,
        ),
        (
            "overflow-413",
            error(413, "request_too_large", "", "Request exceeds the maximum size"),
            "context_overflow",
            false,
            1,
        ),
        (
            "overflow-inside",
            inside("invalid_request_error", "context_length_exceeded", long),
            "context_overflow",
            false,
            1,
        ),
        (
            "invalid",
            error(400, "invalid_request_error", "", "messages: must not be empty"),
            "provider_invalid_request",
            false,
            1,
        ),
        (
            "unknown",
            error(404, "not_found_error", "model_not_found", "no such model"),
            "provider_invalid_request",
            false,
            1,
        ),
    ];
    std::thread::scope(|scope| {
        for (name, trouble, code, retryable, requests) in cases {
            scope.spawn(move || {
                for wire in ["openai", "anthropic"] {
                    let model = format!("{wire}-{name}");
                    let chat = world().chat(&format!("{wire}/{model}"));
                    (0..requests).for_each(|_| world().model.script(&model, trouble.clone()));
                    let answer = chat.say("hello");
                    let ended = (&answer["status"], &answer["stop_reason"], &answer["reply"]);
                    assert_eq!(ended, (&json!("failed"), &json!("error"), &Value::Null), "{model}");
                    let failed = (&answer["error"]["code"], &answer["error"]["retryable"]);
                    assert_eq!(failed, (&json!(code), &json!(retryable)), "{model}: {answer}");
                    assert_eq!(
                        chat.log_types(),
                        ["session.created", "turn.started", "turn.failed"],
                        "{model}"
                    );
                    assert_eq!(world().received(&model).len(), requests, "{model}");
                    let turn = chat.get(&format!("/turns/{}", answer["turn_id"].as_str().unwrap()));
                    assert_eq!(
                        (&turn["status"], &turn["error"]),
                        (&json!("failed"), &answer["error"]),
                        "{model}"
                    );
                }
            });
        }
    });
}

#[test]
fn a_turn_after_a_failed_one_works() {
    let chat = world().chat("openai/next");
    world().model.script("next", error(401, "authentication_error", "invalid_api_key", "bad key"));
    world().model.script("next", Script::text(["Back."]));
    let failed = chat.stream(json!({"content": "first"})).last().unwrap();
    assert_eq!(
        (failed.event.as_str(), &failed.json()["error"]["code"]),
        ("turn.failed", &json!("provider_auth"))
    );
    assert_eq!(chat.say("second")["reply"]["text"], "Back.");
    assert_eq!(chat.transcript(), ["user: first", "user: second", "assistant: Back."]);
}

/// Returns the text of deltas since the last `turn.resumed`.
fn text_since_resumed(events: &[Event]) -> String {
    let start = events.iter().rposition(|e| e.event == "turn.resumed").unwrap();
    let deltas = events[start..].iter().filter(|e| e.event == "message.delta");
    deltas.map(|e| e.json()["delta"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_cut_during_text_restarts_the_message() {
    for (wire, reason) in
        [("openai", "cut"), ("openai", "error"), ("anthropic", "cut"), ("anthropic", "error")]
    {
        let (model, gate) = (format!("{wire}-mid-{reason}"), Gate::new());
        let chat = world().chat(&format!("{wire}/{model}"));
        let half = Script::text(["The answer is forty-"]).hold(&gate);
        world().model.script(
            &model,
            match reason {
                "cut" => half.cut(),
                _ => half.error_event(json!({"type": "overloaded_error", "message": "Overloaded"})),
            },
        );
        world().model.script(&model, Script::text(["It is ", "42."]));
        let mut stream = chat.stream(json!({"content": "what is it?"}));
        let mut events = stream.until_type("message.delta");
        assert_eq!(events.last().unwrap().json()["delta"], "The answer is forty-");
        // A new reader and one that was connected see the same.
        let mut late = chat.client.stream(&chat.path("/events?until=idle"));
        late.until_type("message.delta");
        gate.open();
        events.extend(stream);
        for events in [events, late.collect()] {
            let resumed = events.iter().find(|e| e.event == "turn.resumed").unwrap();
            let why = if reason == "cut" { "provider_stream_cut" } else { "provider_unavailable" };
            assert_eq!(
                (resumed.id.as_deref(), &resumed.json()["reason"]),
                (Some("3"), &json!(why)),
                "{model}"
            );
            assert_eq!(text_since_resumed(&events), "It is 42.", "{model}");
            let message = events.iter().find(|e| e.event == "message.completed").unwrap();
            assert_eq!(message.json()["message"]["parts"], json!([{"type": "text", "text": "It is 42."}]));
            let delta = events.iter().rfind(|e| e.event == "message.delta").unwrap();
            assert_eq!((delta.id.as_deref(), message.id.as_deref()), (Some("4.9"), Some("4")), "{model}");
        }
        let log = [
            "session.created",
            "turn.started",
            "turn.resumed",
            "message.completed",
            "usage.updated",
            "turn.completed",
        ];
        assert_eq!(chat.log_types(), log);
        assert_eq!(chat.transcript(), ["user: what is it?", "assistant: It is 42."]);
        assert!(!json!(chat.log()).to_string().contains("forty"));
    }
}

#[test]
fn a_call_with_cut_off_arguments_never_runs() {
    for wire in ["openai", "anthropic"] {
        let model = format!("{wire}-half-call");
        let chat = world().chat(&format!("{wire}/{model}"));
        world().model.script(&model, Script::new().tool_text("a", "echo", r#"{"text": "hal"#).cut());
        world().model.script(&model, Script::new().tool("b", "echo", json!({"text": "whole"})));
        world().model.script(&model, Script::text(["ok"]));
        chat.say("go");
        assert_eq!(chat.transcript(), ["user: go", "assistant: [b]", "tool: b=result", "assistant: ok"]);
    }
}

#[test]
fn responses_are_parsed_however_they_arrive() {
    let thought = "Mal sehen … ";
    let said = ["Grüße, ", "Welt", " 🌍\n", "und\r\nZeilen"];
    let whole = said.concat();
    for wire in ["openai", "anthropic"] {
        let script =
            Script::text(said).raw(": a comment\n\n").raw("event: novelty\ndata: {\"type\":\"novelty\"}\n\n");
        for (name, script) in
            [("plain", script.clone()), ("crlf", script.clone().crlf()), ("bytes", script.byte_by_byte())]
        {
            let model = format!("{wire}-{name}");
            let chat = world().chat(&format!("{wire}/{model}"));
            world().model.script(
                &model,
                script.think(thought).tool("a", "echo", json!({"text": whole})).usage(9, 4, 2),
            );
            world().model.script(&model, Script::text(["ok"]));
            let events: Vec<Event> = chat.stream(json!({"content": "go"})).collect();
            let joined = |kind: &str| -> String {
                let of_kind = events.iter().filter(|e| e.event == kind);
                of_kind.map(|e| e.json()["delta"].as_str().unwrap().to_owned()).collect()
            };
            assert_eq!(joined("message.delta"), format!("{whole}ok"), "{model}");
            assert_eq!(joined("reasoning.delta"), thought, "{model}");
            let args: Value = serde_json::from_str(&joined("tool.input_delta")).unwrap();
            assert_eq!(args, json!({"text": whole}), "{model}");
            let result = events.iter().find(|e| e.event == "tool.completed").unwrap();
            assert_eq!(result.json()["result"], json!(whole), "{model}");
            assert_eq!(events.last().unwrap().json()["usage"]["total_tokens"], 26, "{model}");
        }
    }
}

/// The pieces of a response that the runtime reads ahead.
fn pieces() -> Vec<String> {
    (0..2_000).map(|n| format!("piece {n} ")).collect()
}

/// Starts a turn whose model says these pieces and then waits at a gate. Returns the stream behind all of them.
fn read_ahead(chat: &Chat, pieces: &[String]) -> Sse {
    let mut events = chat.stream(json!({"content": "go"}));
    let mut text = String::new();
    while text.len() < pieces.concat().len() {
        text += &delta(&events.next().unwrap());
    }
    assert_eq!(text, pieces.concat());
    events
}

/// Returns the text that an event adds.
fn delta(event: &Event) -> String {
    let delta = (event.event == "message.delta").then(|| event.json()["delta"].as_str().unwrap().to_owned());
    delta.unwrap_or_default()
}

#[test]
fn a_long_response_arrives_while_the_model_responds_and_is_whole_cut_or_aborted() {
    let world = World::start();
    for (wire, ending) in
        [("openai", "whole"), ("anthropic", "whole"), ("openai", "cut"), ("openai", "aborted")]
    {
        let (model, gate) = (format!("{wire}-{ending}"), Gate::new());
        let (first, rest) = (pieces(), pieces());
        let script = Script::text(first.iter().map(String::as_str)).hold(&gate);
        let script = rest.iter().fold(script, |script, piece| script.say(piece));
        world.model.script(&model, if ending == "cut" { script.cut() } else { script });
        world.model.script(&model, Script::text(["Again."]));
        let chat = world.chat(&format!("{wire}/{model}"));
        let events = read_ahead(&chat, &first);
        let reply = match ending {
            "aborted" => {
                chat.post("/abort", json!({})).expect(200);
                world.wait_for_abort(&model);
                first.concat()
            }
            _ => {
                gate.open();
                if ending == "cut" { "Again.".to_owned() } else { [first, rest].concat().concat() }
            }
        };
        assert_eq!(events.last().unwrap().json()["reply"]["text"], reply, "{model}");
    }
}

#[test]
fn the_providers_key_is_never_exposed() {
    let world = World::start();
    let leak = format!("Incorrect API key provided: {PROVIDER_KEY}. Got Bearer {PROVIDER_KEY}");
    for wire in ["openai", "anthropic"] {
        for (name, trouble) in [
            ("refused", error(401, "authentication_error", "invalid_api_key", &leak)),
            ("inside", inside("authentication_error", "invalid_api_key", &leak)),
            ("broken", error(400, "invalid_request_error", "", &leak)),
        ] {
            let model = format!("{wire}-{name}");
            let chat = world.chat(&format!("{wire}/{model}"));
            world.model.script(&model, trouble);
            let end = chat.stream(json!({"content": "hello"})).last().unwrap();
            let shown = end.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(!shown.contains("Incorrect API key") && shown.contains(wire), "{shown}");
            world.server.expect_log("Incorrect API key provided: [redacted]");
            for seen in
                [end.data, json!(chat.log()).to_string(), chat.get("").to_string(), world.server.log()]
            {
                assert!(!seen.contains(PROVIDER_KEY), "{seen}");
            }
            let sent = &world.received(&model)[0];
            let header = if wire == "openai" { "authorization" } else { "x-api-key" };
            assert!(sent.header(header).unwrap().ends_with(PROVIDER_KEY));
            assert!(!sent.body.to_string().contains(PROVIDER_KEY));
        }
    }
    let log = world.server.log();
    assert!(!log.contains(PROVIDER_KEY), "{log}");
    assert!(!world.server.state_holds(PROVIDER_KEY.as_bytes()));
}
