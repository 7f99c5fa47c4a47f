//! Definitions of agents, in the real Worker.

use crate::support::{Chat, Client, Folder, Gate, Script, Server, World, shared, system_text};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Pushes a folder. Returns the exit status and the output.
fn push(server: &Server, folder: &Path, key: &str) -> (Option<i32>, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/agents-push.sh");
    let url = format!("http://{}", server.address());
    let output = Command::new(script).env("DIR", folder).env("KEY", key).env("URL", url).output().unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// A tenant of its own: a client with all scopes, and its key.
fn tenant(server: &Server, id: &str) -> (Client, String) {
    server.admin().post("/v1/admin/tenants", json!({ "id": id })).expect(201);
    let scopes = json!({ "scopes": ["chat", "read", "approve", "admin"] });
    let made = server.admin().post(&format!("/v1/admin/tenants/{id}/keys"), scopes).expect(201);
    let key = made["key"].as_str().unwrap().to_owned();
    (server.anonymous().with_key(&key), key)
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/agents").join(name)
}

fn say(client: &Client, session: &str, content: &str) -> Value {
    client.post(&format!("/v1/sessions/{session}/messages"), json!({ "content": content })).expect(200)
}

#[test]
fn the_example_agents_run_as_their_folders_say() {
    let world = World::start();
    let (client, key) = tenant(&world.server, "agents-examples");
    let (status, said) = push(&world.server, &example(""), &key);
    assert_eq!(
        (status, said.as_str()),
        (Some(0), "coder: version 1\nresearcher: version 1\nsupport: version 1\n")
    );
    let list = client.get("/v1/agents").expect(200);
    let ids: Vec<_> =
        list["data"].as_array().unwrap().iter().map(|agent| agent["id"].as_str().unwrap()).collect();
    let all = ["coder", "default", "researcher", "support"];
    assert!(all.iter().all(|id| ids.contains(id)) && ids.is_sorted(), "{ids:?}");
    let new = json!({ "agent": "support", "model": "openai/support" });
    let session = client.post("/v1/sessions", new).expect(201);
    assert_eq!((&session["agent_version"], &session["budget"]["max_steps"]), (&json!(1), &json!(10)));
    world.model.script("support", Script::text(["Hello."]));
    say(&client, session["id"].as_str().unwrap(), "Can I return a helmet?");
    let request = world.received("support").pop().unwrap();
    let system = system_text(&request);
    assert!(system.starts_with("You answer questions of the customers of a bicycle shop."), "{system}");
    // The agent's own files are shared files.
    assert!(system.contains("what customers can return, and until when"), "{system}");
    let tools: Vec<_> =
        request.body["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    assert!(tools.contains(&&json!("read_file")) && !tools.contains(&&json!("write_file")), "{tools:?}");
    let file = client.get("/v1/workspace/files/knowledge/returns.md?agent=support");
    assert!(file.text().starts_with("# Returns"));
    // The kinds of subagents are those of the folder.
    let researcher = client.get("/v1/agents/researcher").expect(200);
    let kinds: Vec<_> = researcher["subagents"].as_array().unwrap().iter().map(|kind| &kind["id"]).collect();
    assert_eq!(kinds, ["critic", "reader"]);
}

#[test]
fn a_pushed_version_reaches_new_sessions_and_a_bad_folder_changes_nothing() {
    let world = World::start();
    let (client, key) = tenant(&world.server, "agents-versions");
    let folder = Folder::create();
    let agent = folder.path().join("helper");
    std::fs::create_dir_all(agent.join("knowledge")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(agent.join(name), text).unwrap();
    write("AGENTS.md", "---\nmodel: openai/helper\n---\nVersion one.");
    write("knowledge/KNOWLEDGE.md", "Facts of version one.");
    assert_eq!(push(&world.server, folder.path(), &key), (Some(0), "helper: version 1\n".into()));
    for number in 0..50 {
        let made = client
            .post("/v1/sessions", json!({ "id": format!("old-{number}"), "agent": "helper" }))
            .expect(201);
        assert_eq!(made["agent_version"], 1);
    }
    // A turn of the first version waits while the second one is pushed.
    world.model.script("helper", Script::new().tool("q", "ask_user", json!({ "question": "Which?" })));
    let waits = say(&client, "old-0", "go");
    assert_eq!(waits["status"], "waiting");
    write("AGENTS.md", "---\nmodel: openai/helper\n---\nVersion two.");
    write("knowledge/KNOWLEDGE.md", "Facts of version two.");
    assert_eq!(push(&world.server, folder.path(), &key).1, "helper: version 2\n");
    // The same folder again is the same version.
    assert_eq!(push(&world.server, folder.path(), &key).1, "helper: version 2\n");
    let systems = |count: usize| {
        let received = world.received("helper");
        assert_eq!(received.len(), count);
        system_text(received.last().unwrap())
    };
    world.model.script("helper", Script::text(["done"]));
    client.post("/v1/sessions/old-0/answers/q", json!({ "answer": "This one." })).expect(200);
    let system = systems(2);
    assert!(system.contains("Version one.") && system.contains("Facts of version one."), "{system}");
    // New sessions get the new version; old ones move when they are asked to.
    world.model.script("helper", Script::text(["done"]));
    let made = client.post("/v1/sessions", json!({ "id": "new", "agent": "helper" })).expect(201);
    assert_eq!(made["agent_version"], 2);
    say(&client, "new", "go");
    assert!(systems(3).contains("Facts of version two."));
    world.model.script("helper", Script::text(["done"]));
    say(&client, "old-1", "go");
    assert!(systems(4).contains("Version one."));
    let moved = client.patch("/v1/sessions/old-1", json!({ "agent_version": "latest" })).expect(200);
    assert_eq!(moved["agent_version"], 2);
    world.model.script("helper", Script::text(["done"]));
    say(&client, "old-1", "again");
    assert!(systems(5).contains("Version two."));
    for unknown in [json!(0), json!(9)] {
        let refused = client.patch("/v1/sessions/old-1", json!({ "agent_version": unknown }));
        assert!(matches!(refused.status, 404 | 422), "{unknown}: {}", refused.text());
    }
    // A folder with a fault changes nothing.
    write("AGENTS.md", "---\nmodel: nowhere/model\ntools: {allow: [fly]}\n---\nVersion three.");
    let (status, said) = push(&world.server, folder.path(), &key);
    assert!(
        status == Some(1)
            && said.contains("/model: ")
            && said.contains("/tools/allow/0: there is no tool \"fly\""),
        "{said}"
    );
    write("AGENTS.md", "---\nmodel: [\n---\n");
    assert_eq!(push(&world.server, folder.path(), &key).0, Some(1));
    assert_eq!(client.get("/v1/agents/helper").expect(200)["version"], 2);
    // A rollback is a change of the active version.
    client.post("/v1/agents/helper/versions/1/activate", json!({})).expect(200);
    let made = client.post("/v1/sessions", json!({ "id": "back", "agent": "helper" })).expect(201);
    assert_eq!(made["agent_version"], 1);
}

#[test]
fn running_turns_keep_their_version_while_folders_are_pushed() {
    const SESSIONS: usize = 50;
    let world = World::start();
    let (client, key) = tenant(&world.server, "agents-running");
    let folder = Folder::create();
    let agent = folder.path().join("busy");
    std::fs::create_dir_all(&agent).unwrap();
    let write = |text: &str| {
        let page = format!("---\nmodel: openai/busy\n---\n{text}");
        std::fs::write(agent.join("AGENTS.md"), page).unwrap();
        push(&world.server, folder.path(), &key)
    };
    assert_eq!(write("Version one.").0, Some(0));
    let gate = Gate::new();
    for _ in 0..SESSIONS {
        world.model.script("busy", Script::new().hold(&gate).tool("c", "echo", json!({"text": "x"})));
    }
    let chats: Vec<Chat> = (0..SESSIONS)
        .map(|number| {
            let id = format!("busy-{number}");
            client.post("/v1/sessions", json!({"id": id, "agent": "busy"})).expect(201);
            let chat = Chat::new(client.clone(), &id);
            chat.begin(json!({"content": "go"}));
            chat
        })
        .collect();
    gate.reached_by(SESSIONS);
    assert_eq!(write("Version two.").1, "busy: version 2\n");
    std::fs::write(agent.join("tools.json"), r#"{"allow": ["fly"]}"#).unwrap();
    assert_eq!(write("Version four.").0, Some(1), "a bad folder");
    (0..SESSIONS).for_each(|_| world.model.script("busy", Script::text(["done"])));
    gate.open();
    for chat in &chats {
        chat.until_idle();
        assert_eq!(chat.get("")["agent_version"], 1);
        assert_eq!(chat.log().last().unwrap()["type"], "turn.completed");
    }
    let systems: Vec<String> = world.received("busy").iter().map(system_text).collect();
    assert_eq!(systems.len(), 2 * SESSIONS);
    assert!(systems.iter().all(|system| system.contains("Version one.")));
}

#[test]
fn a_version_is_kept_after_a_restart_of_the_worker() {
    let mut world = World::start();
    let put = |client: &Client, text: &str| {
        client.put("/v1/agents/default", json!({ "instructions": text, "model": "openai/kept" })).expect(200);
    };
    put(&world.server.client(), "First.");
    world.model.script("kept", Script::text(["done"]));
    say(&world.server.client(), "kept", "go");
    put(&world.server.client(), "Second.");
    world.server.restart();
    world.model.script("kept", Script::text(["done"]));
    say(&world.server.client(), "kept", "go on");
    assert!(system_text(world.received("kept").last().unwrap()).starts_with("First."));
}

#[test]
fn sessions_of_a_deleted_agent_refuse_messages() {
    let (client, _) = tenant(shared(), "agents-deleted");
    client.put("/v1/agents/gone", json!({ "model": "demo/echo" })).expect(201);
    client.post("/v1/sessions", json!({ "id": "s", "agent": "gone" })).expect(201);
    say(&client, "s", "hello");
    assert_eq!(client.delete("/v1/agents/gone").status, 204);
    let refused = client.post("/v1/sessions/s/messages", json!({ "content": "again" })).expect(409);
    assert_eq!(refused["code"], "agent_gone");
    let new = client.post("/v1/sessions", json!({ "agent": "gone" })).expect(409);
    assert_eq!(new["code"], "agent_gone");
    assert_eq!(client.get("/v1/sessions/s/messages").expect(200)["data"].as_array().unwrap().len(), 2);
    let unknown = client.post("/v1/sessions", json!({ "agent": "never" })).expect(404);
    assert_eq!(
        (&unknown["code"], &unknown["errors"][0]["pointer"]),
        (&json!("unknown_agent"), &json!("/agent"))
    );
}
