//! Exports, and erasure that leaves nothing: tenants and users with one of everything.

use crate::support::{Chat, Client, PATIENCE, Response, Server};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Read};
use std::thread;
use std::time::Instant;

const TENANTS: &str = "/v1/admin/tenants";
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// Creates a tenant and a client with a key of it.
#[track_caller]
fn tenant(server: &Server, id: &str) -> Client {
    server.admin().post(TENANTS, json!({ "id": id, "name": format!("name of {id}") })).expect(201);
    with_key(server, id)
}

/// Creates a client with a key of a tenant.
#[track_caller]
fn with_key(server: &Server, id: &str) -> Client {
    let scopes = json!({ "scopes": ["chat", "read", "approve", "admin"] });
    let key = server.admin().post(&format!("{TENANTS}/{id}/keys"), scopes).expect(201);
    server.anonymous().with_key(key["key"].as_str().unwrap())
}

/// Starts a server whose agent has subagents.
fn furnished_server() -> Server {
    Server::start(json!({ "SUBAGENTS": "[]" }))
}

/// Waits until so many sessions are listed, those of subagents included. A session is listed after its first turn began.
#[track_caller]
fn until_listed(server: &Server, count: usize) {
    let deadline = Instant::now() + PATIENCE;
    let listed = || server.rows().lines().filter(|line| line.contains("\"table\":\"sessions\"")).count();
    while listed() < count {
        assert!(Instant::now() < deadline, "{} sessions are listed", listed());
    }
}

/// Stores one of everything for a user. All of it contains `mark`.
#[track_caller]
fn furnish(client: &Client, user: &str, mark: &str) -> Chat {
    let once = client.with_header("idempotency-key", &format!("key-{mark}"));
    let session = json!({ "user": user, "title": mark, "metadata": { "mark": mark } });
    let session = once.post("/v1/sessions", session).expect(201);
    let chat = Chat::new(client.clone(), session["id"].as_str().unwrap());
    let say = |content: String| chat.ask(json!({ "content": content, "user": user }));
    say(format!("/say {mark} was said"));
    say(format!("remember that {mark} likes sailing"));
    // The result is larger than a log may hold.
    say(format!("/tool echo {}", json!({ "text": format!("{mark} ").repeat(2_000) })));
    say(format!(
        "/tool subagent {}",
        json!({ "agent": "general-purpose", "task": format!("/say {mark} task") })
    ));
    say(format!(
        "/tool write_file {}",
        json!({ "path": "notes/own.md", "content": format!("{mark} written") })
    ));
    let attachment = chat.client.with_header("content-type", "text/plain");
    let path = chat.path(&format!("/attachments?user={user}&name={mark}.txt"));
    attachment.send("POST", &path, format!("{mark} attached").as_bytes()).expect(201);
    let fact = json!({ "user": user, "facts": [{ "text": format!("{mark} is a fact") }] });
    once.post("/v1/memory", fact).expect(201);
    let turn = json!({ "id": "1", "speaker": "user", "text": format!("{mark} was imported") });
    client.post("/v1/memory/turns", json!({ "user": user, "session": mark, "turns": [turn] })).expect(201);
    for (name, text) in [("small", format!("{mark} small")), ("large", format!("{mark} ").repeat(40_000))] {
        let path = format!("/v1/workspace/files/docs/{mark}-{name}.md?user={user}");
        assert_eq!(client.send("PUT", &path, text.as_bytes()).status, 201);
        // The object of a replaced file is removed later.
        assert_eq!(client.send("PUT", &path, format!("{text}.").as_bytes()).status, 200);
    }
    client.post("/v1/tickets", json!({ "session": chat.id, "user": user })).expect(201);
    chat.until_logged("memory.flushed");
    client.post("/v1/memory/consolidate", json!({ "user": user })).expect(200);
    chat
}

/// The entries of an archive, by name.
pub fn unzip(response: &Response) -> BTreeMap<String, String> {
    assert_eq!((response.status, response.header("content-type")), (200, Some("application/zip")));
    let mut archive = zip::ZipArchive::new(Cursor::new(&response.body)).expect("an archive");
    let entries = (0..archive.len()).map(|index| {
        let mut entry = archive.by_index(index).unwrap();
        let mut content = String::new();
        entry.read_to_string(&mut content).unwrap();
        (entry.name().to_owned(), content)
    });
    entries.collect()
}

