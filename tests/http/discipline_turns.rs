//! Limits of a turn, its steps, and its end, as clients and models see them.

use crate::support::{
    Chat, Event, Gate, Received, Script, World, log, log::of_type, millis, outcomes, result_text,
    system_text, tail_text,
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::sync::OnceLock;

/// The shared server. Each test uses its own models.
fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(World::start)
}

/// Creates a session whose model gives these responses.
fn chat_of(model: &str, answers: impl IntoIterator<Item = Script>) -> Chat {
    let chat = world().chat(&format!("openai/{model}"));
    answers.into_iter().for_each(|answer| world().model.script(model, answer));
    chat
}

fn say(text: &str) -> Script {
    Script::text([text])
}

fn echo(id: &str) -> Script {
    Script::new().tool(id, "echo", json!({"text": id}))
}

fn fail(id: &str) -> Script {
    Script::new().tool(id, "fail", json!({"retryable": true, "message": id}))
}

/// Returns the limits that were exceeded according to the log.
fn exceeded(chat: &Chat) -> Vec<Value> {
    of_type(&chat.log(), "budget.exceeded").iter().map(|record| record["limit"].clone()).collect()
}

fn body(request: &Received) -> &Value {
    &request.body
}

#[test]
fn a_plain_reply_takes_one_step() {
    let chat = chat_of("plain", [say("Hello.").usage(12, 0, 3)]);
    let answer = chat.say("hi");
    let turn = chat.turn(&answer);
    assert_eq!((&turn["status"], &turn["steps"]), (&json!("completed"), &json!(1)));
    assert_eq!((&turn["usage"]["total_tokens"], &turn["reply"]["text"]), (&json!(15), &json!("Hello.")));
    assert_eq!((&turn["model"], &turn["reflections"]), (&json!("openai/plain"), &json!(0)));
    assert_eq!(turn["prompt_render_hash"].as_str().unwrap().len(), 64);
    assert_eq!(chat.transcript(), ["user: hi", "assistant: Hello."]);
    assert_eq!(exceeded(&chat), [] as [Value; 0]);
}

#[test]
fn an_endless_loop_ends_at_the_step_limit_with_a_summary() {
    let ids = ["c0", "c1", "c2", "c3", "c4", "c5"];
    // One model writes the summary, the other calls tools even then.
    for (wire, last, reply) in [
        ("openai", say("So far: six."), Some("So far: six.")),
        ("anthropic", say("So far: six."), Some("So far: six.")),
        ("openai", echo("c6"), None),
    ] {
        let model = format!("endless-{wire}-{}", reply.is_some());
        let chat = world().chat(&format!("{wire}/{model}"));
        ids.into_iter().for_each(|id| world().model.script(&model, echo(id).usage(10, 0, 5)));
        world().model.script(&model, last.usage(100, 0, 50));
        let answer = chat.ask(json!({"content": "go", "budget": {"max_steps": 6}}));
        assert_eq!((&answer["status"], &answer["stop_reason"]), (&json!("completed"), &json!("max_steps")));
        let text = answer["reply"]["text"].as_str().unwrap();
        assert!(reply.map_or(!text.is_empty(), |reply| text == reply), "{model}: {text:?}");
        let turn = chat.turn(&answer);
        assert_eq!(
            (&turn["steps"], outcomes(&turn)),
            (&json!(6), ids.map(|id| format!("{id} result")).into())
        );
        assert_eq!(turn["usage"]["total_tokens"], 6 * 15 + 150);
        assert_eq!(exceeded(&chat), ["max_steps"]);

        let asked = world().received(&model);
        assert_eq!(asked.len(), 7);
        let choices: Vec<_> = asked.iter().map(|request| &body(request)["tool_choice"]).collect();
        let none = if wire == "openai" { json!("none") } else { json!({"type": "none"}) };
        assert_eq!(*choices[6], none);
        assert!(choices[..6].iter().all(|choice| **choice != none), "{choices:?}");
        assert_eq!(body(&asked[6])["tools"], body(&asked[5])["tools"], "the provider's cache must hit");
        assert!(body(&asked[6]).to_string().contains("no steps left"), "the model reads the reason");
    }
}

