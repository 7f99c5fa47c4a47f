//! Notes replace messages in the real Worker, even if it dies while they are taken.

use crate::support::{Gate, Received, Script, World, log::of_type, result_text};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns all words `fact…` of a text, each followed by a space.
fn facts(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| word.starts_with("fact"));
    words.map(|word| format!("{word} ")).collect()
}

fn said(request: &Received) -> String {
    let messages = request.body["messages"].as_array().unwrap().iter();
    messages.map(|message| message["content"].as_str().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Makes the model `o` take notes: the facts of the messages. Its first response waits for the gate.
fn take_notes(world: &World, gate: &Gate) {
    let (gate, asked) = (gate.clone(), AtomicU32::new(0));
    world.model.choose(move |request: &Value| {
        if request["model"] != "o" {
            return None;
        }
        let text = request["messages"].as_array()?.last()?["content"].as_str()?;
        let (_, messages) = text.split_once("\nMessages:\n")?;
        let notes = format!("<observations>\n* 🟡 (12:00) {}\n</observations>", facts(messages));
        let first = asked.fetch_add(1, Ordering::Relaxed) == 0;
        let script = if first { Script::new().hold(&gate) } else { Script::new() };
        Some(script.say(&notes))
    });
}

#[test]
fn a_long_conversation_is_remembered_in_notes() {
    let mut world = World::with(json!({
        "MEMORY_FLUSH": "never", "CONTEXT_STRATEGY": "observation", "OBSERVE_AT": "1000", "OBSERVER_MODEL": "openai/o",
    }));
    let gate = Gate::new();
    take_notes(&world, &gate);
    let chat = world.chat("openai/m");
    let say = |world: &World, fact: u32| {
        world.model.script("m", Script::text(["Hm."]));
        chat.say(&format!("fact{fact} {}", "word ".repeat(300)));
    };
    say(&world, 1);
    chat.until_logged("observation.started");
    // The server dies while notes are taken.
    world.server.restart();
    gate.open();
    say(&world, 2);
    chat.until_logged("observation.buffered");
    let waiting = chat.get("")["context"].clone();
    assert_eq!((&waiting["strategy"], &waiting["observed_tokens"]), (&json!("observation"), &json!(0)));
    assert!(waiting["pending_tokens"].as_u64() > Some(600), "{waiting}");
    for fact in 3..=5 {
        say(&world, fact);
    }
    let activated = chat.until_logged("observation.activated");
    assert_eq!(activated["triggered_by"], "threshold");
    world.server.restart();

    world.model.script("m", Script::new().tool("c1", "recall", json!({ "message": 2 })));
    world.model.script("m", Script::text(["I remember."]));
    chat.say("fact6 What was the first thing that I said?");
    let asked = world.received("m").pop().unwrap();
    let said = said(&asked);
    let recalled = result_text(&asked, "c1");
    assert!(
        recalled.contains("user: fact1 word word") && recalled.contains("messages 2-2, "),
        "{recalled:.200}"
    );
    let mut shown: Vec<String> =
        facts(&said.replace(&recalled, "")).split_whitespace().map(str::to_owned).collect();
    shown.sort();
    let expected: Vec<String> = (1..=6).map(|fact| format!("fact{fact}")).collect();
    assert_eq!(shown, expected, "each fact once, in notes or messages");
    assert!(!said.replace(&recalled, "").contains("fact1 word") && !said.contains('🟡'));

    let progress = chat.get("")["context"].clone();
    assert!(progress["observed_tokens"].as_u64() > Some(0) && progress["generation"] == 0, "{progress}");
    let log = chat.log();
    let chunks = [of_type(&log, "observation.buffered"), of_type(&log, "observation.completed")].concat();
    let mut next = 2;
    for record in &chunks {
        assert_eq!(record["chunk"]["from"], next, "{record}");
        next = record["chunk"]["to"].as_u64().unwrap() + 1;
    }
    assert!(chunks.len() >= 2);
}

#[test]
fn the_demo_model_takes_notes_without_a_key() {
    let world = World::with(json!({
        "MEMORY_FLUSH": "never", "CONTEXT_STRATEGY": "observation", "OBSERVE_AT": "500", "DEFAULT_MODEL": "demo/echo",
    }));
    let chat = world.chat("demo/echo");
    chat.say(&format!("My cat is called Mia. {}", "word ".repeat(600)));
    let completed = chat.until_logged("observation.completed");
    assert!(
        completed["chunk"]["text"].as_str().unwrap().contains("user: My cat is called Mia."),
        "{completed}"
    );
    let answer = chat.say("And now?");
    assert_eq!(answer["status"], "completed");
}
