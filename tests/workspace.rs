//! Files of agents, over HTTP and through D1 and R2.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::thread;
use support::{Chat, Client, Response, Server, shared};

const FILES: &str = "/v1/workspace/files";
/// More than stands in a row.
const LARGE: usize = 300_000;

fn file(path: &str) -> String {
    format!("{FILES}/{path}")
}

/// A tenant of its own, and a client that may do everything in it.
#[track_caller]
fn tenant(server: &Server, id: &str) -> Client {
    server.admin().post("/v1/admin/tenants", json!({ "id": id })).expect(201);
    let scopes = json!({ "scopes": ["chat", "read", "admin"] });
    let made = server.admin().post(&format!("/v1/admin/tenants/{id}/keys"), scopes).expect(201);
    server.anonymous().with_key(made["key"].as_str().unwrap())
}

#[track_caller]
fn put(client: &Client, path: &str, body: &[u8]) -> Response {
    client.send("PUT", &file(path), body)
}

/// The paths of a list.
#[track_caller]
fn paths(client: &Client, query: &str) -> Vec<String> {
    let list = client.get(&format!("{FILES}?{query}")).expect(200);
    list["data"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
}

/// Has the model call a tool; gives its result, or the reason for none behind a `!`.
#[track_caller]
fn call(chat: &Chat, tool: &str, args: Value) -> String {
    chat.say(&format!("/tool {tool} {args}"));
    let record = chat.log().into_iter().rev().find(|record| record["type"] == "tool.completed").unwrap();
    match record["result"].as_str() {
        Some(result) => result.to_owned(),
        None => format!("!{}", record["reason"].as_str().unwrap_or_else(|| panic!("{record}"))),
    }
}

#[test]
fn bytes_come_back_as_they_went_in() {
    let client = tenant(shared(), "files-bytes");
    let large = |byte: u8| vec![byte; LARGE];
    let contents: [(&str, Vec<u8>); 6] = [
        ("empty", Vec::new()),
        ("text.md", "Grüße, 世界 🌍 \"quoted\" 'single' \\ \r\n".into()),
        ("nul.txt", b"a\0b".to_vec()),
        ("bytes.bin", (0..=255).collect()),
        ("large.txt", large(b'x')),
        ("deep/er/large.bin", large(0xff)),
    ];
    for (path, bytes) in &contents {
        let made = put(&client, path, bytes);
        assert_eq!((made.status, made.json()["bytes"].as_u64()), (201, Some(bytes.len() as u64)), "{path}");
    }
    for (path, bytes) in &contents {
        let found = client.get(&file(path));
        assert_eq!((found.status, &found.body), (200, bytes), "{path}");
        assert_eq!(found.header("x-content-type-options"), Some("nosniff"));
    }
    let mut sorted: Vec<&str> = contents.iter().map(|(path, _)| *path).collect();
    sorted.sort_unstable();
    assert_eq!(paths(&client, ""), sorted);
    assert_eq!(paths(&client, "prefix=deep/"), ["deep/er/large.bin"]);
    assert_eq!(client.get(&file("text.md")).header("content-type"), Some("text/markdown; charset=utf-8"));

    // From one kind of place to the other and back.
    for bytes in [&b"small"[..], &large(b'y'), &large(b'z'), b"small again"] {
        assert_eq!(put(&client, "large.txt", bytes).status, 200);
        assert_eq!(client.get(&file("large.txt")).body, bytes);
    }
    // Refused for what it announces: the rest need not be sent.
    let huge = client.with_header("content-length", &((4 << 20) + 1).to_string());
    assert_eq!(put(&huge, "huge", b"x").status, 413);
}

#[test]
fn of_many_that_create_at_once_one_wins() {
    let client = tenant(shared(), "files-race");
    for (path, size) in [("small", 10), ("large", LARGE)] {
        let create = |n: u8| {
            let client = client.with_header("if-none-match", "*");
            thread::spawn(move || put(&client, path, &vec![b'a' + n; size]).status)
        };
        let threads: Vec<_> = (0..16).map(create).collect();
        let statuses: Vec<u16> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let winners: Vec<usize> = (0..16).filter(|n| statuses[*n] == 201).collect();
        assert_eq!(winners.len(), 1, "{statuses:?}");
        assert!(statuses.iter().all(|status| [201, 412].contains(status)), "{statuses:?}");
        assert_eq!(client.get(&file(path)).body[0], b'a' + u8::try_from(winners[0]).unwrap());
    }
}

#[test]
fn nobody_loses_a_line_of_anothers() {
    let client = tenant(shared(), "files-edits");
    put(&client, "log", b"");
    let editor = |n: usize| {
        let client = client.clone();
        thread::spawn(move || {
            for line in 0..5 {
                loop {
                    let seen = client.get(&file("log"));
                    let tag = seen.header("etag").unwrap().to_owned();
                    let longer = [seen.body, format!("{n}-{line}\n").into_bytes()].concat();
                    if put(&client.with_header("if-match", &tag), "log", &longer).status == 200 {
                        break;
                    }
                }
            }
        })
    };
    (0..4).map(editor).collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    let text = client.get(&file("log")).text();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 20);
}

