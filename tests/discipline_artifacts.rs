//! Outputs that are too large for a model: what it costs, who may read them, and how long.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use std::{
    thread,
    time::{Duration, Instant},
};
use support::{Chat, PATIENCE, Response, Script, World, outcomes, told};

/// What the tool `big` answers.
fn big(n: usize) -> String {
    let lines: String = (0..n.div_ceil(10)).map(|line| format!("{:09}\n", line * 10)).collect();
    lines[..n].to_owned()
}

/// A turn in which the model makes these calls at once and then says `ok`.
fn turn_of<'a>(
    world: &World,
    chat: &Chat,
    calls: impl IntoIterator<Item = (&'a str, &'a str, Value)>,
) -> Value {
    world.model.script("m", Script::new().tools(calls));
    world.model.script("m", Script::text(["ok"]));
    chat.turn(&chat.say("go"))
}

fn artifact(chat: &Chat, id: &Value) -> String {
    chat.path(&format!("/artifacts/{}", id.as_str().unwrap()))
}

fn range(chat: &Chat, path: &str, range: &str) -> Response {
    chat.client.with_header("range", range).get(path)
}

#[test]
fn a_large_output_costs_a_preview_and_every_byte_can_be_read_back() {
    let world = World::start();
    let chat = world.chat("openai/m");
    let call = |id, n: usize| (id, "big", json!({ "n": n }));
    let turn = turn_of(&world, &chat, [call("a", 12_000), call("b", 12_001), call("c", 200_000)]);
    assert_eq!(outcomes(&turn), ["a result", "b artifact", "c artifact"]);
    assert_eq!(turn["calls"][0]["result"], big(12_000));
    let asked = world.received("m").pop().unwrap();
    for (call, name, n) in [(1, "b", 12_001), (2, "c", 200_000)] {
        let kept = &turn["calls"][call]["result"];
        let preview = kept["preview"].as_str().unwrap();
        assert!(preview.chars().count() <= 200 && !preview.contains('\n'), "{preview}");
        assert_eq!((&kept["bytes"], kept["ref"].as_str().unwrap().starts_with("art_")), (&json!(n), true));
        let told = told(&asked, name);
        assert!(told.len() < 600 && told.contains(kept["ref"].as_str().unwrap()), "{told}");
        assert_eq!(chat.client.get(&artifact(&chat, &kept["ref"])).text(), big(n));
    }

    let (kept, whole) = (&turn["calls"][2]["result"]["ref"], big(200_000));
    let path = artifact(&chat, kept);
    for (asked, from, to) in [
        ("bytes=0-0", 0, 1),
        ("bytes=123456-123499", 123_456, 123_500),
        ("bytes=-7", 199_993, 200_000),
        ("bytes=199990-", 199_990, 200_000),
    ] {
        let part = range(&chat, &path, asked);
        assert_eq!((part.status, part.text().as_str()), (206, &whole[from..to]), "{asked}");
        let place = format!("bytes {from}-{}/200000", to - 1);
        assert_eq!(part.header("content-range"), Some(place.as_str()));
    }
    assert_eq!(range(&chat, &path, "bytes=200000-").status, 416);

    // The model reads on where the preview ends.
    let part = json!({"ref": kept, "offset": 150_000, "length": 100});
    let turn = turn_of(&world, &chat, [("d", "read_artifact", part)]);
    let read = turn["calls"][0]["result"].as_str().unwrap().to_owned();
    assert_eq!(read.split_once('\n').map(|(_, text)| text), Some(&whole[150_000..150_100]), "{read}");
    assert!(told(&world.received("m").pop().unwrap(), "d").contains(&whole[150_000..150_100]));
}

#[test]
fn an_artifact_is_its_sessions_own() {
    let world = World::start();
    let chat = world.chat("openai/m");
    let turn = turn_of(&world, &chat, [("a", "big", json!({"n": 20_000}))]);
    let kept = &turn["calls"][0]["result"]["ref"];

    let other = world.chat("openai/m");
    assert_eq!(other.client.get(&artifact(&other, kept)).expect(404)["code"], "not_found");
    let read = turn_of(&world, &other, [("b", "read_artifact", json!({"ref": kept}))]);
    assert_eq!(outcomes(&read), ["b failure"]);

    let admin = world.server.admin();
    let tenant = admin.post("/v1/admin/tenants", json!({"name": "other"})).expect(201);
    let keys = format!("/v1/admin/tenants/{}/keys", tenant["id"].as_str().unwrap());
    let key = admin.post(&keys, json!({})).expect(201);
    let stranger = world.server.anonymous().with_key(key["key"].as_str().unwrap());
    stranger.post("/v1/sessions", json!({"id": chat.id})).expect(201);
    assert_eq!(stranger.get(&artifact(&chat, kept)).expect(404)["code"], "not_found");
    assert_eq!(chat.client.get(&artifact(&chat, kept)).status, 200);
}

#[test]
fn an_artifact_whose_time_is_over_is_gone() {
    let mut world = World::start();
    world.server.restart_with(json!({"ARTIFACT_TTL_S": "1"}));
    let chat = world.chat("openai/m");
    let turn = turn_of(&world, &chat, [("a", "big", json!({"n": 20_000}))]);
    let kept = &turn["calls"][0]["result"]["ref"];
    let path = artifact(&chat, kept);
    let deadline = Instant::now() + PATIENCE;
    let gone = loop {
        match chat.client.get(&path) {
            here if here.status == 200 && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(100));
            }
            gone => break gone.expect(410),
        }
    };
    assert_eq!(gone["code"], "gone");
    let read = turn_of(&world, &chat, [("b", "read_artifact", json!({"ref": kept}))]);
    assert_eq!(outcomes(&read), ["b failure"]);
    // What the turn says of it stays.
    assert_eq!(chat.get("/messages")["data"][2]["parts"][0]["outcome"], "artifact");
}
