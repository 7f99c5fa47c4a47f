//! Deleted tenants and erased users: everything of them is removed from the state.

use crate::support::{Client, Server};
use pretty_assertions::assert_eq;
use serde_json::json;
use std::thread;

const TENANTS: &str = "/v1/admin/tenants";

/// Creates a tenant and a client with a key of it.
#[track_caller]
fn tenant(server: &Server, id: &str) -> Client {
    server.admin().post(TENANTS, json!({ "id": id })).expect(201);
    let scopes = json!({ "scopes": ["chat", "read", "approve", "admin"] });
    let key = server.admin().post(&format!("{TENANTS}/{id}/keys"), scopes).expect(201);
    server.anonymous().with_key(key["key"].as_str().unwrap())
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
