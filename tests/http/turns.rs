//! Turns, from the user's message to the stored session.

use crate::support::{Chat, Event, Gate, Script, World, shared};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::sync::OnceLock;

/// A Worker for tests that do not restart it. Each test uses its own models.
fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(World::start)
}

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.event.as_str()).collect()
}

fn strings<'a>(values: impl IntoIterator<Item = &'a Value>) -> Vec<&'a str> {
    values.into_iter().map(|value| value.as_str().unwrap()).collect()
}

#[test]
fn text_is_streamed_while_the_model_responds() {
    let (chat, gate) = (world().chat("openai/pieces"), Gate::new());
    world().model.script("pieces", Script::text(["Grüße"]).hold(&gate).say(", Welt"));
    let mut stream = chat.stream(json!({"content": "hello"}));
    let before = stream.until_type("message.delta");
    assert_eq!(names(&before), ["turn.started", "message.delta"]);
    assert_eq!(before[0].json()["message"]["parts"][0]["text"], "hello");
    let first = before[1].json();
    assert_eq!((first["delta"].as_str(), before[1].id.as_deref()), (Some("Grüße"), Some("3.7")));

    let turn = before[0].json()["turn"].as_str().unwrap().to_owned();
    let running = chat.get(&format!("/turns/{turn}"));
    assert_eq!((&running["status"], &running["stop_reason"]), (&json!("running"), &Value::Null));
    let session = chat.get("");
    assert_eq!((&session["status"], &session["current_turn"]), (&json!("running"), &json!(turn)));

    gate.open();
    let rest: Vec<Event> = stream.by_ref().collect();
    assert!(!stream.cut);
    assert_eq!(stream.retry, Some(2000));
    assert_eq!(names(&rest), ["message.delta", "message.completed", "usage.updated", "turn.completed"]);
    assert_eq!(rest[0].json()["delta"], ", Welt");
    let ids: Vec<_> = rest.iter().map(|event| event.id.as_deref().unwrap()).collect();
    assert_eq!(ids, ["3.13", "3", "4", "5"]);
    let message = rest[1].json()["message"].clone();
    assert_eq!(message["id"], first["id"]);
    assert_eq!(message["parts"], json!([{"type": "text", "text": "Grüße, Welt"}]));
    let end = rest[3].json();
    assert_eq!((&end["reply"]["text"], &end["reply"]["id"]), (&json!("Grüße, Welt"), &first["id"]));
}

#[test]
fn a_reply_arrives_as_json_or_after_a_receipt() {
    let (chat, gate) = (world().chat("openai/answers"), Gate::new());
    world().model.script("answers", Script::text(["Hi."]).usage(100, 40, 7));
    let answer = chat.say("hello");
    let expected = json!({
        "turn_id": answer["turn_id"], "status": "completed", "stop_reason": "end", "pending": [],
        "reply": {"id": answer["reply"]["id"], "text": "Hi.", "parts": [{"type": "text", "text": "Hi."}]},
        "usage": {"input_tokens": 100, "output_tokens": 7, "cache_read_tokens": 40, "cache_write_tokens": 0,
            "reasoning_tokens": 0, "total_tokens": 107, "window": {"used": 107, "limit": 128_000}},
    });
    assert_eq!(answer, expected);

    world().model.script("answers", Script::new().hold(&gate).say("Later."));
    let client = chat.client.with_header("prefer", "respond-async");
    let receipt = client.post(&chat.path("/messages"), json!({"parts": [{"type": "text", "text": "again"}]}));
    let location = receipt.header("location").unwrap().to_owned();
    let receipt = receipt.expect(202);
    assert_eq!(receipt["status"], "running");
    assert_eq!(location, chat.path(&format!("/turns/{}", receipt["turn_id"].as_str().unwrap())));
    assert_eq!(client.get(&location).expect(200)["status"], "running");
    gate.open();
    chat.until_idle();
    let turn = client.get(&location).expect(200);
    assert_eq!(turn["id"], receipt["turn_id"]);
    assert_eq!((&turn["status"], &turn["stop_reason"]), (&json!("completed"), &json!("end")));
    assert_eq!((&turn["reply"]["text"], &turn["usage"]["total_tokens"]), (&json!("Later."), &json!(15)));
    let budget = json!({"max_steps": 50, "max_tool_calls": 100, "timeout_s": 600, "tool_timeout_s": 45,
        "max_reflections": 4});
    assert_eq!((&turn["budget"], &turn["calls"]), (&budget, &json!([])));
    assert_eq!(chat.get("")["usage"]["total_tokens"], 122);
}

