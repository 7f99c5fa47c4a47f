//! A Worker of a crate of its own, the copy of `examples/my-agent` that `make new` creates: its tool, its hook, its
//! provider.

use crate::support::{ADMIN_KEY, Chat, DEV_API_KEY, Launch, ModelServer, Script, Server};
use serde_json::{Value, json};
use std::path::Path;

/// Path of the crate, from the root of the repository.
const CRATE: &str = "target/new/my-agent";

/// Starts the Worker with these variables and secrets.
pub fn start(more: Value) -> Server {
    let main = Path::new(env!("CARGO_MANIFEST_DIR")).join(CRATE).join("build/index.js");
    assert!(main.exists(), "the Worker is not built; first run: make new build DIR={CRATE}");
    let mut bindings = json!({ "DEV_API_KEY": DEV_API_KEY, "ADMIN_KEY": ADMIN_KEY });
    for (name, value) in more.as_object().unwrap() {
        bindings[name] = value.clone();
    }
    Server::launch(Launch {
        config: Path::new(CRATE).join("wrangler.toml"),
        main: "build/index.js",
        bindings,
        databases: None,
        inspected: false,
        page: true,
    })
}

#[test]
fn its_tool_runs_unless_its_hook_denies_it() {
    let server = start(json!({}));
    let reply = |user: &str| {
        let body = json!({ "content": "/tool dice {\"sides\": 1, \"count\": 2}", "user": user });
        let turn = server.client().post(&format!("/v1/sessions/of-{user}/messages"), body).expect(200);
        turn["reply"]["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(reply("ann"), "dice → [1,1]");
    let denied = reply("mallory");
    assert!(denied.contains("this user may not play"), "{denied}");
}

#[test]
fn a_custom_provider_responds_once_it_has_a_key() {
    let model = ModelServer::start();
    model.script("m", Script::text(["Place your bets."]));
    let providers =
        json!([{"name": "house", "base_url": model.base_url(), "key": "HOUSE_KEY", "default_model": "m"}]);
    let server = start(json!({ "PROVIDERS": providers.to_string(), "HOUSE_KEY": "k" }));
    let chat = Chat::new(server.client(), "bets");
    assert_eq!(chat.say("Hello")["reply"]["text"], "Place your bets.");
    assert_eq!(model.received()[0].header("authorization"), Some("Bearer k"));
}
