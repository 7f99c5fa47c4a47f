//! Memory across sessions: messages become facts in daily logs, the logs become `MEMORY.md`, and only their
//! own user can search them.

use crate::support::{Chat, Client, Gate, Script, Server, World, shared, system_text};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

fn chat(client: &Client, user: &str) -> Chat {
    let session = client.post("/v1/sessions", json!({ "user": user })).expect(201);
    Chat::new(client.clone(), session["id"].as_str().unwrap())
}

#[track_caller]
fn say(chat: &Chat, user: &str, content: &str) -> Value {
    chat.ask(json!({ "content": content, "user": user }))
}

/// Returns the texts that a search finds, best first.
#[track_caller]
fn found(client: &Client, user: &str, scope: &str, q: &str) -> Vec<String> {
    let body = json!({ "q": q, "user": user, "scope": scope });
    let answer = client.post("/v1/memory/search", body).expect(200);
    let hits = answer["hits"].as_array().unwrap();
    hits.iter().map(|hit| hit["text"].as_str().unwrap().to_owned()).collect()
}

fn file(user: &str, path: &str) -> String {
    format!("/v1/workspace/files/{path}?user={user}")
}

#[track_caller]
fn memory_file(client: &Client, user: &str) -> String {
    let file = client.get(&file(user, "MEMORY.md"));
    assert_eq!(file.status, 200, "{}", file.text());
    file.text().to_owned()
}

/// Waits until a search of the user's turns finds a match.
#[track_caller]
fn until_found(client: &Client, user: &str, q: &str) -> Vec<String> {
    let deadline = std::time::Instant::now() + crate::support::PATIENCE;
    loop {
        let hits = found(client, user, "sessions", q);
        if !hits.is_empty() {
            return hits;
        }
        assert!(std::time::Instant::now() < deadline, "{q} was not found in time");
    }
}

#[test]
fn the_agent_remembers_the_user_the_next_day_but_not_another_user() {
    let mut world = World::with(json!({ "MEMORY_MODEL": "demo/echo" }));
    let client = world.server.client();
    for _ in 0..2 {
        world.model.script("m", Script::text(["Nice to meet you."]));
    }
    let first = chat(&client, "ann");
    say(&first, "ann", "Hi! My name is Ann. I prefer green tea.");
    assert_eq!(first.until_logged("memory.flushed")["facts"], 2);
    let other = chat(&client, "bob");
    say(&other, "bob", "Hello there.");
    assert_eq!(found(&client, "ann", "facts", "which tea?")[0], "The user prefers green tea.");

    // Cron runs a day later.
    world.server.restart_with(json!({ "CLOCK_OFFSET_MS": DAY_MS.to_string() }));
    world.server.scheduled();
    let client = world.server.client();
    let memory = memory_file(&client, "ann");
    assert!(memory.contains("The user's name is Ann.") && memory.contains("green tea"), "{memory}");

    // The prompt contains it from the first step, and an edit from the next step.
    let gate = Gate::new();
    world.model.script("m", Script::text(["Let me see."]).hold(&gate).tool("c1", "current_time", json!({})));
    world.model.script("m", Script::text(["You prefer coffee now."]));
    let second = chat(&client, "ann");
    second.begin(json!({ "content": "What do I like?", "user": "ann" }));
    let before = world.model.wait_for(3).pop().unwrap();
    assert!(system_text(&before).contains("green tea"), "{}", system_text(&before));
    let edited = client.send("PUT", &file("ann", "MEMORY.md"), b"- The user prefers coffee.\n");
    assert_eq!(edited.status, 200, "{}", edited.text());
    gate.open();
    second.until_idle();
    let after = world.model.wait_for(4).pop().unwrap();
    assert!(system_text(&after).contains("coffee") && !system_text(&after).contains("green tea"));
    assert_eq!(found(&client, "ann", "facts", "coffee"), ["- The user prefers coffee."]);

    world.model.script("m", Script::text(["I do not know you."]));
    let third = chat(&client, "bob");
    say(&third, "bob", "What do I like?");
    let shown = world.model.wait_for(5).pop().unwrap().body["messages"].to_string();
    assert!(["coffee", "green tea", "Ann"].iter().all(|word| !shown.contains(word)), "{shown}");
}