#[test]
fn a_stalled_model_is_abandoned_at_the_deadline() {
    let gate = Gate::new();
    let chat = chat_of("stalled", [Script::new().hold(&gate)]);
    let answer = chat.ask(json!({"content": "go", "budget": {"timeout_s": 2}}));
    assert_eq!((&answer["status"], &answer["stop_reason"]), (&json!("completed"), &json!("deadline")));
    assert!(answer["reply"]["text"].as_str().unwrap().contains("out of time"), "{answer}");
    let turn = chat.turn(&answer);
    let took = millis(&turn["ended_at"]) - millis(&turn["started_at"]);
    // The model would have stalled forever. A busy machine may be late, but not by this much.
    assert!((2_000..15_000).contains(&took), "it took {took} ms");
    assert_eq!(exceeded(&chat), ["deadline"]);
    world().wait_for_abort("stalled");
    // The stream and the log agree.
    let events: Vec<Event> = chat.client.stream(&chat.path("/events?until=idle")).collect();
    log::transcript(&events).check();
}

#[test]
fn without_time_left_no_tool_starts() {
    // Of two seconds, the first call leaves less than one for the next.
    let two = [("a", "sleep", json!({"ms": 1_050})), ("b", "write", json!({"key": "v", "value": 1}))];
    let chat = chat_of("no-time", [Script::new().tools(two), say("In short.")]);
    let answer = chat.ask(json!({"content": "go", "budget": {"timeout_s": 2}}));
    assert_eq!(answer["stop_reason"], "deadline");
    assert_eq!(outcomes(&chat.turn(&answer)), ["a result", "b denied deadline"]);
    assert_eq!(chat.get("")["state"], json!({}));
    assert!(!answer["reply"]["text"].as_str().unwrap().is_empty());
}

#[test]
fn every_limit_ends_a_turn_with_its_own_reason() {
    let all = |id: &str| [echo(id).usage(600, 0, 400), say("Summed up."), say("Never said.")];
    for (budget, reason, reply) in [
        (json!({"max_steps": 1}), "max_steps", "Summed up."),
        (json!({"max_tool_calls": 0}), "max_tool_calls", "Summed up."),
        (json!({"max_tokens": 1_000}), "tokens", "used up"),
    ] {
        let model = format!("bound-{reason}");
        let chat = chat_of(&model, all("a"));
        let answer = chat.ask(json!({"content": "go", "budget": budget}));
        assert_eq!((&answer["status"], &answer["stop_reason"]), (&json!("completed"), &json!(reason)));
        assert!(answer["reply"]["text"].as_str().unwrap().contains(reply), "{answer}");
        assert_eq!(exceeded(&chat), [reason]);
        assert_eq!(chat.turn(&answer)["calls"].as_array().unwrap().len(), 1);
        // The next turn has its own budget.
        world().model.script(&model, say("Never said."));
        assert_eq!(chat.say("and?")["stop_reason"], "end");
    }
}

#[test]
fn cost_is_counted_and_limits_a_turn() {
    let mut world = World::start();
    let prices = json!({"openai/priced": {"input": 10.0, "output": 100.0, "cache_read": 1.0}});
    world.server.restart_with(json!({"MODEL_PRICES": prices.to_string()}));
    let chat = world.chat("openai/priced");
    // 1000 of 2000 input tokens are cached: $0.001 + $0.01, and $0.01 for the response.
    world.model.script("priced", echo("a").usage(2_000, 1_000, 100));
    world.model.script("priced", echo("b").usage(2_000, 1_000, 100));
    let answer = chat.ask(json!({"content": "go", "budget": {"max_cost_usd": 0.03}}));
    assert_eq!((&answer["status"], &answer["stop_reason"]), (&json!("completed"), &json!("cost")));
    assert!(answer["reply"]["text"].as_str().unwrap().contains("used up"), "{answer}");
    let turn = chat.turn(&answer);
    assert!((turn["cost_usd"].as_f64().unwrap() - 0.042).abs() < 1e-9, "{turn}");
    assert_eq!(
        (outcomes(&turn), exceeded(&chat)),
        (vec!["a result".into(), "b result".into()], vec![json!("cost")])
    );
    // Without a price the cost cannot be counted.
    let unpriced = world.chat("openai/unpriced");
    let body = json!({"content": "go", "budget": {"max_cost_usd": 1.0}});
    let refused = unpriced.post("/messages", body).expect(422);
    assert_eq!(refused["errors"][0]["pointer"], "/budget/max_cost_usd");
}

