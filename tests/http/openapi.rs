//! Compares the real Worker with its OpenAPI document, with Schemathesis: random requests of two tenants and of the
//! operator, valid and invalid ones. `scripts/schemathesis.sh` sends more of them.

use crate::support::{ADMIN_KEY, Client, Folder, Server, shared};
use edge_harness::http::routes;
use serde_json::{Value, json};
use std::{env, path::PathBuf, process::Command};

/// Requests for each route, unless `EXAMPLES` sets how many there are in total.
const PER_ROUTE: usize = 6;
/// What each response must fulfill. The last two are in the hooks.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,\
                      lines_match_the_schema,tenants_are_isolated";

/// Returns the program, which `scripts/schemathesis.sh` and `make test` install.
fn program() -> PathBuf {
    let cache = env::var("EDGE_HARNESS_CACHE")
        .map_or_else(|_| PathBuf::from(env::var("HOME").unwrap()).join(".cache/edge-harness"), PathBuf::from);
    let program = cache.join("schemathesis/bin/schemathesis");
    assert!(program.exists(), "Schemathesis is not installed; run scripts/schemathesis.sh");
    program
}

/// Returns the path of a file of the repository.
fn root(name: &str) -> String {
    format!("{}/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Creates a tenant with something of each kind. Returns what the hooks need.
fn tenant(server: &Server, name: &str) -> Value {
    let admin = server.admin();
    admin.post("/v1/admin/tenants", json!({ "id": name })).expect(201);
    let keys = format!("/v1/admin/tenants/{name}/keys");
    let all = json!({ "scopes": ["chat", "read", "approve", "admin"] });
    let key = admin.post(&keys, all).expect(201)["key"].as_str().unwrap().to_owned();
    let client = server.anonymous().with_key(&key);
    let secret = format!("secret-of-{name}");
    let say = |session: &str, content: &str| {
        client.post(&format!("/v1/sessions/{session}/messages"), json!({ "content": content })).expect(200)
    };
    let [talk, asks, waits] = ["talk", "asks", "waits"].map(|session| format!("{session}-{name}"));
    let turn = say(&talk, &format!("/tool echo {{\"text\": \"{secret}\"}}"));
    let rules = json!({ "id": waits, "permissions": { "categories": { "edit": "ask" } } });
    client.post("/v1/sessions", rules).expect(201);
    let approval = say(&waits, "/tool write_file {\"path\": \"a.txt\", \"content\": \"hi\"}");
    let question = say(&asks, "/tool ask_user {\"question\": \"Which?\"}");
    let file = upload(&client, &talk, &secret);
    client.put(&format!("/v1/workspace/files/{name}.md"), json!({ "text": secret })).expect(201);
    client.post("/v1/memory", json!({ "facts": [{ "text": secret }] })).expect(201);
    let input = json!({ "model": "default", "input": secret });
    let response = client.post("/v1/responses", input).expect(200)["id"].clone();
    json!({
        "key": key,
        "secret": secret,
        "known": [
            { "id": talk, "turn": turn["turn_id"] },
            { "id": talk, "ref": file["ref"] },
            { "id": waits, "call_id": approval["pending"][0]["call_id"] },
            { "id": asks, "call_id": question["pending"][0]["call_id"] },
            { "response": response },
            { "path": format!("{name}.md") },
            { "model": "demo/echo" },
        ],
    })
}

fn upload(client: &Client, session: &str, text: &str) -> Value {
    let path = format!("/v1/sessions/{session}/attachments?name=note.txt");
    client.with_header("content-type", "text/plain").send("POST", &path, text.as_bytes()).expect(201)
}

#[test]
fn everybody_may_read_the_document() {
    let client = shared().anonymous();
    let response = client.get("/openapi.json");
    assert_eq!((response.status, response.header("content-type")), (200, Some("application/json")));
    assert_eq!(response.header("cache-control"), Some("public, max-age=3600"));
    assert!(response.text() == include_str!("../../docs/openapi.json"), "build the Worker again");
    assert_eq!(client.send("HEAD", "/openapi.json", &[]).text(), "");
}

#[test]
fn the_worker_conforms_to_its_document() {
    let server = Server::start(json!({}));
    server.admin().post("/v1/admin/tenants", json!({ "id": "idle" })).expect(201);
    let world = json!({
        "operator": ADMIN_KEY, "idle_tenant": "idle", "tenants": [tenant(&server, "north"), tenant(&server, "south")],
    });
    let total = env::var("EXAMPLES").ok().map(|total| total.parse::<usize>().expect("EXAMPLES is a number"));
    let per_route = total.map_or(PER_ROUTE, |total| total.div_ceil(routes::all().count()));
    let phases = if total.is_some() { "examples,coverage,fuzzing" } else { "examples,fuzzing" };
    let url = format!("http://{}", server.address());
    let folder = Folder::create();
    let mut command = Command::new(program());
    command
        .args([
            "run",
            &root("docs/openapi.json"),
            "--url",
            &url,
            "--checks",
            CHECKS,
            "--phases",
            phases,
            // Python before 3.12 cannot parse source in several threads, as Hypothesis does.
            "--workers",
            "1",
            "--no-color",
        ])
        .args(["--max-examples", &per_route.to_string(), "--request-timeout", "30", "--warnings", "off"])
        .args(["--generation-with-security-parameters", "false", "--generation-database", "none"])
        .args(["--suppress-health-check", "all"])
        // It leaves files behind.
        .current_dir(folder.path())
        .env("PYTHONPATH", root("tests/schemathesis"))
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("WORLD", world.to_string());
    if let Ok(seed) = env::var("SEED") {
        command.args(["--seed", &seed]);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success(), "{text}\n{}\n{}", String::from_utf8_lossy(&output.stderr), server.log());
}
