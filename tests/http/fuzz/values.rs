//! Paths, texts and bodies at random.

use super::{PREFIXES, Pool, TENANTS, USERS};
use edge_harness::http::MAX_BODY;
use fastrand::Rng;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

/// Returns a text that no handler expects.
pub(super) fn junk(rng: &mut Rng) -> String {
    let texts = [
        "",
        " ",
        "..",
        "../../etc/passwd",
        "a/b",
        "\0",
        "é\u{202e}🌍",
        "null",
        "-1",
        "1e9",
        "%2e%2e",
        "'; --",
    ];
    match rng.u8(..10) {
        0 => "x".repeat(rng.usize(..2_000)),
        1 => (0..rng.usize(..40)).map(|_| rng.char(..)).collect(),
        _ => texts[rng.usize(..texts.len())].to_owned(),
    }
}

/// Returns a value for a parameter of a path.
pub(super) fn parameter(rng: &mut Rng, pool: &Pool, name: &str) -> String {
    if rng.u8(..10) == 0 {
        return junk(rng);
    }
    let kind = match name {
        "id" if rng.u8(..4) > 0 => return format!("chat-{}", rng.u8(..12)),
        "turn" | "item" => "trn_",
        "call_id" => "call_",
        "ref" => "art_",
        "key" => "key_",
        "path*" => return format!("notes/{}.md", rng.u8(..6)),
        "date" => return "2026-11-20".into(),
        "tenant" => return TENANTS[rng.usize(..2)].into(),
        _ => PREFIXES[rng.usize(..PREFIXES.len())],
    };
    pool.pick(rng, kind).unwrap_or_else(|| format!("{kind}0"))
}

pub(super) fn path(rng: &mut Rng, pool: &Pool, pattern: &str) -> String {
    let segments = pattern.split('/').map(|segment| {
        match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            Some(name) => {
                let value = parameter(rng, pool, name);
                utf8_percent_encode(&value, NON_ALPHANUMERIC).to_string()
            }
            None => segment.to_owned(),
        }
    });
    let path = segments.collect::<Vec<_>>().join("/");
    let mut query = Vec::new();
    for name in ["user", "agent", "limit", "cursor", "after", "layer", "scope", "q", "prefix", "turn"] {
        if rng.u8(..6) > 0 {
            continue;
        }
        let value = match name {
            _ if rng.u8(..5) == 0 => junk(rng),
            "user" => USERS[rng.usize(..2)].into(),
            "agent" => "default".into(),
            "limit" => rng.u16(..300).to_string(),
            "after" => rng.u16(..50).to_string(),
            "layer" => "shared".into(),
            "scope" => "sessions".into(),
            "q" => "mark hello oslo".into(),
            "turn" => parameter(rng, pool, "turn"),
            _ => "notes/".into(),
        };
        query.push(format!("{name}={}", utf8_percent_encode(&value, NON_ALPHANUMERIC)));
    }
    // A stream of events ends only with the session otherwise.
    query.push("until=idle".into());
    format!("{path}?{}", query.join("&"))
}

/// Returns the text of a message, with directives for the demo model.
pub(super) fn content(rng: &mut Rng, mark: &str) -> String {
    match rng.u8(..12) {
        0 => format!(
            "/tool write_file {}",
            json!({ "path": "notes/1.md", "content": mark, "overwrite": true })
        ),
        1 => format!("/tool edit_file {}", json!({ "path": "notes/1.md", "old": "mark", "new": mark })),
        2 => format!("/tool ask_user {}", json!({ "question": format!("{mark}?") })),
        3 => "/tool session_search {\"query\":\"mark hello\"}".into(),
        4 => "/tool memory_search {\"query\":\"mark hello\"}".into(),
        5 => "/tool read_file {\"path\":\"notes/1.md\"}\n/tool list_files {}".into(),
        6 => format!("/slow 2 {}", rng.u8(1..10)),
        7 => format!("remember that {mark} likes tea"),
        8 => ["/fail 429", "/fail 500", "/fail cut", "/fail overflow"][rng.usize(..4)].into(),
        9 => junk(rng),
        _ => format!("hello from {mark}"),
    }
}

