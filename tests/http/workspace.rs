//! Workspace files over HTTP, stored in D1 and R2.

use crate::support::{Chat, Client, Response, Server, shared};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::thread;

const FILES: &str = "/v1/workspace/files";
/// Size of a file that exceeds a row.
const LARGE: usize = 300_000;

fn file(path: &str) -> String {
    format!("{FILES}/{path}")
}

/// Creates a tenant, and a client with all of its scopes.
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

/// Returns the paths of a list.
#[track_caller]
fn paths(client: &Client, query: &str) -> Vec<String> {
    let list = client.get(&format!("{FILES}?{query}")).expect(200);
    list["data"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
}

/// Makes the model call a tool. Returns the result, or the reason of the failure after `!`.
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
fn bytes_round_trip() {
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

    // From D1 to R2 and back.
    for bytes in [&b"small"[..], &large(b'y'), &large(b'z'), b"small again"] {
        assert_eq!(put(&client, "large.txt", bytes).status, 200);
        assert_eq!(client.get(&file("large.txt")).body, bytes);
    }
    // Refused by its announced length, without its body.
    let huge = client.with_header("content-length", &((4 << 20) + 1).to_string());
    assert_eq!(put(&huge, "huge", b"x").status, 413);
}

#[test]
fn of_concurrent_creations_one_wins() {
    let client = tenant(shared(), "files-race");
    for (path, size) in [("small", 10), ("large", LARGE)] {
        let create = |n: u8| {
            let client = client.with_header("if-none-match", "*");
            thread::spawn(move || put(&client, path, &vec![b'A' + n; size]).status)
        };
        let threads: Vec<_> = (0..32).map(create).collect();
        let statuses: Vec<u16> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let winners: Vec<usize> = (0..32).filter(|n| statuses[*n] == 201).collect();
        assert_eq!(winners.len(), 1, "{statuses:?}");
        assert!(statuses.iter().all(|status| [201, 412].contains(status)), "{statuses:?}");
        assert_eq!(client.get(&file(path)).body[0], b'A' + u8::try_from(winners[0]).unwrap());
    }
}

#[test]
fn concurrent_edits_lose_no_line() {
    let client = tenant(shared(), "files-edits");
    put(&client, "log", b"");
    let editor = |n: usize| {
        let client = client.clone();
        thread::spawn(move || {
            for line in 0..25 {
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
    (0..8).map(editor).collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    let text = client.get(&file("log")).text();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 200);
}

#[test]
fn preconditions_apply_to_writes_and_deletions() {
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
fn users_agents_and_tenants_are_separate() {
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
        "replaced 1 occurrence in notes/b.md, now 9 bytes"
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
    assert!(call(&chat, "read_file", json!({"path": "../x"})).starts_with("!`../x` is not a valid path"));
}

/// Creates a session of this user.
#[track_caller]
fn chat_of(client: &Client, user: &str) -> Chat {
    let session = client.post("/v1/sessions", json!({ "user": user })).expect(201);
    Chat::new(client.clone(), session["id"].as_str().unwrap())
}

#[test]
fn a_users_files_are_shared_by_all_of_its_sessions_only() {
    let client = tenant(shared(), "files-scopes");
    let [first, second, other] = ["user-1", "user-1", "user-2"].map(|user| chat_of(&client, user));
    call(&first, "write_file", json!({"path": "x", "content": "of user-1"}));
    assert_eq!(call(&second, "read_file", json!({"path": "x"})), "x: lines 1-1 of 1\n     1\tof user-1\n");
    for (tool, args) in [
        ("read_file", json!({"path": "x"})),
        ("read_file", json!({"path": "../user-1/x"})),
        ("read_file", json!({"path": "/agents/default/users/user-1/x"})),
        ("edit_file", json!({"path": "x", "old_string": "of", "new_string": "not of"})),
        ("move_file", json!({"from": "x", "to": "y"})),
    ] {
        let said = call(&other, tool, args.clone());
        assert!(said.starts_with('!'), "{tool} {args}: {said}");
    }
    let nothing = [
        call(&other, "list_files", json!({})),
        call(&other, "glob_files", json!({"pattern": "**"})),
        call(&other, "grep_files", json!({"pattern": "user"})),
    ];
    assert_eq!(nothing, ["nothing found"; 3]);
    assert_eq!(client.get(&file("x?user=user-1")).text(), "of user-1");
    assert_eq!(client.get(&file("x?user=user-2")).status, 404);
}

#[test]
fn paths_stay_inside_and_have_one_spelling() {
    let client = tenant(shared(), "files-paths");
    put(&client, "x?user=user-2", b"of user-2");
    for path in ["..%2Fuser-2%2Fx", "a%2F..%2F..%2Fuser-2%2Fx", "%2E%2E%2Fx", "a%5Cb", "a%00"] {
        for answer in [client.get(&file(path)), put(&client, path, b"x"), client.delete(&file(path))] {
            assert_eq!(answer.expect(422)["code"], "validation_failed", "{path}");
        }
    }
    assert_eq!(client.get(&file("../user-2/x")).status, 404, "a different route");
    let chat = Chat::new(client.clone(), "files-paths");
    let refused = call(&chat, "write_file", json!({"path": "../user-2/x", "content": "x"}));
    assert!(refused.starts_with("!`../user-2/x` is not a valid path"), "{refused}");
    assert_eq!(call(&chat, "write_file", json!({"path": "a..b", "content": "x"})), "wrote 1 bytes to a..b");
    assert_eq!(client.get(&file("a..b")).text(), "x");

    put(&client, "skills/x", b"one");
    for path in ["/skills/x", "%2Fskills%2Fx", "skills%2Fx"] {
        assert_eq!(client.get(&file(path)).text(), "one", "{path}");
    }
    let read = |path: &str| call(&chat, "read_file", json!({ "path": path }));
    assert_eq!(read("skills/x"), read("/skills/x"));
    put(&client, "/skills/x", b"two");
    assert_eq!(
        (client.get(&file("skills/x")).text(), paths(&client, "prefix=skills")),
        ("two".into(), vec!["skills/x".into()])
    );
}

#[test]
fn a_listed_path_can_be_read_unchanged() {
    let client = tenant(shared(), "files-found");
    let names = ["b & c/Zoë's 山.md", "plain.md", "with: colon/50% #1?.md"];
    for name in names {
        let encoded = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
        assert_eq!(put(&client, &encoded.to_string(), format!("needle in {name}").as_bytes()).status, 201);
    }
    assert_eq!(paths(&client, ""), names);
    let chat = Chat::new(client.clone(), "files-found");
    let read = |path: &str| {
        let said = call(&chat, "read_file", json!({ "path": path }));
        said.lines()
            .nth(1)
            .and_then(|line| line.split('\t').nth(1))
            .map(str::to_owned)
            .unwrap_or(said.clone())
    };
    let listed = call(&chat, "list_files", json!({}));
    let listed: Vec<&str> = listed.lines().map(|line| line.rsplit_once(" (").unwrap().0).collect();
    let globbed = call(&chat, "glob_files", json!({"pattern": "*.md"}));
    let grepped = call(&chat, "grep_files", json!({"pattern": "^needle (in|out)"}));
    let grepped: Vec<&str> = grepped.lines().map(|line| line.split_once(":1:").unwrap().0).collect();
    for found in [listed, globbed.lines().collect(), grepped] {
        assert_eq!(found, names);
        for name in found {
            assert_eq!(read(name), format!("needle in {name}"));
        }
    }
}

#[test]
fn a_search_finds_the_latest_writes() {
    let client = tenant(shared(), "files-fresh");
    let chat = Chat::new(client.clone(), "files-fresh");
    let grep = || call(&chat, "grep_files", json!({"pattern": "^v\\d+$"}));
    for n in 0..5 {
        put(&client, "log", format!("v{n}\n").as_bytes());
        assert_eq!(grep(), format!("log:1:v{n}"));
    }
    client.delete(&file("log"));
    assert_eq!(grep(), "nothing found");
}

#[test]
fn a_write_that_keeps_losing_fails_with_an_explanation() {
    let client = tenant(shared(), "files-losing");
    let stale = put(&client, "a", b"one").header("etag").unwrap().to_owned();
    put(&client, "a", b"two");
    let late = client.with_header("if-match", &stale);
    for _ in 0..3 {
        assert_eq!(put(&late, "a", b"three").expect(412)["code"], "precondition_failed");
    }
    assert_eq!(client.get(&file("a")).text(), "two");
}

#[test]
fn erasing_a_user_deletes_its_files() {
    let client = tenant(shared(), "files-forgotten");
    for whose in ["user=ann", "user=ann&agent=other", "user=bob", "layer=shared"] {
        put(&client, &format!("small?{whose}"), b"x");
        put(&client, &format!("large?{whose}"), &vec![b'x'; LARGE]);
    }
    client.delete("/v1/memory?user=ann").expect(204);
    assert_eq!(paths(&client, "user=ann&layer=user"), [""; 0]);
    assert_eq!(paths(&client, "user=ann&agent=other"), [""; 0]);
    assert_eq!(paths(&client, "user=bob&layer=user"), ["large", "small"]);
    assert_eq!(paths(&client, "layer=shared"), ["large", "small"]);
}

/// Pushes a folder of the repository. Returns the exit status and the output.
fn push(server: &Server, folder: &str, agent: &str, key: &str) -> (Option<i32>, String) {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/workspace-push.sh");
    let mut command = std::process::Command::new(script);
    command
        .env("DIR", folder)
        .env("AGENT", agent)
        .env("KEY", key)
        .env("URL", format!("http://{}", server.address()));
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn a_pushed_folder_is_shared_by_an_agents_users() {
    let server = shared();
    server.admin().post("/v1/admin/tenants", json!({ "id": "files-push" })).expect(201);
    let key = |scopes: Value| {
        let made =
            server.admin().post("/v1/admin/tenants/files-push/keys", json!({ "scopes": scopes })).expect(201);
        made["key"].as_str().unwrap().to_owned()
    };
    let (admin, chat) = (key(json!(["chat", "read", "admin"])), key(json!(["chat", "read"])));
    let folder = "examples/workspace";
    let (status, said) = push(server, folder, "bikes", &chat);
    assert!(status == Some(1) && said.contains("refused    AGENTS.md: 403 missing_scope"), "{said}");
    let (status, said) = push(server, folder, "bikes", &admin);
    assert!(status == Some(0) && said.contains("created    knowledge/repairs.md"), "{said}");
    assert!(said.ends_with("3 created, 0 replaced, 0 unchanged, 0 refused, 0 skipped\n"), "{said}");
    let client = server.anonymous().with_key(&admin);
    put(&client, "AGENTS.md?agent=bikes&layer=shared", b"changed");
    let (status, said) = push(server, folder, "bikes", &admin);
    assert!(status == Some(0) && said.contains("replaced   AGENTS.md\n"), "{said}");
    assert!(said.ends_with("0 created, 1 replaced, 2 unchanged, 0 refused, 0 skipped\n"), "{said}");
    assert!(client.get(&file("knowledge/KNOWLEDGE.md?agent=bikes&user=ann")).text().starts_with("# What"));
    for (folder, key) in [("no/such/folder", admin.as_str()), (folder, "wrong")] {
        let (status, said) = push(server, folder, "bikes", key);
        assert!(status == Some(1) && said.contains("error: "), "{said}");
    }
}

#[test]
fn erasing_a_tenant_deletes_its_files() {
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
