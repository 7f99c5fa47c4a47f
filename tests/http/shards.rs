//! Tenants on several databases: each tenant is on one shard, and only a move changes it.

use crate::support::{Client, Server};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const TENANTS: &str = "/v1/admin/tenants";
/// Size of a file that exceeds a row.
const LARGE: usize = 300_000;

/// Creates a tenant with a session, a small file, and a large one. Returns its shard too.
#[track_caller]
fn tenant(server: &Server, id: &str, shard: Option<&str>) -> (String, Client) {
    let mut body = json!({ "id": id });
    if let Some(shard) = shard {
        body["shard"] = shard.into();
    }
    let made = server.admin().post(TENANTS, body).expect(201);
    let mut shown = server.admin().get(&format!("{TENANTS}/{id}")).expect(200);
    shown.as_object_mut().unwrap().remove("storage");
    assert_eq!(shown, made);
    let client = client_of(server, id);
    client.post("/v1/sessions", json!({ "id": format!("session-of-{id}") })).expect(201);
    for (path, text) in [("same/small", format!("small-of-{id} ")), ("same/large", large(id))] {
        assert_eq!(client.send("PUT", &file(path), text.as_bytes()).status, 201);
    }
    (made["shard"].as_str().unwrap().to_owned(), client)
}

/// Creates a key of a tenant, and returns its client.
#[track_caller]
fn client_of(server: &Server, tenant: &str) -> Client {
    let scopes = json!({ "scopes": ["chat", "read", "admin"] });
    let key = server.admin().post(&format!("{TENANTS}/{tenant}/keys"), scopes).expect(201);
    server.anonymous().with_key(key["key"].as_str().unwrap())
}

fn file(path: &str) -> String {
    format!("/v1/workspace/files/{path}")
}

fn large(id: &str) -> String {
    format!("large-of-{id} ").repeat(LARGE / 10)
}

/// Checks that a tenant sees all of its own data and nothing else.
#[track_caller]
fn sees_its_own(client: &Client, id: &str) {
    let ids = |list: &Value, field: &str| -> Vec<String> {
        list["data"].as_array().unwrap().iter().map(|one| one[field].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&client.get("/v1/sessions").expect(200), "id"), [format!("session-of-{id}")]);
    assert_eq!(ids(&client.get("/v1/workspace/files").expect(200), "path"), ["same/large", "same/small"]);
    assert_eq!(client.get(&file("same/small")).text(), format!("small-of-{id} "));
    assert!(client.get(&file("same/large")).text() == large(id), "the large file of {id}");
}

/// Returns the databases that have rows of each tenant, except for the root's list of tenants and keys.
fn databases(server: &Server) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in rows(server, &["sessions", "files", "free_blobs"]) {
        let [tenant, file] = ["tenant", "file"].map(|field| row[field].as_str().unwrap().to_owned());
        found.entry(tenant).or_default().insert(file);
    }
    found
}

fn rows(server: &Server, tables: &[&str]) -> Vec<Value> {
    let rows = server.rows();
    let rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.filter(|row| tables.iter().any(|table| row["table"] == *table)).collect()
}