/// Returns a value of any JSON type.
pub(super) fn value(rng: &mut Rng, mark: &str, depth: u8) -> Value {
    match rng.u8(..if depth > 0 { 8 } else { 6 }) {
        0 => Value::Null,
        1 => rng.bool().into(),
        2 => rng.i64(..).into(),
        3 => (rng.f64() * 1e6).into(),
        4 => junk(rng).into(),
        5 => mark.into(),
        6 => (0..rng.u8(..4)).map(|_| value(rng, mark, depth - 1)).collect(),
        _ => (0..rng.u8(..4)).map(|n| (format!("{mark}{n}"), value(rng, mark, depth - 1))).collect(),
    }
}

/// Returns a body of up to 4 MiB: a long text, or many small values.
fn large(rng: &mut Rng, mark: &str) -> String {
    let word = ["word ", r#"{"a":1},"#, "[1],", "0,"][rng.usize(..4)];
    let words = word.repeat(rng.usize(..MAX_BODY / word.len() - 100));
    match word.strip_suffix(',') {
        None => json!({ "content": words, "text": mark }).to_string(),
        Some(last) => format!(r#"{{"content":"{mark}","metadata":{{"many":[{words}{last}]}}}}"#),
    }
}

pub(super) fn body(rng: &mut Rng, pool: &Pool, mark: &str) -> Vec<u8> {
    match rng.u8(..40) {
        0 => return junk(rng).into_bytes(),
        1 if rng.u8(..4) == 0 => {
            return large(rng, mark).into_bytes();
        }
        _ => {}
    }
    let mut fields = Map::new();
    let names = [
        "content",
        "user",
        "agent",
        "id",
        "title",
        "metadata",
        "mode",
        "model",
        "state",
        "permissions",
        "budget",
        "on_busy",
        "decision",
        "answer",
        "args",
        "reason",
        "facts",
        "turns",
        "session",
        "q",
        "limit",
        "scope",
        "scopes",
        "at_message",
        "tools",
        "think",
        "output_schema",
        "parts",
    ];
    // Each route needs the content or the decision, and ignores what it does not know.
    for name in names {
        let needed = matches!(name, "content" | "decision" | "answer" | "session" | "q" | "facts" | "turns");
        if rng.u8(..10) > if needed { 7 } else { 1 } {
            continue;
        }
        let random = rng.u8(..8) == 0;
        let value = match name {
            _ if random => value(rng, mark, 3),
            "content" => content(rng, mark).into(),
            "user" => USERS[rng.usize(..2)].into(),
            "agent" => "default".into(),
            "id" => format!("chat-{}", rng.u8(..12)).into(),
            "title" | "answer" | "reason" => mark.into(),
            "metadata" | "state" => json!({ "note": mark }),
            "mode" => "plan".into(),
            "model" => "demo/echo".into(),
            "permissions" => json!({ "tools": { "write_file": "ask" } }),
            "budget" => json!({ "max_steps": rng.u8(..20) }),
            "on_busy" => ["queue", "steer", "reject"][rng.usize(..3)].into(),
            "decision" => ["approve", "decline", "always_allow_tool"][rng.usize(..3)].into(),
            "facts" => json!([{ "text": format!("{mark} lives in Oslo") }]),
            "turns" => {
                json!([{ "id": rng.u16(..).to_string(), "speaker": "user", "text": format!("{mark} hello") }])
            }
            "session" => format!("chat-{}", rng.u8(..12)).into(),
            "q" => "mark hello".into(),
            "limit" => rng.u8(..).into(),
            "scope" => "sessions".into(),
            "scopes" => json!(["read"]),
            "at_message" => pool.pick(rng, "msg_").unwrap_or_default().into(),
            _ => value(rng, mark, 2),
        };
        fields.insert(name.into(), value);
    }
    Value::Object(fields).to_string().into_bytes()
}
