//! An agent of a crate of its own, `examples/my-agent`: its tool, its hook, its provider.

use crate::support::{ADMIN_KEY, Chat, DEV_API_KEY, Launch, ModelServer, Script, Server};
use serde_json::{Value, json};

fn start(more: Value) -> Server {
    let mut bindings = json!({ "DEV_API_KEY": DEV_API_KEY, "ADMIN_KEY": ADMIN_KEY });
    for (name, value) in more.as_object().unwrap() {
        bindings[name] = value.clone();
    }
    Server::launch(Launch {
        config: "examples/my-agent/wrangler.toml",
        main: "build/index.js",
        bindings,
        databases: None,
    })
}

#[test]
fn its_tool_runs_and_its_hook_is_asked_first() {
    let server = start(json!({}));
    let chat = Chat::new(server.client(), "dice");
    let roll = |count: u32| {
        chat.say(&format!("/tool dice {{\"sides\": 1, \"count\": {count}}}"))["reply"]["text"].clone()
    };
    assert_eq!(roll(2), "dice → [1,1]");
    let denied = roll(11);
    assert!(denied.as_str().unwrap().contains("this table allows at most 10 dice"), "{denied}");
}

#[test]
fn its_provider_answers_once_it_has_a_key() {
    let model = ModelServer::start();
    model.script("m", Script::text(["Place your bets."]));
    let providers =
        json!([{"name": "house", "base_url": model.base_url(), "key": "HOUSE_KEY", "default_model": "m"}]);
    let server = start(json!({ "PROVIDERS": providers.to_string(), "HOUSE_KEY": "k" }));
    let chat = Chat::new(server.client(), "bets");
    assert_eq!(chat.say("Hello")["reply"]["text"], "Place your bets.");
    assert_eq!(model.received()[0].header("authorization"), Some("Bearer k"));
}
