//! Large outputs and files, over HTTP and through R2.

use crate::support::{Chat, Client, PATIENCE, Response, Server, shared};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{
    io::Read as _,
    thread,
    time::{Duration, Instant},
};

/// Returns the output of the fixture tool `big`.
fn big(n: usize) -> String {
    let mut text: String = (0..n.div_ceil(10)).map(|line| format!("{:09}\n", line * 10)).collect();
    text.truncate(n);
    text
}

/// Creates a session with an artifact of `n` characters. Returns the artifact's id too.
#[track_caller]
fn with_artifact(client: &Client, id: &str, n: usize) -> (Chat, String) {
    let chat = Chat::new(client.clone(), id);
    let outcome = call(&chat, "big", json!({ "n": n }));
    assert_eq!(outcome["outcome"], "artifact", "{outcome}");
    (chat, outcome["result"]["ref"].as_str().unwrap().to_owned())
}

/// Makes the model call a tool. Returns the record of the outcome.
#[track_caller]
fn call(chat: &Chat, tool: &str, args: Value) -> Value {
    chat.say(&format!("/tool {tool} {args}"));
    chat.log().into_iter().rev().find(|record| record["type"] == "tool.completed").unwrap()
}

#[track_caller]
fn range(chat: &Chat, id: &str, range: &str) -> Response {
    chat.client.with_header("range", range).get(&chat.path(&format!("/artifacts/{id}")))
}

#[track_caller]
fn attach(chat: &Chat, content_type: &str, query: &str, body: &[u8]) -> Response {
    let client = chat.client.with_header("content-type", content_type);
    client.send("POST", &chat.path(&format!("/attachments{query}")), body)
}

/// Creates a tenant.
#[track_caller]
fn tenant(server: &Server, id: &str) -> Client {
    server.admin().post("/v1/admin/tenants", json!({ "id": id })).expect(201);
    let made = server.admin().post(&format!("/v1/admin/tenants/{id}/keys"), json!({})).expect(201);
    server.anonymous().with_key(made["key"].as_str().unwrap())
}

#[test]
fn twelve_thousand_characters_stay_inline_and_one_more_becomes_an_artifact() {
    let chat = Chat::new(shared().client(), "artifact-limit");
    let inline = call(&chat, "big", json!({"n": 12_000}));
    assert_eq!((&inline["outcome"], &inline["result"]), (&json!("result"), &json!(big(12_000))));
    let apart = call(&chat, "big", json!({"n": 12_001}));
    let result = &apart["result"];
    assert_eq!((&apart["outcome"], &result["bytes"]), (&json!("artifact"), &json!(12_001)));
    assert_eq!(result["preview"], json!(big(200).replace('\n', " ")));
    let log = chat.log();
    let stored = log.iter().find(|record| record["type"] == "artifact.stored").unwrap();
    assert_eq!((&stored["ref"], &stored["bytes"]), (&result["ref"], &json!(12_001)));
}