#[test]
fn preconditions_and_removal() {
    let client = tenant(shared(), "files-conditions");
    let tag = put(&client, "a", b"one").header("etag").unwrap().to_owned();
    let first = client.with_header("if-match", &tag);
    assert_eq!(put(&first, "a", b"two").status, 200);
    assert_eq!((put(&first, "a", b"three").status, first.delete(&file("a")).status), (412, 412));
    assert_eq!(put(&client.with_header("if-match", "*"), "none", b"x").status, 412);
    let now = client.get(&format!("{FILES}?prefix=a")).expect(200)["data"][0]["etag"].clone();
    let seen = client.with_header("if-none-match", now.as_str().unwrap()).get(&file("a"));
    assert_eq!(seen.status, 304);
    assert_eq!(client.with_header("if-match", now.as_str().unwrap()).delete(&file("a")).status, 204);
    assert_eq!((client.delete(&file("a")).status, client.get(&file("a")).status), (204, 404));
    assert_eq!(put(&client, "a%2F..%2Fb", b"x").expect(422)["code"], "validation_failed");
}

#[test]
fn users_agents_and_tenants_are_apart() {
    let server = shared();
    let (client, other) = (tenant(server, "files-apart"), tenant(server, "files-apart-2"));
    for whose in ["", "&user=ann", "&user=bob", "&agent=other", "&agent=other&user=ann"] {
        assert_eq!(put(&client, &format!("same?x{whose}"), whose.as_bytes()).status, 201);
    }
    for whose in ["", "&user=ann", "&user=bob", "&agent=other", "&agent=other&user=ann"] {
        assert_eq!(client.get(&file(&format!("same?x{whose}"))).text(), whose);
        assert_eq!(other.get(&file(&format!("same?x{whose}"))).status, 404);
    }
    assert_eq!(put(&client, "AGENTS.md?layer=shared", b"be kind").status, 201);
    for user in ["ann", "bob", "new"] {
        assert_eq!(client.get(&file(&format!("AGENTS.md?user={user}"))).text(), "be kind");
    }
    assert_eq!(put(&client, "AGENTS.md?user=ann", b"be short").status, 201);
    let list = client.get(&format!("{FILES}?user=ann")).expect(200);
    let layers: Vec<_> =
        list["data"].as_array().unwrap().iter().map(|entry| entry["layer"].clone()).collect();
    assert_eq!(
        (layers, client.get(&file("AGENTS.md?user=bob")).text()),
        (vec![json!("user"); 2], "be kind".into())
    );
    client.delete(&file("AGENTS.md?user=ann"));
    assert_eq!(client.get(&file("AGENTS.md?user=ann")).text(), "be kind");
}

#[test]
fn tools_and_routes_see_the_same_files() {
    let client = tenant(shared(), "files-tools");
    let chat = Chat::new(client.clone(), "files-tools");
    let wrote = call(&chat, "write_file", json!({"path": "notes/a.md", "content": "one\ntwo\n"}));
    assert_eq!(wrote, "wrote 8 bytes to notes/a.md");
    assert_eq!(client.get(&file("notes/a.md")).text(), "one\ntwo\n");
    put(&client, "notes/b.md", "zwei\nDrei\n".as_bytes());
    put(&client, "large.json", format!("[{}]", "\"é\",".repeat(LARGE / 5)).as_bytes());
    assert_eq!(
        call(&chat, "edit_file", json!({"path": "notes/b.md", "old_string": "zwei", "new_string": "two"})),
        "replaced 1 place in notes/b.md, now 9 bytes"
    );
    assert_eq!(call(&chat, "grep_files", json!({"pattern": "two"})), "notes/a.md:2:two\nnotes/b.md:1:two");
    let drei = json!({"pattern": "DREI", "ignore_case": true, "path": "notes", "glob": "*.md"});
    assert_eq!(call(&chat, "grep_files", drei), "notes/b.md:2:Drei");
    assert_eq!(call(&chat, "glob_files", json!({"pattern": "**/*.md"})), "notes/a.md\nnotes/b.md");
    assert_eq!(
        call(&chat, "move_file", json!({"from": "notes/a.md", "to": "a.md"})),
        "moved notes/a.md to a.md"
    );
    assert_eq!(call(&chat, "delete_file", json!({"path": "notes/b.md"})), "deleted notes/b.md");
    assert_eq!(paths(&client, ""), ["a.md", "large.json"]);
    let giant = call(&chat, "read_file", json!({"path": "large.json"}));
    assert!(giant.len() < 4_000 && giant.contains("byte_offset"), "{giant}");
    assert!(call(&chat, "read_file", json!({"path": "../x"})).starts_with("!`../x` is not a path"));
}

#[test]
fn a_tenants_files_go_with_it() {
    let server = Server::start(json!({}));
    let (gone, kept) = (tenant(&server, "files-gone"), tenant(&server, "files-kept"));
    for (client, word) in [(&gone, "to-be-gone"), (&kept, "to-be-kept")] {
        put(client, "small", format!("small-{word}").as_bytes());
        put(client, "large?layer=shared", format!("large-{word} ").repeat(LARGE / 10).as_bytes());
    }
    assert!(server.state_holds(b"large-to-be-gone"));
    server.admin().delete("/v1/admin/tenants/files-gone").expect(204);
    server.scheduled();
    assert!(!server.state_holds(b"large-to-be-gone"), "its objects in R2");
    let rows = server.rows();
    assert!(!rows.contains("small-to-be-gone") && rows.contains("small-to-be-kept"), "its rows in D1");
    assert_eq!(gone.get(&file("small")).status, 401);
    assert_eq!(kept.get(&file("small")).text(), "small-to-be-kept");
    assert!(kept.get(&file("large")).text().starts_with("large-to-be-kept"));
}
