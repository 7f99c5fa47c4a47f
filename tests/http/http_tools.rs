//! HTTP tools and secrets in the real Worker. The server of the tests returns whatever it receives.

use crate::support::{
    Chat, Client, Server,
    http::{Request, receive, respond},
};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

const SECRET: &str = "the-secret-of-ours-4711";
const OTHER: &str = "the-secret-of-theirs-0815";
const TENANTS: &str = "/v1/admin/tenants";

/// A web server that returns each request as JSON, with the status that the path ends with.
struct Echo {
    address: String,
    received: Arc<Mutex<Vec<Value>>>,
}

impl Echo {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let received = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&received);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let request = echo(stream);
                all.lock().unwrap().extend(request);
            }
        });
        Self { address, received }
    }

    /// The requests so far.
    fn received(&self) -> Vec<Value> {
        self.received.lock().unwrap().clone()
    }
}

fn echo(stream: TcpStream) -> Option<Value> {
    let Request { first, headers, body, mut stream } = receive(stream).ok()?;
    let target = first.split(' ').nth(1)?;
    let headers: serde_json::Map<_, _> =
        headers.into_iter().map(|(name, value)| (name, value.into())).collect();
    let request = json!({ "first": first, "headers": headers, "body": String::from_utf8_lossy(&body) });
    let path = target.split('?').next()?;
    let status = path.rsplit('/').next()?.parse::<u16>().unwrap_or(200);
    let location = (status == 302).then(|| ("location".to_owned(), "/elsewhere".to_owned()));
    respond(&mut stream, status, location.as_slice(), &request).ok()?;
    Some(request)
}

fn tenant(server: &Server, id: &str) -> Client {
    server.admin().post(TENANTS, json!({ "id": id })).expect(201);
    reconnected(server, id)
}

fn definition(echo: &Echo) -> Value {
    let url = |path: &str| format!("http://{}{path}", echo.address);
    let any = json!({"properties": {"id": {"type": "string"}, "text": {"type": "string"}, "status": {"type": "integer"}}});
    json!({
        "model": "demo/echo",
        "http_tools": [
            {"name": "find", "description": "Finds.", "url": url("/find/{{id}}?q={{text}}&key=${secret:TOKEN}"),
             "parameters": any, "headers": {"Authorization": "Bearer ${secret:TOKEN}"}},
            {"name": "make", "description": "Makes.", "method": "POST", "effect": "network", "url": url("/make/{{status}}"),
             "parameters": any, "body": {"text": "{{text}}", "token": "${secret:TOKEN}"}},
            {"name": "other", "description": "Has no secret.", "url": url("/other?key=${secret:MISSING}")},
        ],
    })
}

/// A turn of an agent that calls a tool, and the record of the outcome.
fn call(client: &Client, session: &str, tool: &str, args: &Value) -> (Chat, Value) {
    let chat = Chat::new(client.clone(), session);
    chat.ask(json!({"content": format!("/tool {tool} {args}"), "agent": "support"}));
    let log = chat.log();
    let outcome = log.into_iter().find(|record| record["type"] == "tool.completed").expect("an outcome");
    (chat, outcome)
}

fn session(client: &Client, id: &str) {
    client.post("/v1/sessions", json!({"id": id, "agent": "support"})).expect(201);
}