#[test]
fn the_prompt_hash_changes_with_the_prompt() {
    let mut world = World::start();
    let chat = world.chat("openai/hash");
    let hash = |world: &World, body: Value| {
        world.model.script("hash", say("ok"));
        let chat = Chat::new(world.server.client(), &chat.id);
        let answer = chat.ask(body);
        chat.turn(&answer)["prompt_render_hash"].as_str().unwrap().to_owned()
    };
    let first = hash(&world, json!({"content": "one"}));
    assert_eq!(hash(&world, json!({"content": "two"})), first);
    world.server.restart();
    assert_eq!(hash(&world, json!({"content": "three"})), first);
    assert_ne!(hash(&world, json!({"content": "four", "tools": ["echo"]})), first, "fewer tools");
    world.server.restart_with(json!({"INSTRUCTIONS": "Speak like a pirate."}));
    let edited = hash(&world, json!({"content": "five"}));
    assert_ne!(edited, first);
    assert_eq!(hash(&world, json!({"content": "six"})), edited);
    let mentioned: Vec<bool> =
        world.received("hash").iter().map(|request| system_text(request).contains("pirate")).collect();
    assert_eq!(mentioned, [false, false, false, false, true, true]);
}

#[test]
fn only_a_thinking_model_reflects_on_a_failure() {
    let chat = chat_of("think-off", [fail("a"), say("ok")]);
    let answer = chat.ask(json!({"content": "go", "think": "off"}));
    assert_eq!(chat.turn(&answer)["reflections"], 0);
    assert_eq!(of_type(&chat.log(), "turn.reflected").len(), 0);

    let thought = say("CONTINUE. The second door is open.").usage(100, 0, 10);
    let chat = chat_of("think-low", [fail("a"), thought, echo("b"), say("ok")]);
    let answer = chat.ask(json!({"content": "go", "think": "low"}));
    let turn = chat.turn(&answer);
    assert_eq!((&turn["reflections"], &turn["steps"]), (&json!(1), &json!(3)));
    assert_eq!(outcomes(&turn), ["a failure", "b result"]);
    assert_eq!(turn["usage"]["total_tokens"], 3 * 15 + 110, "self-critiques count as usage");
    let log = chat.log();
    let reflected = of_type(&log, "turn.reflected");
    assert_eq!(reflected.len(), 1, "only the failed step is reviewed");
    assert_eq!(
        (&reflected[0]["should_continue"], &reflected[0]["note"], &reflected[0]["stub"]),
        (&json!(true), &json!("CONTINUE. The second door is open."), &Value::Null)
    );
    let asked = world().received("think-low");
    assert_eq!(body(&asked[1])["tool_choice"], "none");
    assert!(!asked[0].body.to_string().contains("second door"));
    assert!(asked[2..].iter().all(|request| tail_text(request).contains("second door")));
    assert!(asked.iter().all(|request| body(request)["reasoning_effort"] == "low"));
    // A self-critique is not a message.
    assert_eq!(
        chat.transcript(),
        [
            "user: go",
            "assistant: [a]",
            "tool: a=failure",
            "assistant: [b]",
            "tool: b=result",
            "assistant: ok"
        ]
    );
}

