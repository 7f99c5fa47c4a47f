//! A provider rejects a request as too long: the context is compacted once and the step retried, for any
//! wording of the rejection and at any step of the turn.

use crate::support::{Chat, Received, Script, World};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{sync::OnceLock, thread};

/// The shared server. Each test uses its own models, and one model writes the summaries.
fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let world = World::with(json!({ "MEMORY_FLUSH": "never", "COMPACTION_MODEL": "openai/summary" }));
        world.model.choose(|request| {
            (request["model"] == "summary").then(|| Script::text(["They spoke of many things."]))
        });
        world
    })
}

const LONG: &str =
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000.";

/// The forms of the rejection: a code, a message with a status, a status, during the stream, and as finish
/// reason.
fn shapes() -> Vec<(&'static str, &'static str, Script)> {
    let error = |status: u16, kind: &str, code: &str, message: &str| {
        Script::error(status, json!({"error": {"type": kind, "code": code, "message": message}}))
    };
    let inside = |script: Script, kind: &str, code: &str, message: &str| {
        script.error_event(json!({"type": kind, "code": code, "message": message}))
    };
    let (invalid, exceeded) = ("invalid_request_error", "context_length_exceeded");
    vec![
        ("openai", "code", Script::overflow()),
        ("openai", "text", error(400, "BadRequestError", "400", LONG)),
        ("openai", "inside", inside(Script::new(), invalid, exceeded, LONG)),
        ("openai", "late", inside(Script::text(["I was about to"]), invalid, exceeded, LONG)),
        ("anthropic", "text", error(400, invalid, "", "prompt is too long: 210000 tokens > 200000 maximum")),
        ("anthropic", "413", error(413, "request_too_large", "", "Request exceeds the maximum size")),
        (
            "anthropic",
            "inside",
            inside(Script::new(), invalid, "", "prompt is too long: 9 tokens > 8 maximum"),
        ),
        ("anthropic", "end", Script::text(["Half an "]).finish("model_context_window_exceeded")),
    ]
}

/// Posts messages that are long enough to be compacted.
fn talk(chat: &Chat, model: &str) {
    for n in 0..4 {
        world().model.script(model, Script::text(["Noted, and remembered for later. "; 20]));
        chat.say(&format!("Part {n}: {}", "all of this matters to me. ".repeat(40)));
    }
}

/// Returns the text of a request on either wire.
fn text(request: &Received) -> String {
    request.body["messages"].to_string()
}

#[test]
fn every_provider_recovers_in_the_same_step() {
    thread::scope(|scope| {
        for (wire, name, trouble) in shapes() {
            scope.spawn(move || {
                let model = format!("{wire}-{name}");
                let chat = world().chat(&format!("{wire}/{model}"));
                talk(&chat, &model);
                world().model.script(&model, trouble);
                world().model.script(&model, Script::text(["Here I am."]));
                let answer = chat.say("And now?");
                assert_eq!(answer["reply"]["text"], "Here I am.", "{model}: {answer}");
                assert_eq!(answer["status"], "completed", "{model}");

                let received = world().received(&model);
                let [.., before, after] = received.as_slice() else { panic!("{model}: too few requests") };
                assert_eq!(received.len(), 6, "{model}");
                assert!(text(after).len() < text(before).len(), "{model}");
                assert_eq!(text(after).matches("And now?").count(), 1, "{model}");
                assert_eq!(text(after).matches("They spoke of many things.").count(), 1, "{model}");
                let types = chat.log_types();
                for once in ["compaction.started", "compaction.completed"] {
                    assert_eq!(types.iter().filter(|kind| *kind == once).count(), 1, "{model}: {types:?}");
                }
                // No message is missing or duplicate.
                let said = chat.transcript();
                assert_eq!(said.len(), 10, "{model}: {said:?}");

                // The next turn continues from there.
                world().model.script(&model, Script::text(["Gladly."]));
                assert_eq!(chat.say("Thanks!")["reply"]["text"], "Gladly.", "{model}");
                let next = world().received(&model).pop().unwrap();
                assert_eq!(text(&next).matches("They spoke of many things.").count(), 1, "{model}");
                assert_eq!(text(&next).matches("Here I am.").count(), 1, "{model}");
            });
        }
    });
}

#[test]
fn a_later_step_recovers_with_its_calls_and_results() {
    let (model, chat) = ("later", world().chat("openai/later"));
    talk(&chat, model);
    world().model.script(model, Script::new().tool("c1", "echo", json!({"text": "echoed"})));
    world().model.script(model, Script::overflow());
    world().model.script(model, Script::text(["Done."]));
    let answer = chat.say("Use the tool.");
    assert_eq!(answer["reply"]["text"], "Done.", "{answer}");
    let last = world().received(model).pop().unwrap();
    let messages = last.body["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().rev().take(3).map(|line| line["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["tool", "assistant", "user"], "{messages:?}");
    assert_eq!(chat.turn(&answer)["calls"].as_array().unwrap().len(), 1);
}

#[test]
fn a_second_rejection_fails_the_turn() {
    let (model, chat) = ("twice", world().chat("openai/twice"));
    talk(&chat, model);
    (0..2).for_each(|_| world().model.script(model, Script::overflow()));
    let answer = chat.say("And now?");
    assert_eq!((&answer["status"], &answer["error"]["code"]), (&json!("failed"), &json!("context_overflow")));
    assert_eq!(world().received(model).len(), 6);

    // The compaction remains, and the session continues.
    world().model.script(model, Script::text(["Better."]));
    assert_eq!(chat.say("Better now?")["reply"]["text"], "Better.");
    let last = world().received(model).pop().unwrap();
    assert_eq!(text(&last).matches("They spoke of many things.").count(), 1);
    assert_eq!(text(&last).matches("And now?").count(), 1);
}

#[test]
fn a_huge_message_is_shortened_in_the_prompt_and_complete_in_the_log() {
    let (model, chat) = ("huge", world().chat("openai/huge"));
    world().model.script(model, Script::overflow());
    world().model.script(model, Script::text(["I see its ends."]));
    let said = format!("It begins here. {} It ends here.", "something of no weight ".repeat(4_000));
    let answer = chat.say(&said);
    assert_eq!(answer["reply"]["text"], "I see its ends.", "{answer}");
    let received = world().received(model);
    let shown = text(&received[1]);
    assert!(shown.len() < text(&received[0]).len() * 3 / 4, "{}", shown.len());
    assert!(
        shown.contains("It begins here.") && shown.contains("It ends here.") && shown.contains("left out")
    );
    let kept = chat.get("/messages")["data"][0]["parts"][0]["text"].clone();
    assert_eq!(kept, Value::from(said));
}

#[test]
fn usage_includes_the_share_of_the_window() {
    let (model, chat) = ("used", world().chat("openai/used"));
    world().model.script(model, Script::text(["Hello."]).usage(1_000, 0, 24));
    let answer = chat.say("hello");
    assert_eq!(answer["usage"]["window"], json!({ "used": 1_024, "limit": 128_000 }), "{answer}");
    assert_eq!(chat.get("")["usage"]["window"]["used"], 1_024);
}