#[test]
fn secrets_reach_the_server_of_the_tool_and_nothing_else() {
    let echo = Echo::start();
    let mut server = Server::start(json!({ "HTTP_TOOLS_ALLOW": echo.address }));
    let (ours, theirs) = (tenant(&server, "ours"), tenant(&server, "theirs"));
    for (client, secret) in [(&ours, SECRET), (&theirs, OTHER)] {
        client.put("/v1/secrets/TOKEN", json!({ "value": secret })).expect(201);
        client.put("/v1/secrets/TOKEN", json!({ "value": secret })).expect(204);
        let stored = client.put("/v1/agents/support", definition(&echo)).expect(201);
        assert!(stored.to_string().contains("${secret:TOKEN}"));
    }

    session(&ours, "find");
    let (chat, outcome) = call(&ours, "find", "find", &json!({"id": "a/.b", "text": "${secret:TOKEN}"}));
    let request = &echo.received()[0];
    let first = format!("GET /find/a%2F.b?q=%24%7Bsecret%3ATOKEN%7D&key={SECRET} HTTP/1.1");
    assert_eq!(request["first"], first);
    assert_eq!(request["headers"]["authorization"], format!("Bearer {SECRET}"));
    assert_eq!(outcome["outcome"], "result", "{outcome}");
    assert_eq!(outcome["result"]["headers"]["authorization"], "Bearer [secret TOKEN]");

    session(&ours, "make");
    let (failed, outcome) = call(&ours, "make", "make", &json!({"text": "hello \"you\"", "status": 503}));
    let requests = echo.received();
    let body: Value = serde_json::from_str(requests[1]["body"].as_str().unwrap()).unwrap();
    assert_eq!(body, json!({"text": "hello \"you\"", "token": SECRET}));
    assert_eq!(requests.len(), 2, "a change is not repeated");
    assert_eq!(outcome["outcome"], "failure");
    assert!(outcome["reason"].as_str().unwrap().contains("status 503"), "{outcome}");
    session(&ours, "moved");
    let (_, moved) = call(&ours, "moved", "make", &json!({"status": 302}));
    assert!(moved["reason"].as_str().unwrap().contains("redirect"), "{moved}");
    assert_eq!(echo.received().len(), 3, "the redirect is not followed");

    // The same name in another tenant is another secret.
    session(&theirs, "theirs");
    call(&theirs, "theirs", "find", &json!({"id": "x"}));
    assert!(echo.received()[3].to_string().contains(OTHER));
    assert!(!echo.received()[3].to_string().contains(SECRET));

    // What clients can read.
    for chat in [&chat, &failed] {
        for path in ["", "/messages", "/events?until=idle", "/view"] {
            let text = chat.client.get(&chat.path(path)).text();
            assert!(!text.contains(SECRET), "{path}: {text}");
        }
    }
    let listed = ours.get("/v1/secrets").expect(200);
    assert_eq!(listed["data"][0]["name"], "TOKEN");
    let archive = ours.get("/v1/export").body;
    assert!(
        !archive.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()),
        "the archive is not compressed"
    );
    let refused = ours.put("/v1/secrets/bad-name", json!({ "value": SECRET }));
    assert!(refused.status == 422 && !refused.text().contains(SECRET));
    // And what is stored and logged.
    assert!(!server.log().contains(SECRET) && !server.log().contains(OTHER));
    assert_eq!(server.scan("", &[SECRET, OTHER]), "");
    server.edit("UPDATE tenant_secrets SET tenant = 'theirs', name = 'MISSING' WHERE tenant = 'ours'");
    // The server is at another address.
    let theirs = reconnected(&server, "theirs");
    session(&theirs, "stolen");
    let (_, outcome) = call(&theirs, "stolen", "other", &json!({}));
    assert!(outcome["reason"].as_str().unwrap().contains("there is no secret \"MISSING\""), "{outcome}");
    assert_eq!(echo.received().len(), 4);
}

/// A client with a new key of a tenant.
fn reconnected(server: &Server, tenant: &str) -> Client {
    let scopes = json!({"scopes": ["chat", "read", "approve", "admin"]});
    let key = server.admin().post(&format!("{TENANTS}/{tenant}/keys"), scopes).expect(201);
    server.anonymous().with_key(key["key"].as_str().unwrap())
}

#[test]
fn the_host_is_checked_when_a_definition_is_stored() {
    let echo = Echo::start();
    let server = Server::start(json!({}));
    let refused = server.client().put("/v1/agents/support", definition(&echo)).expect(422);
    let errors = refused["errors"].as_array().unwrap();
    let pointers: Vec<_> = errors.iter().map(|error| error["pointer"].as_str().unwrap()).collect();
    assert_eq!(pointers, ["/http_tools/0/url", "/http_tools/1/url", "/http_tools/2/url"]);
    assert_eq!(echo.received().len(), 0);
}