#[test]
fn each_tenant_is_on_one_shard_and_sees_its_own_data() {
    let server = Server::start(json!({}));
    let ids: Vec<String> = (0..8).map(|n| format!("spread-{n}")).collect();
    let tenants: Vec<_> = ids.iter().map(|id| tenant(&server, id, None)).collect();
    let shards: BTreeSet<&str> = tenants.iter().map(|(shard, _)| shard.as_str()).collect();
    assert_eq!(shards, ["DB", "DB_1"].into(), "eight names that map to both shards");
    for (id, (_, client)) in ids.iter().zip(&tenants) {
        sees_its_own(client, id);
    }
    // The root holds all tenants, whatever shard they are on.
    let roots: BTreeSet<String> = rows(&server, &["tenants", "api_keys"])
        .iter()
        .map(|row| row["file"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(roots.len(), 1);
    let found = databases(&server);
    for (id, (shard, _)) in ids.iter().zip(&tenants) {
        assert_eq!((found[id].len(), found[id] == roots), (1, shard == "DB"), "{id}");
    }
    let listed = server.admin().get(TENANTS).expect(200);
    let listed: Vec<&str> =
        listed["data"].as_array().unwrap().iter().map(|one| one["shard"].as_str().unwrap()).collect();
    assert_eq!(listed, tenants.iter().map(|(shard, _)| shard.as_str()).collect::<Vec<_>>());
}

#[test]
fn an_operator_chooses_a_shard_once() {
    let server = Server::start(json!({}));
    let chosen = ["DB", "DB_1"].map(|shard| {
        let id = format!("chosen-{shard}");
        let (on, client) = tenant(&server, &id, Some(shard));
        assert_eq!(on, shard);
        sees_its_own(&client, &id);
        databases(&server)[&id].clone()
    });
    assert_ne!(chosen[0], chosen[1]);
    let admin = server.admin();
    for shard in ["DB_2", "DB_01", "db", "", "SESSION"] {
        let refused = admin.post(TENANTS, json!({ "id": "x", "shard": shard })).expect(422);
        assert_eq!(refused["errors"][0]["pointer"], "/shard", "{shard}");
    }
    let moved = admin.patch(&format!("{TENANTS}/chosen-DB"), json!({ "shard": "DB_1" })).expect(422);
    assert_eq!(moved["errors"][0]["pointer"], "/shard");
}

#[test]
fn erasure_covers_every_shard() {
    let mut server = Server::start(json!({}));
    for shard in ["DB", "DB_1"] {
        tenant(&server, &format!("gone-{shard}"), Some(shard));
        let (_, client) = tenant(&server, &format!("kept-{shard}"), Some(shard));
        // Its object is free now.
        assert_eq!(client.send("PUT", &file("same/large"), b"replaced").status, 200);
    }
    for shard in ["DB", "DB_1"] {
        server.admin().delete(&format!("{TENANTS}/gone-{shard}")).expect(204);
    }
    // Simulates that the deletion was long ago.
    server.edit(
        "UPDATE free_blobs SET since = 0; UPDATE tenants SET deleted_at = 0 WHERE deleted_at IS NOT NULL",
    );
    assert!(
        ["DB", "DB_1"].iter().all(|shard| server.state_holds(format!("large-of-kept-{shard}").as_bytes()))
    );
    server.scheduled();
    let found = databases(&server);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["kept-DB", "kept-DB_1"]);
    assert_eq!(rows(&server, &["free_blobs"]), Vec::<Value>::new());
    assert_eq!(rows(&server, &["tenants"]).len(), 2);
    for shard in ["DB", "DB_1"] {
        for whose in ["gone", "kept"] {
            assert!(
                !server.state_holds(format!("large-of-{whose}-{shard}").as_bytes()),
                "{whose}-{shard} in R2"
            );
        }
        // The id can be reused, on the other shard.
        let other = if shard == "DB" { "DB_1" } else { "DB" };
        let (on, client) = tenant(&server, &format!("gone-{shard}"), Some(other));
        assert_eq!(on, other);
        sees_its_own(&client, &format!("gone-{shard}"));
    }
}

#[test]
fn adding_a_shard_moves_no_tenant_and_removing_one_stops_only_its_own() {
    let mut server = Server::start_with(json!({}), Some(1));
    // Some of these names would map to the second shard.
    let ids: Vec<String> = (0..4).map(|n| format!("early-{n}")).collect();
    let early: Vec<_> = ids.iter().map(|id| tenant(&server, id, None)).collect();
    assert!(early.iter().all(|(shard, _)| shard == "DB"));
    server.admin().post(TENANTS, json!({ "shard": "DB_1" })).expect(422);

    server.restart_with_databases(2);
    let late: Vec<_> = (0..4).map(|n| tenant(&server, &format!("later-{n}"), None)).collect();
    assert!(late.iter().any(|(shard, _)| shard == "DB_1"));
    let (_, lost) = tenant(&server, "lost", Some("DB_1"));
    tenant(&server, "gone", Some("DB"));
    for (id, (shard, client)) in ids.iter().zip(&early) {
        assert_eq!(server.admin().get(&format!("{TENANTS}/{id}")).expect(200)["shard"], shard.as_str());
        sees_its_own(client, id);
    }

    server.restart_with_databases(1);
    let down = lost.get("/v1/sessions");
    assert_eq!(
        (down.status, down.json()["code"].as_str()),
        (503, Some("unavailable")),
        "never another tenant's rows"
    );
    assert_eq!(lost.get(&file("same/small")).status, 503);
    assert_eq!(lost.send("PUT", &file("new"), b"x").status, 503);
    sees_its_own(&early[0].1, "early-0");
    // This tenant cannot be erased now, which does not stop the erasure of others.
    for id in ["lost", "gone"] {
        server.admin().delete(&format!("{TENANTS}/{id}")).expect(204);
    }
    server.scheduled();
    assert!(!databases(&server).contains_key("gone"));
    server.restart_with_databases(2);
    server.scheduled();
    assert!(!databases(&server).contains_key("lost"), "{}", server.log());
}

/// Checks that a search finds the tenant's fact.
#[track_caller]
fn finds_its_fact(client: &Client) {
    let found = client.get("/v1/memory/search?user=zoe&q=ferret").expect(200);
    assert_eq!(found["hits"][0]["text"], "The ferret is called Biscuit", "{found}");
}

#[test]
fn a_tenant_moves_while_it_is_used_and_kills_lose_nothing() {
    let mut server = Server::start(json!({}));
    let (_, client) = tenant(&server, "mover", Some("DB"));
    let (_, other) = tenant(&server, "kept", Some("DB"));
    let fact = json!({ "user": "zoe", "facts": [{ "text": "The ferret is called Biscuit" }] });
    client.post("/v1/memory", fact).expect(201);
    let root = databases(&server)["mover"].clone();
    let moves = format!("{TENANTS}/mover/moves");
    let phase = |server: &Server| -> String {
        let listed = server.admin().get(&moves).expect(200);
        listed["data"][0]["phase"].as_str().unwrap().to_owned()
    };

    let started = server.admin().post(&moves, json!({ "to": "DB_1" })).expect(202);
    assert_eq!([&started["from"], &started["to"], &started["phase"]], ["DB", "DB_1", "draining"]);
    assert_eq!(client.send("PUT", &file("same/small"), b"changed").status, 200);
    assert_eq!(client.send("PUT", &file("same/small"), b"small-of-mover ").status, 200);

    // Simulates that the move began long ago.
    server.edit("UPDATE moves SET since = 0");
    server.begin_scheduled();
    while phase(&server) == "draining" {}
    for _ in 0..3 {
        server.restart();
        sees_its_own(&client, "mover");
        finds_its_fact(&client);
        server.begin_scheduled();
    }
    server.restart();
    while phase(&server) != "cleaning" {
        server.admin().post(&moves, json!({ "to": "DB_1" })).expect(202);
        sees_its_own(&client, "mover");
    }
    assert_eq!(server.admin().get(&format!("{TENANTS}/mover")).expect(200)["shard"], "DB_1");
    assert_eq!(client.send("PUT", &file("same/small"), b"small-of-mover ").status, 200);

    server.edit("UPDATE moves SET since = 0");
    server.scheduled();
    assert_eq!(phase(&server), "done", "{}", server.log());
    let found = databases(&server);
    assert_eq!((found["mover"].len(), found["kept"].len()), (1, 1));
    assert!(found["mover"].is_disjoint(&root), "no row is left behind");
    sees_its_own(&client, "mover");
    finds_its_fact(&client);
    sees_its_own(&other, "kept");
    let used = server.admin().get(&format!("{TENANTS}/mover")).expect(200);
    assert_eq!(used["storage"]["sessions"], 1);

    // Objects of the old shard's files were not collected.
    server.edit("UPDATE free_blobs SET since = 0");
    server.scheduled();
    sees_its_own(&client, "mover");

    server.admin().delete(&format!("{TENANTS}/mover")).expect(204);
    server.edit("UPDATE tenants SET deleted_at = 0 WHERE deleted_at IS NOT NULL");
    server.scheduled();
    assert!(!databases(&server).contains_key("mover"));
    let tables = ["tenants", "moves", "fences", "memory_collections", "memory_spaces", "tenant_storage"];
    let left: Vec<_> = rows(&server, &tables)
        .into_iter()
        .filter(|row| row["tenant"] == "mover" || row["id"] == "mover")
        .collect();
    assert_eq!(left, Vec::<Value>::new());
    assert!(!server.state_holds(b"large-of-mover"), "in R2");
}

#[test]
fn writes_of_a_tenant_whose_rows_are_copied_are_refused_and_turns_continue() {
    let mut server = Server::start(json!({}));
    let (_, client) = tenant(&server, "frozen", Some("DB"));
    let (_, other) = tenant(&server, "kept", Some("DB"));
    server.edit("INSERT INTO fences (tenant, move, position) VALUES ('frozen', 'mov_0', '\"clear\"')");
    let refused = client.send("PUT", &file("new"), b"x");
    assert_eq!(
        (refused.status, refused.json()["code"].as_str(), refused.header("retry-after")),
        (503, Some("unavailable"), Some("2"))
    );
    sees_its_own(&client, "frozen");
    assert_eq!(other.send("PUT", &file("new"), b"x").status, 201);
    let turn =
        client.post("/v1/sessions/session-of-frozen/messages", json!({ "content": "Hello" })).expect(200);
    assert_eq!(turn["status"], "completed");

    server.edit("DELETE FROM fences");
    assert_eq!(client.send("PUT", &file("new"), b"x").status, 201);
}

#[test]
fn the_users_of_a_spread_tenant_are_on_all_shards() {
    let mut server = Server::start_with(json!({}), None);
    let body = json!({ "id": "wide", "shard": "DB", "spread": true });
    assert_eq!(server.admin().post(TENANTS, body).expect(201)["spread"], 2);
    let client = client_of(&server, "wide");
    let users: Vec<String> = (0..8).map(|n| format!("user-{n}")).collect();
    let path = |user: &str, name: &str| format!("/v1/workspace/files/{name}?user={user}");
    for user in &users {
        assert_eq!(client.send("PUT", &path(user, "small"), user.as_bytes()).status, 201);
        assert_eq!(client.send("PUT", &path(user, "large"), large(user).as_bytes()).status, 201);
        let fact = json!({ "user": user, "facts": [{ "text": format!("The ferret is called {user}") }] });
        client.post("/v1/memory", fact).expect(201);
    }
    let shared = "/v1/workspace/files/guide?layer=shared";
    assert_eq!(client.send("PUT", shared, b"shared").status, 201);

    let check = |client: &Client| {
        for user in &users {
            assert_eq!(client.get(&path(user, "small")).text(), *user);
            assert!(client.get(&path(user, "large")).text() == large(user), "the large file of {user}");
            assert_eq!(client.get(&path(user, "guide")).text(), "shared");
            let found = client.get(&format!("/v1/memory/search?user={user}&q=ferret")).expect(200);
            assert_eq!(found["hits"][0]["text"], format!("The ferret is called {user}"));
            assert_eq!(found["hits"].as_array().unwrap().len(), 1, "{found}");
        }
    };
    check(&client);
    let turn = json!({ "content": "Hello", "user": "user-1" });
    assert_eq!(client.post("/v1/sessions/s/messages", turn).expect(200)["status"], "completed");
    assert_eq!(databases(&server)["wide"].len(), 2);
    let used = server.admin().get(&format!("{TENANTS}/wide")).expect(200);
    assert_eq!(used["storage"]["files"], 17, "the sum of both shards");

    let body = server.admin().get(&format!("{TENANTS}/wide/export")).body;
    let export = String::from_utf8_lossy(&body);
    assert!(export.contains("\"complete\":true"));
    for user in &users {
        assert!(export.contains(&format!("The ferret is called {user}")), "the fact of {user}");
        assert!(export.contains(&large(user)), "the large file of {user}");
    }
    let path_of = |user: &str| format!("{TENANTS}/wide/users/{user}");
    for user in ["gone-1", "gone-2", "gone-3", "gone-4"] {
        assert_eq!(client.send("PUT", &path(user, "small"), user.as_bytes()).status, 201);
        let fact = json!({ "user": user, "facts": [{ "text": format!("The ferret is called {user}") }] });
        client.post("/v1/memory", fact).expect(201);
        assert!(server.rows().contains(user));
        server.admin().delete(&path_of(user)).expect(204);
    }
    let left =
        rows(&server, &["files", "file_trees", "memory_collections", "memory_entries", "memory_spaces"]);
    assert!(!left.iter().any(|row| row.to_string().contains("gone-")), "{left:?}");

    // No user appears to be without files when a shard is missing.
    server.restart_with_databases(1);
    for user in &users {
        assert_eq!(client.get(&path(user, "small")).status, 503);
    }
    server.restart_with_databases(2);
    check(&client);

    server.admin().delete(&format!("{TENANTS}/wide")).expect(204);
    server.edit("UPDATE tenants SET deleted_at = 0 WHERE deleted_at IS NOT NULL");
    server.scheduled();
    let tables = ["files", "free_blobs", "sessions", "memory_collections", "memory_spaces", "tenant_storage"];
    let left: Vec<_> = rows(&server, &tables).into_iter().filter(|row| row["tenant"] == "wide").collect();
    assert_eq!(left, Vec::<Value>::new());
    assert!(!server.state_holds(b"large-of-user-1"), "in R2");
}

/// Returns the database that has a user's rows of a table; `None` if several have.
fn file_of(server: &Server, table: &str, tenant: &str, user: Option<&str>) -> Option<String> {
    let found = rows(server, &[table]);
    let own = found.iter().filter(|row| {
        let scope = row["scope"].as_str().map_or(row["user"].as_str(), |scope| scope.split("/users/").nth(1));
        row["tenant"] == tenant && (scope == user || table == "sessions")
    });
    let files: BTreeSet<_> = own.map(|row| row["file"].as_str().unwrap().to_owned()).collect();
    Some(files).filter(|files| files.len() == 1).and_then(|files| files.into_iter().next())
}

/// Runs a move to its end, with a kill in each phase.
fn move_to_the_end(server: &mut Server, tenant: &str, body: &Value, check: &dyn Fn()) {
    let moves = format!("{TENANTS}/{tenant}/moves");
    server.admin().post(&moves, body.clone()).expect(202);
    for _ in 0..9 {
        check();
        // Simulates that the phase began long ago.
        server.edit("UPDATE moves SET since = 0");
        server.begin_scheduled();
        check();
        server.restart();
        server.edit("UPDATE moves SET since = 0");
        server.admin().post(&moves, body.clone());
        server.scheduled();
        if server.admin().get(&moves).expect(200)["data"][0]["phase"] == "done" {
            return check();
        }
    }
    panic!("the move does not end: {}", server.log());
}

#[test]
fn a_user_moves_and_so_do_the_rows_of_no_user() {
    let mut server = Server::start(json!({}));
    for (id, spread) in [("wide", true), ("plain", false)] {
        let body = json!({ "id": id, "shard": "DB", "spread": spread });
        server.admin().post(TENANTS, body).expect(201);
        let client = client_of(&server, id);
        let path = |user: &str, name: &str| format!("/v1/workspace/files/{name}?user={user}");
        // Of `wide`, the ids of `ann` and `cy` determine `DB_1`, and the others `DB`.
        let users = ["ann", "eve", "cy", "gus"];
        for user in users {
            assert_eq!(client.send("PUT", &path(user, "small"), user.as_bytes()).status, 201);
            assert_eq!(client.send("PUT", &path(user, "large"), large(user).as_bytes()).status, 201);
            let fact = json!({ "user": user, "facts": [{ "text": format!("The ferret is called {user}") }] });
            client.post("/v1/memory", fact).expect(201);
        }
        let shared = "/v1/workspace/files/guide?layer=shared";
        assert_eq!(client.send("PUT", shared, b"shared").status, 201);
        client.post("/v1/sessions", json!({ "id": format!("s-{id}"), "user": "eve" })).expect(201);
        let check = || {
            for user in users {
                assert_eq!(client.get(&path(user, "small")).text(), user);
                assert!(client.get(&path(user, "large")).text() == large(user), "the large file of {user}");
                assert_eq!(client.get(&path(user, "guide")).text(), "shared");
                let found = client.get(&format!("/v1/memory/search?user={user}&q=ferret")).expect(200);
                assert_eq!(found["hits"][0]["text"], format!("The ferret is called {user}"));
            }
            let listed = client.get("/v1/sessions?user=eve").expect(200);
            assert_eq!(listed["data"][0]["id"], format!("s-{id}"));
        };

        let files = |server: &Server| -> Vec<Option<String>> {
            let of = |user| file_of(server, "files", id, user);
            users.map(Some).into_iter().chain([None]).map(of).collect()
        };
        let before = files(&server);
        let sessions = file_of(&server, "sessions", id, None);
        move_to_the_end(&mut server, id, &json!({ "to": "DB_1", "user": "eve" }), &check);
        let after = files(&server);
        let moved: Vec<_> = (0..5).filter(|n| before[*n] != after[*n]).collect();
        assert_eq!(moved, [1], "{before:?} {after:?}");
        assert_eq!(file_of(&server, "memory_collections", id, Some("eve")), after[1]);
        assert_eq!(file_of(&server, "sessions", id, None), sessions, "sessions stay");
        let shown = server.admin().get(&format!("{TENANTS}/{id}")).expect(200);
        assert_eq!((&shown["shard"], &shown["user_shards"]), (&json!("DB"), &json!({ "eve": "DB_1" })));
        // Cron may have added the files of consolidated memories.
        assert!(
            shown["storage"]["files"].as_u64() >= Some(9) && shown["storage"]["sessions"] == 1,
            "{shown}"
        );

        // New rows are on the new shard, and an export has the rows of all shards.
        assert_eq!(client.send("PUT", &path("eve", "later"), b"later").status, 201);
        assert_eq!(file_of(&server, "files", id, Some("eve")), after[1]);
        let body = server.admin().get(&format!("{TENANTS}/{id}/export")).body;
        let export = String::from_utf8_lossy(&body);
        assert!(export.contains("\"complete\":true"));
        assert!(users.iter().all(|user| export.contains(&large(user))));

        let moves = format!("{TENANTS}/{id}/moves");
        if spread {
            move_to_the_end(&mut server, id, &json!({ "to": "DB_1" }), &check);
            let last = files(&server);
            assert_eq!(last[..4], after[..4], "users stay");
            assert_ne!(last[4], after[4]);
            assert_ne!(file_of(&server, "sessions", id, None), sessions);
        } else {
            let refused = server.admin().post(&moves, json!({ "to": "DB_1" })).expect(422);
            assert_eq!(
                refused["errors"][0]["detail"],
                "the user eve is on DB_1; move such users to DB first"
            );
        }
        // Objects of the files on the old shard were not collected.
        server.edit("UPDATE free_blobs SET since = 0");
        server.scheduled();
        check();

        server.admin().delete(&format!("{TENANTS}/{id}/users/eve")).expect(204);
        let tables =
            ["files", "file_trees", "memory_collections", "memory_entries", "memory_spaces", "sessions"];
        let left = rows(&server, &tables).into_iter().map(|row| row.to_string());
        let left: Vec<_> = left.filter(|row| row.contains("eve\"")).collect();
        assert_eq!(left, Vec::<String>::new());

        server.admin().delete(&format!("{TENANTS}/{id}")).expect(204);
        server.edit("UPDATE tenants SET deleted_at = 0 WHERE deleted_at IS NOT NULL");
        server.scheduled();
        server.edit("UPDATE free_blobs SET since = 0");
        server.scheduled();
        let tables = [
            "tenants",
            "moves",
            "fences",
            "user_shards",
            "sessions",
            "files",
            "free_blobs",
            "memory_collections",
            "memory_spaces",
            "tenant_storage",
        ];
        let found = rows(&server, &tables).into_iter();
        let left: Vec<_> = found.filter(|row| row["tenant"] == id || row["id"] == id).collect();
        assert_eq!(left, Vec::<Value>::new());
        assert!(!server.state_holds(b"large-of-eve"), "in R2");
    }
}