#[test]
fn an_export_has_everything_of_its_subject_only() {
    let server = furnished_server();
    let (client, other) = (tenant(&server, "acme"), tenant(&server, "other"));
    let ann = furnish(&client, "ann", "annmark1");
    furnish(&client, "bob", "bobmark2");
    furnish(&other, "ann", "foreignmark3");

    until_listed(&server, 6);
    let whole = unzip(&server.admin().get(&format!("{TENANTS}/acme/export")));
    let manifest: Value = serde_json::from_str(&whole["manifest.json"]).unwrap();
    assert_eq!((&manifest["complete"], &manifest["failed"]), (&json!(true), &json!([])), "{manifest}");
    for mark in ["annmark1", "bobmark2"] {
        for text in [
            format!("{mark} was said"),
            format!("{mark} likes sailing"),
            format!("{mark} task"),
            format!("{mark} written"),
            format!("{mark} attached"),
            format!("{mark} is a fact"),
            format!("{mark} was imported"),
            format!("{mark} small."),
            format!("{mark} ").repeat(2_000),
            format!("{mark} ").repeat(40_000),
        ] {
            assert!(whole.values().any(|content| content.contains(&text)), "{}", &text[..30.min(text.len())]);
        }
    }
    assert!(!whole.values().any(|content| content.contains("foreignmark3")));
    let log = &whole[&format!("sessions/{}/events.ndjson", ann.id)];
    let records: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Work after the turns may have added more since.
    assert_eq!(records, ann.log()[..records.len()], "the records as the API returns them");
    let child = records.iter().find(|record| record["type"] == "subagent.started").unwrap();
    let child = child["session"].as_str().unwrap();
    assert!(whole.contains_key(&format!("sessions/{child}/events.ndjson")));
    for name in ["tenant.json", "keys.ndjson", "usage.ndjson"] {
        assert!(whole.contains_key(name), "{name}");
    }

    let own = unzip(&client.get("/v1/export?user=ann"));
    let has = |text: &str| own.iter().any(|(name, content)| name.contains(text) || content.contains(text));
    assert!(has("annmark1 was said") && has("annmark1 attached") && has("annmark1 task"));
    assert!(!has("bobmark2") && !has("foreignmark3") && !has("keys.ndjson"));
    assert_eq!(server.anonymous().get("/v1/export").status, 401);
    assert_eq!(other.get("/v1/admin/tenants/acme/export").status, 403);
}

#[test]
fn an_export_continues_in_parts() {
    let server = Server::start(json!({}));
    let client = tenant(&server, "acme");
    // Nine files of 4 MB exceed a part.
    for n in 0..9 {
        let text = format!("{n}").repeat(4 << 20);
        assert_eq!(client.send("PUT", &format!("/v1/workspace/files/f{n}"), text.as_bytes()).status, 201);
    }
    let names: Vec<_> = (0..9).map(|n| format!("files/agents/default/users/default/f{n}")).collect();
    assert_eq!(files_of_parts(&client), (2, names));
}

#[test]
fn an_export_of_users_on_several_shards_continues_in_parts() {
    let server = Server::start(json!({}));
    server.admin().post(TENANTS, json!({ "id": "wide", "spread": true })).expect(201);
    let client = with_key(&server, "wide");
    for n in 0..9 {
        let (user, text) = (format!("user-{n}"), format!("{n}").repeat(4 << 20));
        let path = format!("/v1/workspace/files/f{n}?user={user}");
        assert_eq!(client.send("PUT", &path, text.as_bytes()).status, 201);
        let fact = json!({ "user": user, "facts": [{ "text": format!("A fact of {user}") }] });
        client.post("/v1/memory", fact).expect(201);
    }
    let shards: BTreeSet<_> = server
        .rows()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|row| row["table"] == "files")
        .map(|row| row["file"].to_string())
        .collect();
    assert_eq!(shards.len(), 2);
    let names: Vec<_> = (0..9).map(|n| format!("files/agents/default/users/user-{n}/f{n}")).collect();
    assert_eq!(files_of_parts(&client), (2, names));
    let part = unzip(&client.get("/v1/export"));
    let facts: Vec<_> = part.keys().filter(|name| name.starts_with("memory/")).collect();
    let names: Vec<_> = (0..9).map(|n| format!("memory/default/user-{n}/facts.ndjson")).collect();
    assert_eq!(facts, Vec::from_iter(&names));
}