#[test]
fn the_fifth_reflection_is_skipped() {
    let mut answers = Vec::new();
    for n in 0..5 {
        answers.push(fail(&format!("c{n}")));
        if n < 4 {
            answers.push(say(&format!("CONTINUE with {n}.")));
        }
    }
    let chat = chat_of("five-thoughts", answers.into_iter().chain([say("I give up.")]));
    let answer = chat.ask(json!({"content": "go", "think": "medium"}));
    assert_eq!((&answer["stop_reason"], &answer["reply"]["text"]), (&json!("end"), &json!("I give up.")));
    let log = chat.log();
    let stubs: Vec<_> = of_type(&log, "turn.reflected")
        .iter()
        .map(|r| (r["stub"] == true, r["should_continue"] == true))
        .collect();
    assert_eq!(stubs, [(false, true), (false, true), (false, true), (false, true), (true, true)]);
    assert_eq!(chat.turn(&answer)["reflections"], 4);
    assert_eq!(world().received("five-thoughts").len(), 5 + 4 + 1);
}

#[test]
fn a_reflection_may_end_the_turn_and_may_fail() {
    let chat = chat_of("stop", [fail("a"), say("STOP. It cannot work."), say("It cannot be done.")]);
    let answer = chat.ask(json!({"content": "go", "think": "high"}));
    assert_eq!(
        (&answer["stop_reason"], &answer["reply"]["text"]),
        (&json!("end"), &json!("It cannot be done."))
    );
    assert_eq!(chat.turn(&answer)["steps"], 1);
    assert_eq!(body(&world().received("stop")[2])["tool_choice"], "none");

    let trouble = Script::error(500, json!({"error": {"type": "server_error", "message": "oops"}}));
    let chat = chat_of("no-thought", [fail("a"), trouble, say("ok")]);
    let answer = chat.ask(json!({"content": "go", "think": "low"}));
    assert_eq!((&answer["status"], &answer["reply"]["text"]), (&json!("completed"), &json!("ok")));
    assert_eq!(of_type(&chat.log(), "turn.reflected")[0]["stub"], true);
}

#[test]
fn a_failed_hook_after_the_reply_is_listed_and_undone() {
    let chat = chat_of("handover", [say("Here."), say("Here again.")]);
    chat.client.patch(&chat.path(""), json!({"state": {"break_handover": true}})).expect(200);
    let answer = chat.say("go");
    assert_eq!((&answer["status"], &answer["reply"]["text"]), (&json!("completed"), &json!("Here.")));
    assert_eq!(chat.turn(&answer)["sub_steps_failed"], json!(["memory_handover"]));
    let session = chat.get("");
    assert_eq!(session["state"], json!({"break_handover": true}), "its changes are undone");
    assert_eq!(session["usage"]["total_tokens"], 15, "later hooks still run");
    chat.client.patch(&chat.path(""), json!({"state": {"break_handover": null}})).expect(200);
    assert_eq!(chat.turn(&chat.say("again"))["sub_steps_failed"], json!([]));
}

#[test]
fn a_reply_cites_eight_sources_of_each_kind() {
    let cite = || Script::new().tool("c", "cite", json!({"local": 12, "web": 9}));
    let chat = chat_of("cited", [cite(), say("It is so.")]);
    let answer = chat.say("go");
    let text = answer["reply"]["text"].as_str().unwrap();
    let named: Vec<&str> = text.lines().filter(|line| line.starts_with("- ")).collect();
    let local = (1..=8).map(|n| format!("- notes/{n}.md"));
    let web = (1..=8).map(|n| format!("- Page {n}: https://example.com/{n}"));
    assert_eq!(named, local.chain(web).collect::<Vec<_>>());
    assert!(text.starts_with("It is so.\n\nSources:\n"), "{text}");
    let citations = chat.turn(&answer)["citations"].clone();
    assert_eq!(citations.as_array().unwrap().len(), 16);
    assert_eq!(citations[8], json!({"kind": "web", "url": "https://example.com/1", "title": "Page 1"}));
    // Readers of the stream receive the citations as well.
    let events: Vec<Event> = chat.client.stream(&chat.path("/events?until=idle")).collect();
    log::transcript(&events).check();

    let chat = chat_of("uncited", [cite(), say("It is so.")]);
    let answer = chat.ask(json!({"content": "go", "show_citations": false}));
    assert_eq!(answer["reply"]["text"], "It is so.");
    assert_eq!(chat.turn(&answer)["citations"], json!([]));
}