/// Returns a tool's output as the model reads it.
fn marked(text: &str) -> String {
    format!("<untrusted_output>\n{text}\n</untrusted_output>")
}

/// Runs the same three steps on either wire.
fn three_steps(wire: &str) -> (Chat, Vec<Value>) {
    let (world, model) = (world(), format!("loop-{wire}"));
    let chat = world.chat(&format!("{wire}/{model}"));
    let first = Script::new().think("Hm.").say("Let me see.").tool("c1", "echo", json!({"text": "ünö"}));
    world.model.script(&model, first.usage(10, 0, 1));
    let two = [("c3", "sleep", json!({"ms": 1})), ("c2", "echo", json!({"text": "two"}))];
    world.model.script(&model, Script::new().tools(two).usage(200, 20, 2));
    world.model.script(&model, Script::text(["Done."]).usage(3000, 300, 3));

    let answer = chat.say("go");
    assert_eq!((&answer["reply"]["text"], &answer["stop_reason"]), (&json!("Done."), &json!("end")));
    let usage = &answer["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(3210), &json!(6)));
    assert_eq!((&usage["cache_read_tokens"], &usage["total_tokens"]), (&json!(320), &json!(3216)));

    let turn = chat.get(&format!("/turns/{}", answer["turn_id"].as_str().unwrap()));
    assert_eq!((&turn["steps"], &turn["usage"]), (&json!(3), usage));
    let calls: Vec<_> =
        turn["calls"].as_array().unwrap().iter().map(|c| (&c["call_id"], &c["result"])).collect();
    let expected = [("c1", "ünö"), ("c3", "slept 1 ms"), ("c2", "two")].map(|(id, r)| (json!(id), json!(r)));
    assert_eq!(calls, expected.iter().map(|(id, result)| (id, result)).collect::<Vec<_>>());
    let bodies: Vec<Value> = world.received(&model).into_iter().map(|r| r.body).collect();
    assert_eq!(bodies.len(), 3);
    (chat, bodies)
}

#[test]
fn three_steps_over_openai() {
    let (chat, bodies) = three_steps("openai");
    for body in &bodies {
        assert_eq!(body["tools"], bodies[0]["tools"]);
        let names = strings(body["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]));
        assert!(names.is_sorted() && names.contains(&"echo"), "{names:?}");
        assert_eq!(
            (&body["stream"], &body["stream_options"]),
            (&json!(true), &json!({"include_usage": true}))
        );
    }
    let messages = bodies[2]["messages"].as_array().unwrap();
    let call = |id: &str, name: &str, args: Value| json!({"id": id, "type": "function", "function": {"name": name, "arguments": args.to_string()}});
    let expected = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call("c1", "echo", json!({"text": "ünö"}))]},
        {"role": "tool", "tool_call_id": "c1", "content": marked("ünö")},
        {"role": "assistant", "content": null, "tool_calls":
            [call("c3", "sleep", json!({"ms": 1})), call("c2", "echo", json!({"text": "two"}))]},
        {"role": "tool", "tool_call_id": "c3", "content": marked("slept 1 ms")},
        {"role": "tool", "tool_call_id": "c2", "content": marked("two")},
    ]);
    assert_eq!(json!(messages[2..]), expected);
    assert_eq!(strings(messages[..2].iter().map(|m| &m["role"])), ["system", "system"]);
    // Each request extends the previous one, so that the provider's cache hits.
    assert_eq!(bodies[1]["messages"], json!(messages[..5]));
    assert_eq!(bodies[0]["messages"], json!(messages[..3]));
    let said = [
        "user: go",
        "assistant: <reasoning> Let me see. [c1]",
        "tool: c1=result",
        "assistant: [c3] [c2]",
        "tool: c3=result",
        "tool: c2=result",
        "assistant: Done.",
    ];
    assert_eq!(chat.transcript(), said);
}