#[test]
fn an_artifact_is_readable_whole_in_ranges_and_by_the_tool() {
    let text = big(100_003);
    let (chat, id) = with_artifact(&shared().client(), "artifact-ranges", text.len());
    let path = chat.path(&format!("/artifacts/{id}"));
    let whole = chat.client.get(&path);
    assert_eq!((whole.status, whole.text()), (200, text.clone()));
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    assert_eq!(whole.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(whole.header("content-type"), Some("text/plain; charset=utf-8"));

    let mut read = Vec::new();
    while read.len() < text.len() {
        let part = range(&chat, &id, &format!("bytes={}-{}", read.len(), read.len() + 9_999));
        let end = (read.len() + 10_000).min(text.len());
        let stated = format!("bytes {}-{}/{}", read.len(), end - 1, text.len());
        assert_eq!((part.status, part.header("content-range")), (206, Some(&*stated)));
        read.extend(part.body);
    }
    assert_eq!(read, text.as_bytes());
    assert_eq!(range(&chat, &id, "bytes=-3").text(), text[100_000..]);
    assert_eq!(range(&chat, &id, "bytes=100000-").text(), text[100_000..]);
    assert_eq!(range(&chat, &id, "bytes=0-1,3-4").status, 200);
    let missing = range(&chat, &id, "bytes=100003-");
    assert_eq!((missing.status, missing.header("content-range")), (416, Some("bytes */100003")));
    assert_eq!(chat.client.send("PUT", &path, b"").status, 405);

    let part = call(&chat, "read_artifact", json!({"ref": id, "offset": 95_000, "length": 10_000}));
    assert_eq!(part["result"], json!(format!("bytes 95000-100002 of 100003\n{}", &text[95_000..])));
}

#[test]
fn an_artifact_is_readable_by_its_owner_only() {
    let server = shared();
    let (chat, id) = with_artifact(&server.client(), "artifact-owner", 20_000);
    let other = Chat::new(server.client(), "artifact-other");
    other.say("/say hello");
    let of = |chat: &Chat, id: &str| chat.client.get(&chat.path(&format!("/artifacts/{id}"))).status;
    assert_eq!((of(&chat, &id), of(&other, &id), of(&chat, "art_unknown")), (200, 404, 404));
    let stranger = Chat::new(tenant(server, "artifact-stranger"), &chat.id);
    assert_eq!(of(&stranger, &id), 404);
    // A session with the same name in another tenant gives no access either.
    stranger.say("/say hello");
    assert_eq!(of(&stranger, &id), 404);
    assert_eq!(call(&stranger, "read_artifact", json!({ "ref": id }))["outcome"], "failure");
    chat.client.get(&chat.path(&format!("/artifacts/{id}?user=other"))).expect(404);
    server.anonymous().get(&chat.path(&format!("/artifacts/{id}"))).expect(401);
}

#[test]
fn an_artifact_expires_and_an_attachment_does_not() {
    let server = Server::start(json!({"ARTIFACT_TTL_S": "1"}));
    let (chat, id) = with_artifact(&server.client(), "artifact-ttl", 20_000);
    let file = attach(&chat, "text/plain", "", b"stays").expect(201);
    let path = chat.path(&format!("/artifacts/{id}"));
    let deadline = Instant::now() + PATIENCE;
    while chat.client.get(&path).status == 200 {
        assert!(Instant::now() < deadline, "the artifact did not expire in time");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(chat.client.get(&path).expect(410)["code"], "gone");
    let refused = call(&chat, "read_artifact", json!({ "ref": id }));
    assert_eq!(refused["outcome"], "failure");
    assert!(refused["reason"].as_str().unwrap().contains("expired"), "{refused}");
    let kept = chat.client.get(&chat.path(&format!("/artifacts/{}", file["ref"].as_str().unwrap())));
    assert_eq!((kept.status, kept.text()), (200, "stays".to_owned()));
}

#[test]
fn attachments_are_uploaded_raw_or_as_a_form() {
    let chat = Chat::new(shared().client(), "attachments");
    attach(&chat, "text/plain", "", b"x").expect(404);
    chat.say("/say hello");
    let bytes: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let raw = attach(&chat, "image/png", "?name=a%20b.png", &bytes).expect(201);
    let described = |file: &Value| (file["mime_type"].clone(), file["bytes"].clone(), file["name"].clone());
    assert_eq!(described(&raw), (json!("image/png"), json!(70_000), json!("a b.png")));
    let read = chat.client.get(&chat.path(&format!("/artifacts/{}", raw["ref"].as_str().unwrap())));
    assert!(read.body == bytes, "the bytes differ");
    assert_eq!(read.header("content-type"), Some("image/png"));
    assert_eq!(read.header("content-disposition"), Some("attachment; filename=\"a b.png\""));

    let mut form = b"--x\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nhi\r\n--x\r\n\
        Content-Disposition: form-data; name=\"f\"; filename=\"Zo\xc3\xab.bin\"\r\n\
        Content-Type: application/pdf\r\n\r\n"
        .to_vec();
    form.extend(&bytes);
    form.extend(b"\r\n--x--\r\n");
    let sent = attach(&chat, "multipart/form-data; boundary=x", "", &form).expect(201);
    assert_eq!(described(&sent), (json!("application/pdf"), json!(70_000), json!("Zoë.bin")));
    let read = range(&chat, sent["ref"].as_str().unwrap(), "bytes=10-19");
    assert_eq!((read.status, &read.body[..]), (206, &bytes[10..20]));

    attach(&chat, "text/plain", "", b"").expect(422);
    attach(&chat, "multipart/form-data; boundary=x", "", b"--x--").expect(422);
    attach(&chat, "multipart/form-data; boundary=x", "", b"nonsense").expect(400);
    // Refused by its announced length, without its body.
    let large = chat.client.with_header("content-length", &((4 << 20) + 1).to_string());
    attach(&Chat::new(large, &chat.id), "application/octet-stream", "", b"0").expect(413);
    // JSON is stored like any other file.
    attach(&chat, "application/json", "", b"{").expect(201);

    let keyed = Chat::new(chat.client.with_header("idempotency-key", "file-1"), &chat.id);
    let first = attach(&keyed, "text/plain", "", b"once").expect(201);
    let again = attach(&keyed, "text/plain", "", b"once");
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.expect(201), first);
    assert_eq!(attach(&keyed, "text/plain", "", b"twice").expect(422)["code"], "idempotency_key_reused");
}

#[test]
fn a_name_has_no_folders_and_may_occur_twice() {
    let chat = Chat::new(shared().client(), "attachment-names");
    chat.say("/say hello");
    let read = |file: &Value| {
        let read = chat.client.get(&chat.path(&format!("/artifacts/{}", file["ref"].as_str().unwrap())));
        (read.header("content-disposition").unwrap().to_owned(), read.text())
    };
    let saved = |name: &str, text: &str| (format!("attachment; filename=\"{name}\""), text.to_owned());
    let outside = attach(&chat, "text/plain", "?name=..%2F..%2Fx.txt", b"outside").expect(201);
    assert_eq!((&outside["name"], read(&outside)), (&json!("x.txt"), saved("x.txt", "outside")));
    let form =
        b"--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"../y.txt\"\r\n\r\nform\r\n--x--\r\n";
    let sent = attach(&chat, "multipart/form-data; boundary=x", "", form).expect(201);
    assert_eq!((&sent["name"], read(&sent)), (&json!("y.txt"), saved("y.txt", "form")));

    let [first, second] =
        ["one", "two"].map(|text| attach(&chat, "text/plain", "?name=a.txt", text.as_bytes()).expect(201));
    assert_ne!(first["ref"], second["ref"]);
    assert_eq!((read(&first), read(&second)), (saved("a.txt", "one"), saved("a.txt", "two")));
}

#[test]
fn a_file_that_is_not_base64_is_refused() {
    let client = shared().client();
    for url in ["data:text/plain;base64,not base64!", "data:text/plain;base64,YQ", "data:text/plain,a"] {
        let image = json!({"type": "image_url", "image_url": {"url": url}});
        let body = json!({"model": "default", "messages": [{"role": "user", "content": [image]}]});
        let refused = client.post("/v1/chat/completions", body).expect(400);
        assert_eq!(refused["error"]["param"], "messages.0.content.0", "{url}: {refused}");

        let file = json!({"type": "file", "mediaType": "text/plain", "url": url});
        let messages = json!([{"id": "m", "role": "user", "parts": [file]}]);
        let body = json!({"id": "not-base64", "messages": messages, "trigger": "submit-message"});
        let refused = client.post("/api/chat", body).expect(422);
        assert_eq!(refused["errors"][0]["pointer"], "/messages/0/parts/0/url", "{url}: {refused}");
    }
    client.get("/v1/sessions/not-base64").expect(404);
}

#[test]
fn a_message_may_contain_files() {
    let chat = Chat::new(shared().client(), "file-parts");
    chat.say("/say hello");
    let file = attach(&chat, "text/markdown", "?name=notes.md", "# Größe".as_bytes()).expect(201);
    let id = file["ref"].as_str().unwrap();
    let part = json!({"type": "file", "ref": id});
    let answer = chat.ask(json!({"parts": [part, {"type": "text", "text": "What does it say?"}]}));
    let text = answer["reply"]["text"].as_str().unwrap();
    assert!(text.contains("notes.md") && text.contains(id), "{text}");
    chat.ask(json!({ "parts": [part] }));
    let messages = chat.get("/messages?limit=200");
    let kept =
        json!({"type": "file", "ref": id, "mime_type": "text/markdown", "bytes": 9, "name": "notes.md"});
    assert_eq!(messages["data"][2]["parts"][0], kept);
    let read = call(&chat, "read_artifact", json!({ "ref": id }));
    assert_eq!(read["result"], "bytes 0-8 of 9\n# Größe");

    let unknown = json!({"parts": [{"type": "file", "ref": "art_unknown"}]});
    let refused = chat.post("/messages", unknown.clone()).expect(422);
    assert_eq!(refused["errors"][0]["pointer"], "/parts/0/ref");
    // A refused message creates no session.
    let none = Chat::new(chat.client.clone(), "file-parts-none");
    none.post("/messages", unknown).expect(422);
    none.client.get(&none.path("")).expect(404);
}

#[test]
fn an_erased_session_leaves_no_bytes() {
    let server = Server::start(json!({}));
    let (chat, _) = with_artifact(&server.client(), "artifact-erased", 20_000);
    attach(&chat, "text/plain", "", b"words to be erased").expect(201);
    // A part of the output that no preview contains.
    let private: [&[u8]; 2] = [b"words to be erased", b"000010000\n000010010\n"];
    assert!(private.iter().all(|bytes| server.state_holds(bytes)));
    assert_eq!(chat.client.delete(&chat.path("")).status, 204);
    // Miniflare's R2 deletes files in the background.
    let deadline = Instant::now() + PATIENCE;
    while private.iter().any(|bytes| server.state_holds(bytes)) {
        assert!(Instant::now() < deadline, "the bytes were not deleted in time");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_export_has_the_session_its_events_and_its_files() {
    let (chat, id) = with_artifact(&shared().client(), "artifact-export", 20_000);
    let attached = attach(&chat, "text/plain", "?name=note.txt", b"Tea at five.").expect(201);
    let exported = chat.client.get(&chat.path("/export"));
    assert_eq!((exported.status, exported.header("content-type")), (200, Some("application/zip")));
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(exported.body)).unwrap();
    let names: Vec<_> = archive.file_names().map(str::to_owned).collect();
    let files = [id.as_str(), attached["ref"].as_str().unwrap()].map(|id| format!("artifacts/{id}"));
    assert_eq!(names, [["session.json".to_owned(), "events.ndjson".to_owned()], files.clone()].concat());
    let mut text = |name: &str| {
        let mut text = String::new();
        archive.by_name(name).unwrap().read_to_string(&mut text).unwrap();
        text
    };
    assert_eq!((text(&files[0]), text(&files[1])), (big(20_000), "Tea at five.".to_owned()));
    let session: Value = serde_json::from_str(&text("session.json")).unwrap();
    // Work after the turn may add records at any time.
    let now = chat.client.get(&chat.path("")).expect(200);
    assert_eq!((&session["id"], &session["created_at"]), (&now["id"], &now["created_at"]));
    let events = text("events.ndjson");
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.len() as u64 >= session["last_seq"].as_u64().unwrap());
    assert_eq!(events, chat.log()[..events.len()]);
    let client = &chat.client;
    client.get("/v1/sessions/artifact-export/export?user=bob").expect(404);
    client.get("/v1/sessions/artifact-no-session/export").expect(404);
    tenant(shared(), "artifact-export").get(&chat.path("/export")).expect(404);
}