#[test]
fn killed_during_two_calls_the_idempotent_one_runs_again_and_the_other_is_unknown() {
    let mut world = World::start();
    let chat = world.chat("openai/killed");
    let count = format!("{}/count", world.model.base_url());
    let calls = [("a", "sleep", json!({"ms": 1_000})), ("b", "counter", json!({"url": count, "ms": 60_000}))];
    world.model.script("killed", Script::new().tools(calls));
    world.model.script("killed", say("I shall look."));
    chat.stream(json!({"content": "go"})).until_type("tool.started");
    world.server.restart();
    // The request triggers the recovery before the alarm does; then the second call has its effect.
    let chat = Chat::new(world.server.client(), &chat.id);
    let turn = json!({"turn_id": chat.get("")["current_turn"]});
    world.model.wait_for(2);
    world.server.restart();
    let chat = Chat::new(world.server.client(), &chat.id);
    chat.until_idle();

    let turn = chat.turn(&turn);
    assert_eq!(outcomes(&turn), ["a result", "b unknown"]);
    assert_eq!((&turn["status"], &turn["reply"]["text"]), (&json!("completed"), &json!("I shall look.")));
    let counted = world.model.received().iter().filter(|request| request.path == "/v1/count").count();
    assert_eq!(counted, 1);
    assert!(result_text(&world.received("killed")[1], "b").contains("may or may not"));
    let log = chat.log();
    log::check(&log);
    assert_eq!(of_type(&log, "turn.resumed").len(), 2);
}

fn number() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
        "additionalProperties": false})
}

#[test]
fn a_reply_that_must_be_json_is_returned_as_json() {
    for (model, text) in [("json", r#"{"n": 1}"#), ("json-fenced", "```json\n{\"n\": 1}\n```\n")] {
        let chat = chat_of(model, [echo("a"), say(text)]);
        let answer = chat.ask(json!({"content": "go", "output_schema": number()}));
        assert_eq!((&answer["status"], &answer["reply"]["output"]), (&json!("completed"), &json!({"n": 1})));
        assert_eq!(chat.turn(&answer)["reply"], answer["reply"]);
        let asked = world().received(model);
        assert_eq!(asked.len(), 2);
        assert!(tail_text(&asked[0]).contains("additionalProperties"), "the prompt contains the schema");
    }
}

#[test]
fn a_reply_that_does_not_match_the_schema_is_requested_once_more() {
    for (model, first) in [("json-prose", "The number is 1."), ("json-misfit", r#"{"n": "one"}"#)] {
        let chat = chat_of(model, [say(first), say(r#"{"n": 1}"#)]);
        let answer = chat.ask(json!({"content": "go", "output_schema": number()}));
        assert_eq!((&answer["stop_reason"], &answer["reply"]["output"]), (&json!("end"), &json!({"n": 1})));
        assert_eq!(chat.turn(&answer)["steps"], 2);
        let asked = world().received(model);
        assert_eq!(asked.len(), 2);
        assert!(!tail_text(&asked[0]).contains("did not fit"));
        assert!(tail_text(&asked[1]).contains("did not fit"), "the prompt says what was wrong");
        assert!(body(&asked[1])["messages"].to_string().contains(&json!(first).to_string()));
    }
}

#[test]
fn a_reply_that_never_matches_the_schema_fails_the_turn() {
    let chat = chat_of("json-never", [say(r#"{"n": "one"}"#), say(r#"{"m": 1}"#)]);
    let answer = chat.ask(json!({"content": "go", "output_schema": number()}));
    assert_eq!((&answer["status"], &answer["stop_reason"]), (&json!("failed"), &json!("error")));
    assert_eq!(answer["error"]["code"], "output_invalid");
    assert_eq!(answer["reply"]["output"], Value::Null);
    assert_eq!(chat.log_types().last().unwrap(), "turn.failed");
    assert_eq!(world().received("json-never").len(), 2);
    // The session continues.
    world().model.script("json-never", say("Fine."));
    assert_eq!(chat.say("never mind")["reply"]["text"], "Fine.");
}
