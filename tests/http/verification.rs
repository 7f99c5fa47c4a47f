//! A client that runs the verification of what turns have changed.

use crate::support::{Chat, Script, World, log, log::of_type};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const AGENT: &str = "/v1/agents/checked";

/// Claims the verification that the turn waits for, and sends its result or its error, as a runner does.
#[track_caller]
fn verify(chat: &Chat, waits: &Value, mut result: Value) -> Value {
    assert_eq!(
        (&waits["status"], &waits["pending"][0]["name"]),
        (&json!("waiting"), &json!("check")),
        "{waits}"
    );
    let call = waits["pending"][0]["call_id"].as_str().unwrap();
    let path = format!("/v1/pending/{call}/claim?session={}", chat.id);
    chat.client.post(&path, json!({"runner": "one", "lease_s": 60})).expect(200);
    result["runner"] = "one".into();
    chat.post(&format!("/answers/{call}"), result).expect(200)
}

/// A session whose model gives these responses.
#[track_caller]
fn chat(world: &World, id: &str, responses: impl IntoIterator<Item = Script>) -> Chat {
    let client = world.server.client();
    let model = format!("openai/{id}");
    client.post("/v1/sessions", json!({"id": id, "agent": "checked", "model": model})).expect(201);
    responses.into_iter().for_each(|response| world.model.script(id, response));
    Chat::new(client, id)
}

fn write(path: &str) -> Script {
    Script::new().tool(path, "write_file", json!({"path": path, "content": "x"}))
}

#[test]
fn a_turn_ends_when_its_changes_pass_the_checks_of_a_client() {
    let mut world = World::start();
    let check =
        json!({"name": "check", "description": "Checks.", "category": "execute", "effect": "local_write"});
    let definition = json!({"external_tools": [check], "verify": {"tool": "check"}});
    let stored = world.server.client().put(AGENT, definition).expect(201);
    assert_eq!(stored["verify"], json!({"tool": "check", "attempts": 3}));
    let refused = world.server.client().put(AGENT, json!({"verify": {"attempts": 3}})).expect(422);
    assert_eq!(refused["errors"][0]["pointer"], "/verify");

    let says = |text: &str| Script::text([text]);
    let repaired = chat(&world, "repaired", [write("a"), says("Done."), write("b"), says("Repaired.")]);
    let waits = repaired.say("go");
    let waits = verify(&repaired, &waits, json!({"error": "One test fails."}));

    let broken = chat(&world, "broken", [write("c"), says("Done."), says("I give up.")]);
    let waits_too = broken.say("go");
    let fails = verify(&broken, &waits_too, json!({"error": "One test fails."}));
    assert_eq!((&fails["status"], &fails["reply"]["text"]), (&json!("completed"), &json!("I give up.")));
    assert_eq!(fails["verification"], "failed");
    assert_eq!(broken.turn(&fails)["verification"], "failed");
    assert_eq!(of_type(&broken.log(), "turn.completed")[0]["verification"], "failed");

    world.server.kill();
    world.server.restart();
    let passes = verify(&repaired, &waits, json!({"answer": "All tests pass."}));
    assert_eq!((&passes["status"], &passes["reply"]["text"]), (&json!("completed"), &json!("Repaired.")));
    let turn = repaired.turn(&passes);
    assert_eq!((&turn["verification"], &turn["steps"]), (&json!(null), &json!(4)));
    let names: Vec<_> = turn["calls"].as_array().unwrap().iter().map(|call| &call["name"]).collect();
    assert_eq!(names, ["write_file", "check", "write_file", "check"]);

    // The next turn continues the conversation, and has changed nothing.
    world.model.script("repaired", says("Bye."));
    assert_eq!(repaired.say("thanks")["reply"]["text"], "Bye.");
    log::check_request(&world.received("repaired").pop().unwrap().body);
    log::check(&repaired.log());
}
