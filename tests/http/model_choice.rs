//! The model of a session, models that take over when others fail, and tools that are found among many.

use crate::support::{Chat, Script, World, log::of_type};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

/// Stores an agent, and creates a session with it.
fn session(world: &World, agent: &str, definition: Value) -> Chat {
    let client = world.server.client();
    client.put(&format!("/v1/agents/{agent}"), definition).expect(201);
    let session = client.post("/v1/sessions", json!({ "agent": agent })).expect(201);
    Chat::new(client, session["id"].as_str().unwrap())
}

#[test]
fn a_model_of_another_provider_takes_over_with_its_price_and_window() {
    let price = |input: f64| json!({"input": input, "output": 0.0});
    let world = World::with(json!({
        "MEMORY_FLUSH": "never",
        "MODEL_PRICES": json!({
            "openai/first": price(1.0), "anthropic/second": price(10.0),
            "anthropic/first": price(1.0), "openai/second": price(10.0),
        }).to_string(),
        "MODEL_WINDOWS": json!({"anthropic/second": 50_000, "openai/second": 50_000}).to_string(),
    }));
    for (wire, other) in [("openai", "anthropic"), ("anthropic", "openai")] {
        let (first, second) = (format!("{wire}/first"), format!("{other}/second"));
        let chat = session(&world, wire, json!({"model": first, "fallback_models": [second]}));
        world.model.script("first", Script::rate_limited(3600));
        let call = Script::new().tool("c1", "write_file", json!({"path": "a.txt", "content": "a"}));
        world.model.script("second", call.usage(1_000, 0, 10));
        world.model.script("second", Script::text(["Done."]).usage(1_000, 0, 10));
        let answer = chat.ask(json!({"content": "go", "budget": {"max_cost_usd": 1.0}}));
        assert_eq!(answer["reply"]["text"], "Done.", "{answer}");
        assert_eq!(answer["usage"]["window"]["limit"], 50_000);
        let turn = chat.turn(&answer);
        assert!((turn["cost_usd"].as_f64().unwrap() - 0.02).abs() < 1e-9, "{turn}");
        let log = chat.log();
        let changed = of_type(&log, "model.fallback");
        assert_eq!(changed.len(), 1);
        assert_eq!(
            (&changed[0]["previous"], &changed[0]["model"], &changed[0]["reason"]),
            (&json!(first), &json!(second), &json!("provider_rate_limited"))
        );
        assert!(of_type(&log, "usage.updated").iter().all(|record| record["model"] == json!(second)));

        // The next turn starts with the session's model.
        world.model.script("first", Script::text(["Here again."]));
        assert_eq!(chat.say("and now?")["reply"]["text"], "Here again.");
    }
    assert_eq!((world.received("first").len(), world.received("second").len()), (4, 4));
}

#[test]
fn another_model_takes_over_from_a_refused_account_only_if_the_operator_says_so() {
    let mut world = World::start();
    let models = json!({"model": "openai/refused", "fallback_models": ["anthropic/other"]});
    let chat = session(&world, "strict", models.clone());
    let refusal = || Script::error(401, json!({"error": {"message": "no"}}));
    world.model.script("refused", refusal());
    assert_eq!(chat.say("go")["error"]["code"], "provider_auth");

    world.server.restart_with(json!({"FALLBACK_FOR_ACCOUNT": "1"}));
    let chat = session(&world, "lenient", models);
    world.model.script("refused", refusal());
    world.model.script("other", Script::text(["I can."]));
    assert_eq!(chat.say("go")["reply"]["text"], "I can.");
}

#[test]
fn the_model_of_a_session_is_its_own() {
    let world = World::start();
    let [one, other] = [(); 2].map(|()| world.chat("openai/before"));
    let model = |chat: &Chat| chat.get("")["model"].clone();
    one.client.patch(&one.path(""), json!({"model": "openai/after"})).expect(200);
    assert_eq!((model(&one), model(&other)), (json!("openai/after"), json!("openai/before")));
    world.model.script("after", Script::text(["After."]));
    world.model.script("before", Script::text(["Before."]));
    assert_eq!(one.say("go")["reply"]["text"], "After.");
    assert_eq!(other.say("go")["reply"]["text"], "Before.");
}

#[test]
fn a_tool_among_many_is_found_and_called() {
    let world = World::start();
    let tool = |name: String, description: String| json!({"name": name, "description": description, "category": "read", "effect": "read_only"});
    let many = (0..31).map(|n| tool(format!("crm_{n:02}"), format!("Reads table {n} of customers.")));
    let forecast = tool("forecast".into(), "Forecasts rain and wind for a city.".into());
    let tools: Vec<Value> = many.chain([forecast]).collect();
    let chat = session(&world, "crowded", json!({"model": "openai/crowd", "external_tools": tools}));
    world.model.script("crowd", Script::new().tool("f", "find_tools", json!({"query": "rain in a city"})));
    world.model.script("crowd", Script::new().tool("c", "call_tool", json!({"name": "forecast"})));
    world.model.script("crowd", Script::text(["It rains."]));
    let waits = chat.say("customers of table 3");
    let pending = &waits["pending"][0];
    assert_eq!((&pending["kind"], &pending["name"]), (&json!("external"), &json!("forecast")), "{waits}");
    let path = format!("/answers/{}", pending["call_id"].as_str().unwrap());
    chat.post(&path, json!({"answer": "Rain."})).expect(200);
    chat.until_idle();
    let log = chat.log();
    let done = of_type(&log, "tool.completed");
    assert_eq!(done.iter().map(|record| &record["name"]).collect::<Vec<_>>(), ["find_tools", "forecast"]);
    assert_eq!(done[0]["result"][0]["name"], "forecast");
    let offered = |n: usize| world.received("crowd")[n].body["tools"].clone();
    let names: Vec<Value> =
        offered(0).as_array().unwrap().iter().map(|tool| tool["function"]["name"].clone()).collect();
    assert!(names.contains(&json!("crm_03")) && !names.contains(&json!("forecast")), "{names:?}");
    assert_eq!((offered(0), offered(1)), (offered(1), offered(2)), "the start of the prompt is stable");
}