#[test]
fn three_steps_over_anthropic() {
    let (_, bodies) = three_steps("anthropic");
    let body = &bodies[2];
    let names = strings(body["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]));
    assert!(names.is_sorted() && names.contains(&"echo"), "{names:?}");

    let marker = json!({"type": "ephemeral"});
    let mut plain = body["messages"].as_array().unwrap().clone();
    for block in plain.iter_mut().flat_map(|m| m["content"].as_array_mut().unwrap()) {
        block.as_object_mut().unwrap().remove("cache_control");
    }
    let thinking = json!({"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"});
    assert_eq!(
        plain[0]["content"].as_array().unwrap().last().unwrap(),
        &json!({"type": "text", "text": "go"})
    );
    assert_eq!(
        json!(plain[1..]),
        json!([
            {"role": "assistant", "content": [thinking, {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "c1", "name": "echo", "input": {"text": "ünö"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": marked("ünö")}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c3", "name": "sleep", "input": {"ms": 1}},
                {"type": "tool_use", "id": "c2", "name": "echo", "input": {"text": "two"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c3", "content": marked("slept 1 ms")},
                {"type": "tool_result", "tool_use_id": "c2", "content": marked("two")}]},
        ])
    );

    assert_eq!(body["tools"].as_array().unwrap().last().unwrap()["cache_control"], marker);
    assert_eq!(body["system"].as_array().unwrap().last().unwrap()["cache_control"], marker);
    let end = &body["messages"].as_array().unwrap().last().unwrap()["content"];
    assert_eq!(end.as_array().unwrap().last().unwrap()["cache_control"], marker);
    assert!(body.to_string().matches("cache_control").count() <= 4);
}

#[test]
fn reads_overlap_and_results_keep_the_order_of_the_calls() {
    let world = world();
    let chat = world.chat("openai/parallel");
    let count = format!("{}/count", world.model.base_url());
    let calls = [
        ("a", "sleep", json!({"ms": 400})),
        ("b", "sleep", json!({"ms": 200})),
        ("c", "sleep", json!({"ms": 0})),
        ("d", "counter", json!({"url": count})),
        ("e", "sleep", json!({"ms": 0})),
    ];
    world.model.script("parallel", Script::new().tools(calls));
    world.model.script("parallel", Script::text(["ok"]));
    chat.say("go");
    let log = chat.log();
    let done: Vec<_> = log.iter().filter(|record| record["type"] == "tool.completed").collect();
    assert_eq!(strings(done.iter().map(|record| &record["call_id"])), ["a", "b", "c", "d", "e"]);
    // Sequential reads would have ended one after the other.
    let ends: Vec<_> = done.iter().map(|record| &record["at"]).collect();
    assert_eq!((ends[0], ends[1]), (ends[1], ends[2]));
    let results = &world.received("parallel")[1].body["messages"];
    let ids = results.as_array().unwrap().iter().filter(|m| m["role"] == "tool").map(|m| &m["tool_call_id"]);
    assert_eq!(strings(ids), ["a", "b", "c", "d", "e"]);
    let counted = world.model.received().into_iter().filter(|r| r.path == "/v1/count").count();
    assert_eq!(counted, 1);
}

#[test]
fn failed_calls_become_results_that_the_model_reads() {
    let world = world();
    let chat = world.chat("openai/trouble");
    let script = Script::new()
        .tool("good1", "echo", json!({"text": "first"}))
        .tool("unknown", "make_coffee", json!({}))
        .tool("misfit", "echo", json!({"text": {"a": 7}}))
        .tool_text("broken", "echo", r#"{"text": "#)
        .tool("failing", "counter", json!({"url": "http://127.0.0.1:1/"}))
        .tool("panicking", "panic", json!({}))
        .tool("good2", "echo", json!({"text": "last"}));
    world.model.script("trouble", script);
    world.model.script("trouble", Script::text(["I see."]));
    let answer = chat.say("go");
    assert_eq!((&answer["status"], &answer["reply"]["text"]), (&json!("completed"), &json!("I see.")));

    let log = chat.log();
    let done: Vec<_> = log.iter().filter(|record| record["type"] == "tool.completed").collect();
    let outcomes: Vec<_> = done.iter().map(|r| [&r["call_id"], &r["outcome"], &r["denied"]]).collect();
    assert_eq!(
        json!(outcomes),
        json!([
            ["good1", "result", null],
            ["unknown", "denied", "unknown_tool"],
            ["misfit", "denied", "validation"],
            ["broken", "denied", "validation"],
            ["failing", "failure", null],
            ["panicking", "failure", null],
            ["good2", "result", null],
        ])
    );
    let received = &world.received("trouble")[1].body["messages"];
    let read: Vec<_> = received.as_array().unwrap().iter().filter(|m| m["role"] == "tool").collect();
    assert_eq!(read.len(), 7);
    for (message, record) in read.iter().zip(&done) {
        assert_eq!(message["tool_call_id"], record["call_id"]);
        let shown = record["reason"].as_str().or(record["result"].as_str()).unwrap();
        assert!(message["content"].as_str().unwrap().contains(shown), "{message}");
    }
    let texts = strings(read.iter().map(|m| &m["content"]));
    assert!(texts[1].contains("make_coffee") && texts[1].contains("echo"), "{}", texts[1]);
    assert!(texts[2].contains("/text: invalid type: object"), "{}", texts[2]);
}

#[test]
fn budgets_end_turns_normally_with_a_reason() {
    let world = world();
    let call = |id: &str| Script::new().tool(id, "echo", json!({"text": id}));

    let chat = world.chat("openai/steps");
    world.model.script("steps", call("a").say("Working."));
    world.model.script("steps", Script::text(["That far."]));
    let answer = chat.ask(json!({"content": "go", "budget": {"max_steps": 1}}));
    assert_eq!((&answer["status"], &answer["stop_reason"]), (&json!("completed"), &json!("max_steps")));
    assert_eq!((&answer["reply"]["text"], world.received("steps").len()), (&json!("That far."), 2));

    let chat = world.chat("openai/calls");
    let two = [("b", "echo", json!({"text": "b"})), ("c", "echo", json!({"text": "c"}))];
    world.model.script("calls", Script::new().tools(two));
    world.model.script("calls", call("d"));
    world.model.script("calls", Script::text(["That much."]));
    let answer = chat.ask(json!({"content": "go", "budget": {"max_tool_calls": 1}}));
    assert_eq!((&answer["status"], &answer["stop_reason"]), (&json!("completed"), &json!("max_tool_calls")));
    assert_eq!(
        chat.transcript()[1..],
        [
            "assistant: [b] [c]",
            "tool: b=result",
            "tool: c=denied",
            "assistant: [d]",
            "tool: d=denied",
            "assistant: That much."
        ]
    );

    let chat = world.chat("openai/tokens");
    world.model.script("tokens", call("e").usage(900, 0, 100));
    let answer = chat.ask(json!({"content": "go", "budget": {"max_tokens": 1000}}));
    assert_eq!((&answer["status"], &answer["stop_reason"]), (&json!("completed"), &json!("tokens")));

    let chat = world.chat("openai/filter");
    world.model.script("filter", Script::new().tool("f", "current_time", json!({})));
    world.model.script("filter", Script::text(["ok"]));
    chat.ask(json!({"content": "go", "tools": ["echo"]}));
    let body = &world.received("filter")[0].body;
    assert_eq!(
        (body["tools"].as_array().unwrap().len(), &body["tools"][0]["function"]["name"]),
        (1, &json!("echo"))
    );
    assert_eq!(chat.transcript()[2], "tool: f=denied");

    let chat = world.chat("openai/slow-tool");
    let two = [("g", "sleep", json!({"ms": 60_000})), ("h", "echo", json!({"text": "h"}))];
    world.model.script("slow-tool", Script::new().tools(two));
    world.model.script("slow-tool", Script::text(["ok"]));
    chat.ask(json!({"content": "go", "budget": {"tool_timeout_s": 1}}));
    assert_eq!(chat.transcript()[2..], ["tool: g=timeout", "tool: h=result", "assistant: ok"]);
}

#[test]
fn a_deadline_keeps_the_partial_text_of_a_stalled_model() {
    let (world, gate) = (world(), Gate::new());
    let chat = world.chat("openai/stalled");
    world.model.script("stalled", Script::text(["Half an ans"]).hold(&gate));
    let answer = chat.ask(json!({"content": "go", "budget": {"timeout_s": 1}}));
    assert_eq!((&answer["status"], &answer["stop_reason"]), (&json!("completed"), &json!("deadline")));
    assert_eq!(answer["reply"]["text"], "Half an ans");
    world.wait_for_abort("stalled");
    assert_eq!(chat.get("/messages")["data"][1]["interrupted"], true);

    // The same with running tools: each call gets an outcome, and calls that may have run are not denied.
    let chat = world.chat("openai/stalled-tools");
    let count = format!("{}/stalled", world.model.base_url());
    let calls = [("a", "counter", json!({"url": count, "ms": 60_000})), ("b", "echo", json!({"text": "b"}))];
    world.model.script("stalled-tools", Script::new().tools(calls));
    let answer = chat.ask(json!({"content": "go", "budget": {"timeout_s": 3}}));
    assert_eq!((&answer["status"], &answer["stop_reason"]), (&json!("completed"), &json!("deadline")));
    let apology = format!("assistant: {}", answer["reply"]["text"].as_str().unwrap());
    assert!(apology.contains("out of time"), "{apology}");
    let said = ["assistant: [a] [b]", "tool: a=unknown", "tool: b=denied", &apology];
    assert_eq!(chat.transcript()[1..], said);
}

#[test]
fn an_abort_keeps_the_partial_text_and_closes_the_upstream() {
    let (world, gate) = (world(), Gate::new());
    let chat = world.chat("openai/aborted");
    world.model.script("aborted", Script::text(["Once upon"]).hold(&gate).say(" a time"));
    let mut stream = chat.stream(json!({"content": "tell me"}));
    stream.until_type("message.delta");
    let aborted = chat.post("/abort", json!({})).expect(200);
    assert_eq!((&aborted["aborted"], &aborted["status"]), (&json!(true), &json!("idle")));
    let rest: Vec<Event> = stream.by_ref().collect();
    assert_eq!(names(&rest), ["message.completed", "turn.canceled"]);
    assert_eq!(rest[0].json()["message"]["interrupted"], true);
    let end = rest[1].json();
    assert_eq!((&end["status"], &end["stop_reason"]), (&json!("canceled"), &json!("canceled")));
    assert_eq!(end["reply"]["text"], "Once upon");
    world.wait_for_abort("aborted");

    // Without a running turn there is nothing to abort or write.
    let before = chat.log().len();
    assert_eq!(chat.client.send("POST", &chat.path("/abort"), &[]).expect(200)["aborted"], false);
    assert_eq!(chat.log().len(), before);
    world.model.script("aborted", Script::text(["Fine."]));
    chat.say("stop it");
    let messages = world.received("aborted")[1].body["messages"].to_string();
    assert!(messages.contains("Once upon"), "{messages}");
    assert_eq!(
        chat.transcript(),
        ["user: tell me", "assistant: Once upon", "user: stop it", "assistant: Fine."]
    );
}

#[test]
fn queued_messages_run_in_order_and_can_be_removed() {
    let (world, gate) = (world(), Gate::new());
    let chat = world.chat("openai/queue");
    // The streamed text delays later records, but not the view of a turn's state.
    world.model.script("queue", Script::text(["o"]).hold(&gate).say("ne"));
    for reply in ["two", "four"] {
        world.model.script("queue", Script::text([reply]));
    }
    let mut running = chat.stream(json!({"content": "1"}));
    let first = running.until_type("message.delta")[0].json()["turn"].as_str().unwrap().to_owned();
    let queued = ["2", "3", "4"].map(|content| chat.begin(json!({"content": content, "on_busy": "queue"})));
    let session = chat.get("");
    assert_eq!((&session["status"], &session["current_turn"]), (&json!("running"), &json!(first)));
    let waiting = session["queue"].as_array().unwrap();
    assert_eq!(strings(waiting.iter().map(|item| &item["turn"])), queued.each_ref().map(String::as_str));
    let item = waiting[1]["id"].as_str().unwrap();
    assert_eq!(chat.get(&format!("/turns/{}", queued[2]))["status"], "running");

    assert_eq!(chat.client.delete(&chat.path(&format!("/queue/{item}"))).status, 204);
    assert_eq!(chat.client.delete(&chat.path(&format!("/queue/{item}"))).status, 404);
    assert_eq!(chat.get(&format!("/turns/{}", queued[1]))["status"], "canceled");
    gate.open();
    assert_eq!(running.by_ref().last().unwrap().event, "turn.completed");
    chat.until_idle();
    let said = ["user: 1", "assistant: one", "user: 2", "assistant: two", "user: 4", "assistant: four"];
    assert_eq!(chat.transcript(), said);
    let started: Vec<_> = chat.log().into_iter().filter(|record| record["type"] == "turn.started").collect();
    assert_eq!(strings(started.iter().map(|r| &r["turn"])), [&*first, &queued[0], &queued[2]]);
    assert_eq!(chat.get("")["queue"], json!([]));
}

#[test]
fn a_busy_session_rejects_or_is_steered() {
    let (world, gate) = (world(), Gate::new());
    let chat = world.chat("openai/busy");
    world.model.script("busy", Script::text(["I was say"]).hold(&gate));
    let mut running = chat.stream(json!({"content": "1"}));
    running.until_type("message.delta");
    let queued = chat.begin(json!({"content": "2"}));

    let before = (chat.log(), chat.get(""));
    let rejected = chat.post("/messages", json!({"content": "3", "on_busy": "reject"})).expect(409);
    assert_eq!(rejected["code"], "session_busy");
    assert_eq!((chat.log(), chat.get("")), before);

    world.model.script("busy", Script::text(["Steered."]));
    let answer = chat.post("/steer", json!({"content": "4"})).expect(200);
    assert_eq!((&answer["status"], &answer["reply"]["text"]), (&json!("completed"), &json!("Steered.")));
    assert_eq!(running.last().unwrap().event, "turn.canceled");
    world.wait_for_abort("busy");
    assert_eq!(chat.get(&format!("/turns/{queued}"))["status"], "canceled");
    let session = chat.get("");
    assert_eq!((&session["status"], &session["queue"]), (&json!("idle"), &json!([])));

    // The same with `on_busy`, while a tool runs.
    world.model.script("busy", Script::new().tool("a", "sleep", json!({"ms": 60_000})));
    let mut running = chat.stream(json!({"content": "5"}));
    running.until_type("tool.started");
    world.model.script("busy", Script::text(["Again."]));
    chat.ask(json!({"content": "6", "on_busy": "steer"}));
    assert_eq!(
        chat.transcript(),
        [
            "user: 1",
            "assistant: I was say",
            "user: 4",
            "assistant: Steered.",
            "user: 5",
            "assistant: [a]",
            "tool: a=denied",
            "user: 6",
            "assistant: Again."
        ]
    );
    let sent = world.received("busy").last().unwrap().body["messages"].to_string();
    assert!(sent.contains("Steered.") && !sent.contains("\"3\""), "{sent}");
}

#[test]
fn a_session_remembers_across_turns_and_restarts() {
    let mut world = World::start();
    for reply in ["Hello Ada.", "Ada.", "Still Ada."] {
        world.model.script("m", Script::text([reply]));
    }
    // An unknown id creates the session.
    let chat = Chat::new(world.server.client(), "user@example.com:chat");
    chat.say("I am Ada.");
    chat.say("Who am I?");
    let (log, messages) = (chat.log(), chat.get("/messages"));
    world.server.restart();
    assert_eq!((chat.log(), chat.get("/messages")), (log, messages));
    chat.say("And now?");
    let sent = world.received("m").pop().unwrap().body["messages"].as_array().unwrap().clone();
    let said: Vec<_> = sent.iter().filter(|m| m["role"] != "system").map(|m| &m["content"]).collect();
    assert_eq!(strings(said), ["I am Ada.", "Hello Ada.", "Who am I?", "Ada.", "And now?"]);
    let session = chat.get("");
    assert_eq!((&session["title"], &session["usage"]["total_tokens"]), (&json!("I am Ada."), &json!(45)));
    chat.log_types();
}

#[test]
fn the_log_has_the_expected_records_and_no_others() {
    let world = world();
    let chat = world.chat("openai/log");
    world.model.script("log", Script::text(["pl", "ain"]));
    chat.say("1");
    let plain = ["session.created", "turn.started", "message.completed", "usage.updated", "turn.completed"];
    assert_eq!(chat.log_types(), plain);
    world.model.script("log", Script::new().tool("a", "echo", json!({"text": "a"})));
    world.model.script("log", Script::text(["done"]));
    chat.say("2");
    let tool = [
        "turn.started",
        "tool.started",
        "usage.updated",
        "tool.completed",
        "message.completed",
        "usage.updated",
        "turn.completed",
    ];
    assert_eq!(chat.log_types()[5..], tool);
    for record in chat.log() {
        let at = record["at"].as_str().unwrap();
        assert!(at.starts_with("20") && at.ends_with('Z'), "{record}");
        assert_eq!(record["turn"].is_string(), record["type"] != "session.created", "{record}");
    }
}

#[test]
fn sessions_are_created_updated_and_shown() {
    let client = shared().client();
    let body =
        json!({"id": "crud:1", "title": "First", "user": "carol", "metadata": {"a": 1}, "unknown": true});
    let made = client.post("/v1/sessions", body.clone());
    assert_eq!(made.header("location"), Some("/v1/sessions/crud:1"));
    let made = made.expect(201);
    for (field, value) in [
        ("id", json!("crud:1")),
        ("agent", json!("default")),
        ("user", json!("carol")),
        ("title", json!("First")),
        ("status", json!("idle")),
        ("mode", json!("build")),
        ("model", Value::Null),
        ("pending", json!([])),
        ("queue", json!([])),
        ("metadata", json!({"a": 1})),
    ] {
        assert_eq!(made[field], value, "{field}");
    }
    assert_eq!(client.post("/v1/sessions", json!({"id": "crud:1", "title": "Second"})).expect(200), made);

    let patch = json!({"title": "New", "metadata": {"b": 2}, "mode": "plan", "model": "demo/echo",
        "state": {"x": 1, "y": null}, "permissions": {"tools": {"web_fetch": "deny"}, "web": 1}});
    let changed = client.patch("/v1/sessions/crud:1", patch.clone()).expect(200);
    assert_eq!(
        (&changed["title"], &changed["mode"], &changed["model"]),
        (&json!("New"), &json!("plan"), &json!("demo/echo"))
    );
    assert_eq!((&changed["metadata"], &changed["state"]), (&json!({"a": 1, "b": 2}), &json!({"x": 1})));
    let chat = Chat::new(client.clone(), "crud:1");
    assert_eq!(
        chat.log_types(),
        ["session.created", "session.updated", "mode.changed", "model.changed", "state.changed"]
    );
    let log = chat.log();
    assert_eq!(
        log[1]["changed"],
        json!({"title": "New", "metadata": {"a": 1, "b": 2}, "permissions": {
            "categories": {}, "tools": {"web_fetch": "deny"}, "patterns": [], "yolo": false, "grants": {},
        }})
    );
    assert_eq!((&log[2]["mode"], &log[2]["previous"]), (&json!("plan"), &json!("build")));
    assert_eq!(log[4]["changed_keys"], json!(["x"]));
    // An update without a change writes no event.
    assert_eq!(client.patch("/v1/sessions/crud:1", patch).expect(200)["updated_at"], changed["updated_at"]);
    assert_eq!(chat.log().len(), 5);
    // Permissions are merged member by member.
    let patch = json!({"permissions": {"tools": {"web_fetch": null, "echo": "ask"}, "yolo": true}});
    let merged = client.patch("/v1/sessions/crud:1", patch).expect(200);
    assert_eq!(
        (&merged["permissions"]["tools"], &merged["permissions"]["yolo"]),
        (&json!({"echo": "ask"}), &json!(true))
    );
    let bad = json!({"permissions": {"tools": {"echo": "never"}}});
    let refused = client.patch("/v1/sessions/crud:1", bad).expect(422);
    assert_eq!(refused["errors"][0]["pointer"], "/permissions/tools/echo");
    for (field, value) in [("model", "nonsense"), ("model", "demo/other"), ("mode", "nap")] {
        let refused = client.patch("/v1/sessions/crud:1", json!({field: value})).expect(422);
        assert_eq!(refused["errors"][0]["pointer"], format!("/{field}"));
    }
}

#[test]
fn lists_are_paged() {
    let client = shared().client();
    for n in 1..=5 {
        client.post("/v1/sessions", json!({"id": format!("page-{n}"), "user": "pager"})).expect(201);
    }
    let mut pages: Vec<Vec<String>> = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = client.get(&format!("/v1/sessions?user=pager&limit=2{cursor}")).expect(200);
        let ids = strings(page["data"].as_array().unwrap().iter().map(|session| &session["id"]));
        pages.push(ids.into_iter().map(str::to_owned).collect());
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(pages, [vec!["page-5", "page-4"], vec!["page-3", "page-2"], vec!["page-1"]]);
    assert_eq!(client.get("/v1/sessions?user=pager&agent=other").expect(200)["data"], json!([]));

    // A message with calls counts once, whatever its number of records.
    let chat = Chat::new(client, "page-1");
    for n in 1..=3 {
        chat.say(&format!("/say calling\n/tool echo {{\"text\": \"{n}\"}}\n/then /say {n}"));
    }
    let whole = chat.get("/messages")["data"].clone();
    assert_eq!(whole.as_array().unwrap().len(), 12);
    for limit in [1, 2, 5, 12] {
        let (mut paged, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = chat.get(&format!("/messages?limit={limit}{cursor}"));
            let data = page["data"].as_array().unwrap();
            assert!((1..=limit).contains(&data.len()), "limit {limit}: {page}");
            paged.extend(data.iter().cloned());
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(json!(paged), whole, "limit {limit}");
    }
}

#[test]
fn forks_are_independent() {
    let client = shared().client();
    let chat = Chat::new(client.clone(), "fork-source");
    client.post("/v1/sessions", json!({"id": chat.id, "user": "forker", "metadata": {"k": 1}})).expect(201);
    chat.say("/say one");
    chat.say("/say calling\n/tool echo {\"text\": \"t\"}\n/then /say two");
    let messages = chat.get("/messages")["data"].clone();
    let fork = |body: Value| {
        let made = chat.post("/fork", body).expect(201);
        Chat::new(client.clone(), made["id"].as_str().unwrap())
    };

    let (whole, source) = (fork(json!({})), chat.log());
    assert_ne!(whole.id, chat.id);
    assert_eq!(whole.get("/messages")["data"], messages);
    let session = whole.get("");
    assert_eq!(
        (&session["user"], &session["metadata"], &session["status"]),
        (&json!("forker"), &json!({"k": 1}), &json!("idle"))
    );
    assert_eq!(whole.log()[0]["forked_from"], json!(chat.id));
    let list = client.get("/v1/sessions?user=forker").expect(200);
    assert_eq!(list["data"].as_array().unwrap().len(), 2);

    let early = fork(json!({"at_message": messages[1]["id"]}));
    assert_eq!(early.transcript(), ["user: /say one", "assistant: one"]);
    // A fork in the middle of a turn closes its open call and ends the turn.
    let middle = fork(json!({"at_message": messages[3]["id"]}));
    assert_eq!(middle.transcript()[3..], ["assistant: calling [call_3_0]", "tool: call_3_0=denied"]);
    assert_eq!(middle.get("")["status"], "idle");

    whole.say("/say in the fork");
    early.say("/say elsewhere");
    middle.say("/say anywhere");
    assert_eq!(chat.log(), source);
    chat.say("/say at home");
    assert_eq!(whole.transcript().last().unwrap(), "assistant: in the fork");
    assert_eq!(early.transcript()[2..], ["user: /say elsewhere", "assistant: elsewhere"]);
    for fork in [&whole, &early, &middle] {
        fork.log_types();
    }
    let nowhere = chat.post("/fork", json!({"at_message": "msg_unknown"})).expect(422);
    assert_eq!(nowhere["errors"][0]["pointer"], "/at_message");
}

#[test]
fn a_fork_is_never_that_of_another_user() {
    let client = shared().client();
    let chat = Chat::new(client.with_header("idempotency-key", "the-fork"), "fork-place");
    let own = |user: &str| json!({"id": chat.id, "user": user, "metadata": {"of": user}});
    client.post("/v1/sessions", own("alice")).expect(201);
    let alices = chat.post("/fork", json!({})).expect(201);
    assert_eq!(client.delete("/v1/sessions/fork-place").status, 204);
    client.post("/v1/sessions", own("bob")).expect(201);
    let bobs = chat.post("/fork", json!({})).expect(201);
    assert_eq!((&bobs["user"], &bobs["metadata"]["of"]), (&json!("bob"), &json!("bob")));
    assert_ne!(bobs["id"], alices["id"]);
}

#[test]
fn a_deleted_session_leaves_nothing() {
    let client = shared().client();
    let chat = Chat::new(client.clone(), "deleted");
    client
        .post("/v1/sessions", json!({"id": "deleted", "user": "deleter", "metadata": {"old": true}}))
        .expect(201);
    let turn = chat.begin(json!({"content": "/slow 60000 5"}));
    let mut events = client.stream(&chat.path("/events"));
    events.until_type("turn.started");
    assert_eq!(client.delete(&chat.path("")).status, 204);
    assert_eq!(events.by_ref().count(), 0);
    for path in ["", "/messages", "/events", &format!("/turns/{turn}")] {
        client.get(&chat.path(path)).expect(404);
    }
    for path in ["/abort", "/fork"] {
        chat.post(path, json!({})).expect(404);
    }
    client.delete(&chat.path("")).expect(404);
    assert_eq!(client.get("/v1/sessions?user=deleter").expect(200)["data"], json!([]));

    let answer = chat.say("/say anew");
    assert_eq!(answer["reply"]["text"], "anew");
    assert_eq!(
        chat.log_types(),
        ["session.created", "turn.started", "message.completed", "usage.updated", "turn.completed"]
    );
    let session = chat.get("");
    assert_eq!((&session["user"], &session["metadata"]), (&json!("default"), &json!({})));
    client.get(&chat.path(&format!("/turns/{turn}"))).expect(404);
}
