//! Notifications of MCP about changed files.

use crate::mcp::{modern, refused};
use crate::stage::{DEV, Stage, request};
use edge_harness::http::{Body, Handled};
use edge_harness::session::hub::ByteReceiver;
use futures::{FutureExt, StreamExt};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::time::Duration;

/// Opens a stream of notifications.
fn listen(stage: &Stage, key: &str, filter: &Value) -> ByteReceiver {
    let asked = modern("subscriptions/listen", &json!({ "notifications": filter })).bearer(key);
    match stage.send(asked) {
        Handled::Response(response) => match response.into_body() {
            Body::Stream(stream) => stream,
            _ => panic!("no stream"),
        },
        Handled::Forward(_) | Handled::Socket(_) => panic!("no response"),
    }
}

/// The messages until now, and whether the stream has ended.
fn read(open: &mut ByteReceiver) -> (Vec<Value>, bool) {
    let mut text = String::new();
    while let Some(next) = open.next().now_or_never() {
        let Some(part) = next else { return (messages(&text), true) };
        text.push_str(std::str::from_utf8(&part.unwrap()).unwrap());
    }
    (messages(&text), false)
}

fn messages(text: &str) -> Vec<Value> {
    let data = text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[test]
fn a_client_is_notified_about_changed_files() {
    let stage = Stage::new();
    let write = |path: &str, text: &'static str| {
        let target = format!("/v1/workspace/files/{path}");
        assert!(stage.answer(request("PUT", &target).bearer(DEV).body(text)).status < 300);
    };
    write("a.md", "one");
    let uri = |path: &str| format!("workspace://default/{path}");
    let uris =
        json!([uri("a.md"), uri("a.md"), uri("new.md"), "file:///etc/passwd", "workspace://none/a.md"]);
    let mut open = listen(&stage, DEV, &json!({"resourceSubscriptions": uris, "toolsListChanged": true}));
    let meta = json!({"io.modelcontextprotocol/subscriptionId": 1});
    let notified = |name: &str, mut params: Value| {
        params["_meta"] = meta.clone();
        json!({"jsonrpc": "2.0", "method": format!("notifications/{name}"), "params": params})
    };
    let honored = json!({"notifications": {"resourceSubscriptions": [uri("a.md"), uri("new.md")]}});
    assert_eq!(read(&mut open), (vec![notified("subscriptions/acknowledged", honored)], false));
    let mut later = || {
        stage.clock.advance(Duration::from_secs(5));
        read(&mut open)
    };
    let updated = |path: &str| notified("resources/updated", json!({ "uri": uri(path) }));
    assert_eq!(later(), (vec![], false));
    write("a.md", "two");
    write("other.md", "x");
    assert_eq!(later(), (vec![updated("a.md")], false));
    write("new.md", "x");
    assert_eq!(later(), (vec![updated("new.md")], false));
    assert_eq!(later(), (vec![], false));
    stage.answer(request("DELETE", "/v1/workspace/files/new.md").bearer(DEV));
    assert_eq!(later(), (vec![updated("new.md")], false));
    // The stream ends after 40 looks.
    for _ in 5..39 {
        assert_eq!(later(), (vec![], false));
    }
    let (last, has_ended) = later();
    assert!(has_ended);
    assert_eq!((&last[0]["id"], &last[0]["result"]["resultType"]), (&json!(1), &json!("complete")));
    assert_eq!(last[0]["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], json!(1));
}

#[test]
fn a_stream_of_notifications_is_bounded() {
    let stage = Stage::new();
    stage.tenant("t", Value::Null);
    let (id, key) = stage.key("t", json!({}));
    let uris: Vec<_> = (0..11).map(|index| format!("workspace://default/{index}")).collect();
    let mut open = listen(&stage, &key, &json!({ "resourceSubscriptions": uris }));
    let honored = &read(&mut open).0[0]["params"]["notifications"]["resourceSubscriptions"];
    assert_eq!(honored.as_array().unwrap().len(), 10);
    // It ends with its credential.
    stage.revoke_elsewhere("t", &id);
    let mut looks = 0;
    loop {
        stage.clock.advance(Duration::from_secs(5));
        let (last, has_ended) = read(&mut open);
        if has_ended {
            assert_eq!(last[0]["id"], json!(1));
            break;
        }
        looks += 1;
    }
    assert!(looks < 12, "{looks}");
    for filter in [json!([]), json!({"resourceSubscriptions": "workspace://default/a"})] {
        let asked = modern("subscriptions/listen", &json!({ "notifications": filter }));
        assert_eq!(refused(&stage.answer(asked)), (200, -32602));
    }
    let tasks = json!({"notifications": {"taskIds": ["trn_1.a"]}});
    assert_eq!(refused(&stage.answer(modern("subscriptions/listen", &tasks))), (400, -32021));
}