/// Exports files of 4 MB of a tenant. Returns the number of parts, and the names of the files in the order of parts.
#[track_caller]
fn files_of_parts(client: &Client) -> (usize, Vec<String>) {
    let (mut path, mut files, mut parts) = ("/v1/export".to_owned(), Vec::new(), 0);
    loop {
        let part = unzip(&client.get(&path));
        parts += 1;
        files.extend(part.iter().filter(|(name, _)| name.starts_with("files/")).map(|(name, content)| {
            assert!(content.len() == 4 << 20);
            name.clone()
        }));
        let manifest: Value = serde_json::from_str(&part["manifest.json"]).unwrap();
        match manifest["next"].as_str() {
            Some(next) => path = format!("/v1/export?cursor={next}"),
            None => return (parts, files),
        }
    }
}

#[test]
fn hundreds_of_sessions_are_erased_by_one_run_of_cron() {
    let server = Server::start(json!({}));
    let client = tenant(&server, "many");
    thread::scope(|scope| {
        for part in 0..4 {
            let client = &client;
            scope.spawn(move || {
                for n in 0..100 {
                    let session = json!({ "id": format!("many-{part}-{n}"), "user": "ann" });
                    client.post("/v1/sessions", session).expect(201);
                }
            });
        }
    });
    server.admin().delete(&format!("{TENANTS}/many")).expect(204);
    let progress = server.admin().get(&format!("{TENANTS}/many")).expect(200);
    let left = progress["sessions_left"].as_u64().unwrap();
    assert!((200..400).contains(&left), "{progress}");
    assert_eq!(progress["storage"]["sessions"], left);
    assert_eq!(server.scheduled()["outcome"], "ok");
    assert_eq!(server.admin().get(&format!("{TENANTS}/many")).expect(200)["sessions_left"], 0);
    assert!(!server.rows().contains("many-"), "no row names a session");
}

/// What may name a deleted tenant: the operator's trail, and the local runtime's own table of the names of objects.
const KEPT: &str = "audit,__miniflare_do_name";

#[test]
fn a_deleted_tenant_leaves_nothing() {
    let mut server = furnished_server();
    let (id, mark) = ("tenant-gone-471", "gonemark4711");
    let client = tenant(&server, id);
    furnish(&client, "ann", mark);
    client.put(&format!("/v1/secrets/{mark}"), json!({ "value": "a value" })).expect(201);
    client.put(&format!("/v1/agents/{mark}"), json!({ "instructions": mark })).expect(201);
    furnish(&tenant(&server, "stays"), "ann", "staymark12");
    let found = server.scan(KEPT, &[id, mark]);
    assert!(found.lines().count() >= 6, "the scan finds what is stored: {found}");

    server.scheduled();
    let usage = server.admin().get(&format!("{TENANTS}/{id}/usage")).expect(200);
    let stored = &usage["data"][0]["storage"];
    assert!(stored["file_bytes"].as_u64() > Some(0) && stored["sessions"].as_u64() > Some(0), "{usage}");
    server.admin().delete(&format!("{TENANTS}/{id}")).expect(204);
    server.scheduled();
    // The id is held back, and responses to Idempotency-Keys are stored for a day.
    server.restart_with(json!({ "CLOCK_OFFSET_MS": (2 * DAY_MS).to_string() }));
    server.scheduled();
    server.admin().get(&format!("{TENANTS}/{id}")).expect(404);
    let found = server.scan(KEPT, &[id, mark]);
    assert_eq!(found, "");
    assert!(!server.scan(KEPT, &["staymark12"]).is_empty(), "other tenants keep their data");
}

#[test]
fn an_erased_user_leaves_nothing_but_usage() {
    let mut server = furnished_server();
    let client = tenant(&server, "acme");
    let (user, mark) = ("user-gone-471", "gonemark4711");
    furnish(&client, user, mark);
    furnish(&client, "stays", "staymark12");
    until_listed(&server, 4);
    let path = format!("{TENANTS}/acme/users/{user}");
    while server.admin().delete(&path).status == 202 {}
    assert_eq!(server.admin().delete(&path).status, 204);
    let usage = client.get("/v1/usage?group=user").expect(200);
    assert!(usage["data"].to_string().contains(user), "usage stays: {usage}");
    // Objects of files, and responses to Idempotency-Keys, are removed later.
    server.restart_with(json!({ "CLOCK_OFFSET_MS": (2 * DAY_MS).to_string() }));
    server.scheduled();
    let found = server.scan(KEPT, &[user, mark]);
    let found: Vec<_> = found.lines().filter(|line| !line.contains("TenantObject")).collect();
    assert_eq!(found, Vec::<&str>::new(), "outside of the ledger");
    assert!(!server.scan(KEPT, &["staymark12"]).is_empty(), "other users keep their data");
}