#[test]
fn facts_are_added_found_and_read_by_day() {
    let client = shared().client();
    let facts = json!([
        { "id": "a/1:x", "text": "Zoe adopted a  ferret\ncalled Biscuit.", "ts": "2024-03-05T10:07:00Z", "session": "s1" },
        { "id": "a/2", "text": "Zoe moved to Bergen.", "ts": "2024-03-05T11:00:00Z", "speaker": "Zoe" },
        { "text": "Zoe plays the cello.", "ts": "2024-03-06T09:00:00+01:00" },
    ]);
    let body = json!({ "user": "zoe", "facts": facts });
    let made = client.post("/v1/memory", body.clone()).expect(201);
    assert_eq!(
        (&made["added"], &made["ids"][0], &made["ids"][1]),
        (&json!(3), &json!("a/1:x"), &json!("a/2"))
    );
    assert!(made["ids"][2].as_str().unwrap().starts_with("mem_"));
    // The same request is idempotent.
    let facts = json!({ "user": "zack", "facts": [{ "text": "Zack sings." }] });
    let once = client.with_header("idempotency-key", "zack-1");
    let first = once.post("/v1/memory", facts.clone()).expect(201);
    assert_eq!(once.post("/v1/memory", facts).expect(201)["ids"], first["ids"]);
    assert_eq!(found(&client, "zack", "facts", "sings").len(), 1);
    // The same id is idempotent.
    let again = json!({ "user": "zoe", "facts": [{ "id": "a/2", "text": "Zoe moved to Rome." }] });
    assert_eq!(client.post("/v1/memory", again).expect(201)["added"], 0);

    let hit =
        client.get("/v1/memory/search?user=zoe&q=ferret%27s%20name&limit=1").expect(200)["hits"][0].clone();
    let score = hit["score"].as_f64().unwrap();
    assert_eq!(
        hit,
        json!({
            "id": "a/1:x", "source": "log", "path": "memory/2024-03-05.md", "session": "s1",
            "ts": "2024-03-05T10:07:00.000Z", "text": "Zoe adopted a ferret called Biscuit.", "score": score,
        })
    );
    let log = client.get("/v1/memory/log/2024-03-05?user=zoe");
    assert_eq!(log.header("content-type"), Some("text/markdown; charset=utf-8"));
    assert_eq!(
        log.text(),
        "# 2024-03-05\n\n- 10:07 Zoe adopted a ferret called Biscuit.\n- 11:00 Zoe moved to Bergen.\n"
    );
    // The same as a file: older days are read-only, in the archive.
    let path = file("zoe", "memory/archive/2024-03-05.md");
    let as_file = client.get(&path);
    assert_eq!((as_file.status, as_file.text()), (200, log.text()));
    assert_eq!(client.send("PUT", &path, b"x").status, 403);
    let list = client.get("/v1/workspace/files?user=zoe&prefix=memory/").expect(200);
    let listed: Vec<_> = list["data"].as_array().unwrap().iter().map(|e| (&e["path"], &e["bytes"])).collect();
    assert_eq!(listed[0], (&json!("memory/archive/2024-03-05.md"), &json!(log.text().len())));
    assert_eq!(listed[1].0, "memory/archive/2024-03-06.md");
    let etag = as_file.header("etag").unwrap().to_owned();
    assert_eq!(list["data"][0]["etag"], etag);

    assert_eq!(client.get("/v1/memory/log/2024-03-07?user=zoe").status, 404);
    assert_eq!(client.get("/v1/memory/log/yesterday?user=zoe").status, 422);
    assert_eq!(found(&client, "yann", "facts", "ferret"), Vec::<String>::new());
}

