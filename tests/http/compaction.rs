//! Compaction with the real Worker: on time, on request, and unchanged by a restart; in between, the prompt's
//! start stays the same for the provider's cache.

use crate::support::{Chat, Gate, Received, Script, World};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// Starts a world whose models have a window of 12,000 tokens, with a separate model for summaries.
fn world() -> World {
    let world = World::with(json!({
        "MEMORY_FLUSH": "never",
        "MODEL_WINDOWS": r#"{"openai/m": 12000, "openai/sum": 12000}"#,
        "CONTEXT_RESERVE": "2000",
        "COMPACTION_MODEL": "openai/sum",
    }));
    world.model.choose(|request| {
        (request["model"] == "sum").then(|| Script::text(["## Intent\n", "To count."]).no_usage())
    });
    world
}

fn say(world: &World, chat: &Chat, n: usize) -> Value {
    world.model.script("m", Script::text(["Counted."]).no_usage());
    chat.say(&format!("Number {n}. {}", "word ".repeat(400)))
}

/// Returns the conversation of a request, without instructions and dated text.
fn conversation(request: &Received) -> Vec<Value> {
    let messages = request.body["messages"].as_array().unwrap();
    messages.iter().filter(|message| message["role"] != "system").cloned().collect()
}

fn completed(chat: &Chat) -> Vec<Value> {
    chat.log().into_iter().filter(|record| record["type"] == "compaction.completed").collect()
}

#[test]
fn a_long_conversation_stays_within_the_window_with_a_stable_start() {
    let mut world = world();
    let chat = world.chat("openai/m");
    for n in 0..30 {
        assert_eq!(say(&world, &chat, n)["status"], "completed");
    }
    let cuts = completed(&chat);
    assert!(cuts.len() >= 2, "{cuts:?}");
    for cut in &cuts {
        assert_eq!(cut["reason"], "tokens");
        assert!(cut["dropped"].as_u64() > Some(3) && cut["summary_tokens"].as_u64() > Some(2), "{cut}");
        assert!(cut["tokens_after"].as_u64() < cut["tokens_before"].as_u64(), "{cut}");
    }
    let asked = world.received("m");
    let moved = asked.windows(2).filter(|two| !conversation(&two[1]).starts_with(&conversation(&two[0])));
    assert!(moved.count() <= cuts.len(), "only compactions change the start of the prompt");
    for request in &asked {
        let words = request.body["messages"].to_string().matches("word").count();
        assert!(words < 8_000, "{words} words");
    }
    let last = conversation(asked.last().unwrap());
    assert!(last[0]["content"].as_str().unwrap().ends_with("## Intent\nTo count."), "{}", last[0]);
    // The log is complete.
    let messages = chat.get("/messages?limit=200");
    assert_eq!(messages["data"].as_array().unwrap().len(), 60);

    // On request; a restart does not change the prompt.
    let answer = chat.post("/compact", json!({})).expect(200);
    let fields = ["compacted", "dropped", "summary_tokens", "tokens_before", "tokens_after"];
    assert!(fields.iter().all(|field| answer.get(field).is_some()), "{answer}");
    assert_eq!(chat.post("/compact", json!({})).expect(200)["compacted"], false);
    say(&world, &chat, 30);
    world.server.restart();
    let chat = Chat::new(world.server.client(), &chat.id);
    say(&world, &chat, 31);
    let asked = world.received("m");
    let (before, after) = (conversation(&asked[30]), conversation(&asked[31]));
    assert!(after.starts_with(&before), "{before:#?}\n{after:#?}");
    assert_eq!(after.len(), before.len() + 2);
}

#[test]
fn a_compaction_request_is_refused_where_it_is_impossible() {
    let world = world();
    let chat = world.chat("openai/m");
    for n in 0..8 {
        say(&world, &chat, n);
    }
    let gate = Gate::new();
    world.model.script("m", Script::text(["Wait."]).hold(&gate).no_usage());
    chat.begin(json!({ "content": "Go." }));
    gate.reached();
    assert_eq!(chat.post("/compact", json!({})).expect(409)["code"], "session_busy");
    gate.open();
    chat.until_idle();
    world.model.choose(|request| {
        let refused = json!({ "error": { "message": "no", "type": "invalid_request_error" } });
        (request["model"] == "sum").then(|| Script::error(401, refused))
    });
    let problem = chat.post("/compact", json!({}));
    assert_eq!(problem.expect(503)["code"], "unavailable");
    assert!(chat.log_types().contains(&"compaction.failed".to_owned()));
    let foreign = chat.client.post(&format!("{}?user=other", chat.path("/compact")), json!({}));
    assert_eq!(foreign.expect(404)["code"], "not_found");
    world
        .model
        .choose(|request| (request["model"] == "sum").then(|| Script::text(["All of it."]).no_usage()));
    let with_key = chat.client.with_header("idempotency-key", "k");
    let first = with_key.post(&chat.path("/compact"), json!({})).expect(200);
    assert_eq!(first["compacted"], true);
    assert_eq!(with_key.post(&chat.path("/compact"), json!({})).expect(200), first);
}

#[test]
fn after_an_overflow_the_request_is_compacted_and_retried() {
    let world = world();
    let chat = world.chat("openai/m");
    for n in 0..6 {
        say(&world, &chat, n);
    }
    world.model.script("m", Script::overflow());
    assert_eq!(say(&world, &chat, 6)["reply"]["text"], "Counted.");
    let cuts = completed(&chat);
    assert_eq!(cuts.last().unwrap()["reason"], "overflow");
    let asked = world.received("m");
    assert!(conversation(&asked[7]).len() < conversation(&asked[6]).len());
}