#[test]
fn past_conversations_are_imported_and_deleted_with_their_session() {
    let client = shared().client();
    let turns = json!([
        { "id": "D1:1", "ts": "2023-05-08T13:56:00Z", "speaker": "user", "text": "Which boat won the regatta?" },
        { "id": "D1:2", "ts": "2023-05-08T13:57:00Z", "speaker": "assistant", "text": "The Kittiwake, by a length." },
    ]);
    let body = json!({ "user": "imp", "session": "past/1", "turns": turns });
    assert_eq!(client.post("/v1/memory/turns", body.clone()).expect(201)["added"], 2);
    assert_eq!(client.post("/v1/memory/turns", body).expect(201)["added"], 0);
    let answer = client.get("/v1/memory/search?user=imp&scope=sessions&q=regatta").expect(200);
    let hits = answer["hits"].as_array().unwrap();
    // A reply is found with its question, although it shares no word with the query.
    let ids: Vec<_> = hits.iter().map(|hit| hit["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["D1:1", "D1:2"]);
    assert_eq!((&hits[1]["session"], &hits[1]["source"]), (&json!("past/1"), &json!("session")));

    // Turns of the session itself are found too, and deleted with it.
    let chat = chat(&client, "imp");
    say(&chat, "imp", "The dinghy is called Puffin.");
    assert!(
        until_found(&client, "imp", "dinghy")[0]
            .starts_with("user: The dinghy is called Puffin.\nassistant: ")
    );
    say(&chat, "imp", "remember the Puffin needs paint");
    chat.until_logged("memory.flushed");
    assert!(!found(&client, "imp", "facts", "paint").is_empty());
    assert_eq!(client.delete(&chat.path("?user=imp")).status, 204);
    assert_eq!(found(&client, "imp", "sessions", "Puffin dinghy"), Vec::<String>::new());
    let left = found(&client, "imp", "facts", "Puffin paint");
    assert!(left.iter().all(|text| text.starts_with("- ")), "only MEMORY.md is left: {left:?}");
    assert_eq!(found(&client, "imp", "sessions", "Kittiwake").len(), 2);

    // Ids are unique within a session only.
    let turns = json!([{ "id": "D1:1", "speaker": "user", "text": "The Gannet came last." }]);
    let body = json!({ "session": "past2", "turns": turns });
    assert_eq!(client.post("/v1/memory/turns?user=imp", body).expect(201)["added"], 1);
    let hits = client.get("/v1/memory/search?user=imp&scope=sessions&q=gannet").expect(200);
    assert_eq!((&hits["hits"][0]["id"], &hits["hits"][0]["session"]), (&json!("D1:1"), &json!("past2")));
    // A session that only exists by import can be deleted by its user.
    assert_eq!(client.delete("/v1/sessions/past2?user=spy").status, 404);
    assert_eq!(client.delete("/v1/sessions/past2?user=imp").status, 204);
    assert_eq!(client.delete("/v1/sessions/past2?user=imp").status, 404);
    assert!(found(&client, "imp", "sessions", "gannet").iter().all(|text| !text.contains("Gannet")));
}

#[test]
fn the_model_searches_reads_and_saves_memory() {
    let client = shared().client();
    let user = "tooled";
    let chat = chat(&client, user);
    let call = |tool: &str, args: Value| {
        say(&chat, user, &format!("/tool {tool} {args}"));
        let record = chat.log().into_iter().rev().find(|record| record["type"] == "tool.completed").unwrap();
        record["result"].as_str().or(record["reason"].as_str()).unwrap().to_owned()
    };
    assert_eq!(call("memory_save", json!({ "text": "Likes\n sailing." })), "remembered: Likes sailing.");
    assert!(memory_file(&client, user).starts_with("# Memory\n\n- Likes sailing. ("));
    assert!(call("memory_search", json!({ "query": "sail" })).contains("Likes sailing."));
    assert!(
        call("memory_get", json!({ "path": "MEMORY.md", "start_line": 3 })).contains("3|- Likes sailing.")
    );
    assert!(call("memory_get", json!({ "path": "../x" })).contains("only MEMORY.md"));
    assert!(call("memory_search", json!({ "query": "\") OR 1=1 --" })).contains("no matching facts"));
    until_found(&client, user, "sailing");
    assert!(call("session_search", json!({ "query": "memory_save sailing" })).contains(&chat.id));
    assert!(call("session_list", json!({})).contains(&chat.id));
    assert!(call("session_history", json!({ "session": chat.id, "last": 1 })).contains("] "));
    assert!(
        call("session_history", json!({ "session": "ses_unknown" })).contains("no turns of this session")
    );
    // `remember` and `recall` are the demo model's directives for these tools.
    say(&chat, user, "remember that the boat is red");
    let answer = say(&chat, user, "recall boat");
    assert!(answer["reply"]["text"].as_str().unwrap().contains("the boat is red"), "{answer}");
}

#[test]
fn a_user_is_erased_everywhere() {
    let server = Server::start(json!({}));
    let client = server.client();
    for user in ["gone", "stays"] {
        let chat = chat(&client, user);
        say(&chat, user, &format!("remember that {user} keeps wombats"));
        chat.until_logged("memory.flushed");
        until_found(&client, user, "wombats");
        assert!([200, 201].contains(&client.send("PUT", &file(user, "notes.md"), b"marsupial").status));
        let large = vec![b'w'; 300_000];
        assert_eq!(client.send("PUT", &file(user, "large.txt"), &large).status, 201);
    }
    assert_eq!(client.delete("/v1/memory").status, 422, "the user must be named");
    assert_eq!(client.delete("/v1/memory?user=gone").status, 204);
    for scope in ["facts", "sessions"] {
        assert_eq!(found(&client, "gone", scope, "wombats"), Vec::<String>::new());
        assert!(!found(&client, "stays", scope, "wombats").is_empty());
    }
    for path in ["notes.md", "MEMORY.md", "large.txt"] {
        assert_eq!(client.get(&file("gone", path)).status, 404);
        assert_eq!(client.get(&file("stays", path)).status, 200);
    }
    assert_eq!(client.get("/v1/sessions?user=gone").expect(200)["data"], json!([]));
    assert_eq!(client.get("/v1/sessions?user=stays").expect(200)["data"].as_array().unwrap().len(), 1);
    assert!(!server.rows().contains("gone keeps wombats"), "nothing is left");
}

#[test]
fn invalid_requests_are_explained_and_lose_nothing() {
    let client = shared().client();
    let fact = |fact: Value| json!({ "user": "bad", "facts": [{ "text": "fine" }, fact] });
    for (path, body, pointer) in [
        ("/v1/memory", fact(json!({ "text": " " })), "/facts/1/text"),
        ("/v1/memory", fact(json!({ "text": "x".repeat(2_001) })), "/facts/1/text"),
        ("/v1/memory", fact(json!({ "text": "x", "ts": "yesterday" })), "/facts/1/ts"),
        ("/v1/memory", fact(json!({ "text": "x", "id": "" })), "/facts/1/id"),
        ("/v1/memory", fact(json!({ "text": "x", "id": "MEMORY.md#1" })), "/facts/1/id"),
        ("/v1/memory", json!({ "facts": [] }), "/facts"),
        ("/v1/memory", json!({ "facts": "x" }), "/facts"),
        ("/v1/memory/turns", json!({ "session": "s", "turns": [{ "id": "1", "text": "x" }] }), "/turns/0"),
        (
            "/v1/memory/turns",
            json!({ "session": "", "turns": [{ "id": "1", "speaker": "a", "text": "x" }] }),
            "/session",
        ),
        ("/v1/memory/search", json!({ "q": "x", "limit": 201 }), "/limit"),
        ("/v1/memory/search", json!({ "q": "x", "scope": "all" }), "/scope"),
        ("/v1/memory/search", json!({ "q": 1 }), "/q"),
        ("/v1/memory/search", json!({ "q": "x", "user": "a/b" }), "/user"),
    ] {
        let problem = client.post(path, body.clone()).expect(422);
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{body}");
    }
    assert_eq!(client.get("/v1/memory/search").expect(422)["errors"][0]["pointer"], "?q");
    assert_eq!(client.get("/v1/memory/search?q=x&limit=a").expect(422)["errors"][0]["pointer"], "?limit");
    assert_eq!(found(&client, "bad", "facts", "fine"), Vec::<String>::new());
}

#[test]
fn any_query_is_safe() {
    let client = shared().client();
    let facts =
        json!({ "user": "quoted", "facts": [{ "id": "q", "text": "The pass phrase is quillfeather." }] });
    client.post("/v1/memory", facts).expect(201);
    for q in [
        "",
        " ",
        "\"",
        "'",
        "*",
        "quillfeather*",
        "NEAR(",
        "AND",
        "OR OR",
        "NOT",
        "a AND (b",
        "col:quillfeather",
        "^x",
        "') OR 1=1 --",
        "c1_quillfeather",
        "\0",
        "🦊",
        "quillfeather\" OR \"x",
        "-quillfeather",
        "{a b}",
        "日本語",
        "%",
        "_",
        "\\",
        "quill\u{0301}feather",
        &"word ".repeat(1_500),
    ] {
        let answer = client.post("/v1/memory/search", json!({ "q": q, "user": "quoted" }));
        assert_eq!(answer.status, 200, "{q:?}: {}", answer.text());
        let foreign =
            client.post("/v1/memory/search", json!({ "q": format!("{q} quillfeather"), "user": "spy" }));
        assert_eq!(foreign.expect(200)["hits"], json!([]), "{q:?}");
    }
    assert_eq!(found(&client, "quoted", "facts", "QUILLFEATHER?"), ["The pass phrase is quillfeather."]);
}
