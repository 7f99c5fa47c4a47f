//! Reads the messages of clients, and distinguishes the two eras of the protocol: a *modern* client (2026-07-28)
//! describes itself in `_meta` of each request; a *legacy* client (2025-11-25 and earlier) begins with `initialize`.

use super::fault::Fault;
use super::handshake::{HEADER as SESSION_HEADER, Handshake};
use super::version::{LEGACY, MODERN, TASKS};
use crate::http::body;
use crate::http::request::{Request, RequestExt};
pub(super) use crate::mcp::protocol::VERSION_HEADER;
use crate::mcp::protocol::{CAPABILITIES, METHOD_HEADER, NAME_HEADER, VERSION};
use crate::types::{ErrorCode, Problem};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

/// A message of a client.
pub(super) enum ClientMessage {
    Asked(Asked),
    Notice(Notice),
    Reply(Reply),
}

/// A request.
pub(super) struct Asked {
    pub id: Value,
    pub method: String,
    pub params: Map<String, Value>,
    pub era: Era,
}

/// A notification.
pub(super) struct Notice {
    pub method: String,
    pub params: Map<String, Value>,
    /// The handshake of a legacy client.
    pub handshake: Option<Handshake>,
}

/// The response of a legacy client to a request of the server.
pub(super) struct Reply {
    pub id: Value,
    /// `None` for an error.
    pub result: Option<Value>,
}

/// How a client speaks.
pub(super) enum Era {
    Modern {
        /// Whether the client can show forms to its user.
        elicits: bool,
        /// Whether the client reads tasks.
        reads_tasks: bool,
    },
    Legacy {
        handshake: Option<Handshake>,
    },
}

impl Asked {
    /// Returns a text among the parameters.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.params.get(name).and_then(Value::as_str)
    }

    /// Returns the token that notifications of progress must have; `None` if the client wants none.
    pub fn progress_token(&self) -> Option<&Value> {
        let token = self.params.get("_meta")?.get("progressToken")?;
        (token.is_string() || token.is_number()).then_some(token)
    }

    pub fn is_modern(&self) -> bool {
        matches!(self.era, Era::Modern { .. })
    }

    /// Returns whether the client has declared the extension for tasks.
    pub fn reads_tasks(&self) -> bool {
        matches!(self.era, Era::Modern { reads_tasks: true, .. })
    }

    /// Returns whether the request is about one task.
    pub fn is_about_task(&self) -> bool {
        self.is_modern() && is_about_task(&self.method)
    }
}

impl Notice {
    /// Returns the client and the id of the request that a legacy client cancels; `None` for any other notification.
    pub fn cancels(&self) -> Option<(&Handshake, &Value)> {
        let handshake = self.handshake.as_ref().filter(|_| self.method == "notifications/cancelled");
        handshake.zip(self.params.get("requestId"))
    }
}

fn is_about_task(method: &str) -> bool {
    matches!(method, "tasks/get" | "tasks/update" | "tasks/cancel")
}

/// A message that cannot be read: its id, if it has one, and why.
pub(super) type Refused = (Option<Value>, Fault);

/// Reads the message in a body.
///
/// # Errors
/// What is wrong with it, or with the headers that have to repeat parts of it.
pub(super) fn read(request: &Request) -> Result<ClientMessage, Refused> {
    let whole: Map<String, Value> = body::json(request).map_err(|problem| (None, unreadable(problem)))?;
    let id = whole.get("id").filter(|id| id.is_string() || id.is_i64() || id.is_u64()).cloned();
    let invalid = |what: &str| (id.clone(), Fault::invalid_request(what));
    if whole.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(invalid("`jsonrpc` must be \"2.0\""));
    }
    let Some(method) = whole.get("method") else {
        let id = id.clone().ok_or_else(|| invalid("expected a request, a notification or a response"))?;
        if !(whole.contains_key("result") || whole.contains_key("error")) {
            return Err(invalid("`method` is missing"));
        }
        return Ok(ClientMessage::Reply(Reply { id, result: whole.get("result").cloned() }));
    };
    let method = method.as_str().ok_or_else(|| invalid("`method` must be a string"))?.to_owned();
    let params = match whole.get("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params.clone(),
        Some(_) => return Err(invalid("`params` must be an object")),
    };
    match (whole.get("id"), id.clone()) {
        (None, _) => {
            let handshake = request.header(SESSION_HEADER).and_then(Handshake::parse);
            Ok(ClientMessage::Notice(Notice { method, params, handshake }))
        }
        (Some(_), None) => Err(invalid("`id` must be a string or an integer")),
        (Some(_), Some(id)) => match era(request, &method, &params) {
            Ok(era) => Ok(ClientMessage::Asked(Asked { id, method, params, era })),
            Err(fault) => Err((Some(id), fault)),
        },
    }
}

fn unreadable(problem: Problem) -> Fault {
    match problem.code {
        ErrorCode::MalformedJson => Fault::parse_error(&problem.detail),
        ErrorCode::ValidationFailed => Fault::invalid_request(&problem.detail),
        _ => Fault::of(&problem, None),
    }
}

/// Returns the era of a request. What its body says counts; the headers must agree with it.
fn era(request: &Request, method: &str, params: &Map<String, Value>) -> Result<Era, Fault> {
    let header = request.header(VERSION_HEADER).map(str::trim);
    let meta = params.get("_meta").and_then(Value::as_object);
    let claimed = meta.and_then(|meta| meta.get(VERSION));
    if claimed.is_none() && header != Some(MODERN) {
        return match header {
            Some(version) if !LEGACY.contains(&version) => Err(Fault::unsupported_version(version)),
            _ => legacy(request),
        };
    }
    let missing = |name: &str| Fault::invalid_envelope(&format!("`_meta` lacks `{name}`"));
    let version = claimed.ok_or_else(|| missing(VERSION))?;
    let version =
        version.as_str().ok_or_else(|| Fault::invalid_envelope(&format!("`{VERSION}` must be a string")))?;
    let capabilities = meta.and_then(|meta| meta.get(CAPABILITIES)).ok_or_else(|| missing(CAPABILITIES))?;
    if !capabilities.is_object() {
        return Err(Fault::invalid_envelope(&format!("`{CAPABILITIES}` must be an object")));
    }
    same_header(request, VERSION_HEADER, version)?;
    if version != MODERN {
        return Err(Fault::unsupported_version(version));
    }
    same_header(request, METHOD_HEADER, method)?;
    let name = match method {
        "tools/call" | "prompts/get" => params.get("name"),
        "resources/read" => params.get("uri"),
        _ if is_about_task(method) => params.get("taskId"),
        _ => None,
    };
    if let Some(name) = name.and_then(Value::as_str) {
        same_header(request, NAME_HEADER, name)?;
    }
    let reads_tasks = capabilities["extensions"][TASKS].is_object();
    Ok(Era::Modern { elicits: elicits(capabilities), reads_tasks })
}

/// Returns whether a client with these capabilities can show forms to its user. One that names no kind of elicitation
/// supports forms.
pub(super) fn elicits(capabilities: &Value) -> bool {
    let kinds = capabilities.get("elicitation").and_then(Value::as_object);
    kinds.is_some_and(|kinds| kinds.is_empty() || kinds.contains_key("form"))
}

fn legacy(request: &Request) -> Result<Era, Fault> {
    let handshake = request.header(SESSION_HEADER).map(|id| {
        Handshake::parse(id).ok_or_else(|| Fault::unknown_session("unknown session; initialize again"))
    });
    Ok(Era::Legacy { handshake: handshake.transpose()? })
}

/// Checks that a header repeats a value of the body.
fn same_header(request: &Request, name: &str, expected: &str) -> Result<(), Fault> {
    let sent = request.header(name).map(str::trim).unwrap_or_default();
    let encoded = sent.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    let decoded = match encoded.filter(|_| name == NAME_HEADER) {
        Some(encoded) => STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok()),
        None => Some(sent.to_owned()),
    };
    if decoded.as_deref() == Some(expected) {
        return Ok(());
    }
    Err(Fault::header_mismatch(&format!("the header {name} is {sent:?}, and the body says {expected:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    fn asked(headers: &[(&str, &str)], body: &Value) -> Result<Asked, i32> {
        let request = headers
            .iter()
            .fold(http::Request::builder(), |request, (name, value)| request.header(*name, *value));
        let request = request.body(body.to_string().into()).expect("a request");
        match read(&request) {
            Ok(ClientMessage::Asked(asked)) => Ok(asked),
            Ok(_) => panic!("not a request"),
            Err((_, fault)) => Err(fault.code),
        }
    }

    fn call(version: &str, capabilities: Value) -> Value {
        json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "hé", "_meta": {VERSION: version, CAPABILITIES: capabilities}},
        })
    }

    #[test]
    fn modern_headers_repeat_the_body() {
        let all = [(VERSION_HEADER, MODERN), (METHOD_HEADER, "tools/call"), (NAME_HEADER, "=?base64?aMOp?=")];
        let plain = call(MODERN, json!({}));
        assert!(asked(&all, &plain).expect("a request").is_modern());
        for left_out in 0..all.len() {
            let rest: Vec<_> = all.iter().copied().enumerate().filter(|(at, _)| *at != left_out).collect();
            let rest: Vec<_> = rest.into_iter().map(|(_, header)| header).collect();
            assert_eq!(asked(&rest, &plain).err(), Some(-32020), "{rest:?}");
        }
        let other = [all[0], all[1], (NAME_HEADER, "he")];
        assert_eq!(asked(&other, &plain).err(), Some(-32020));
        assert_eq!(asked(&[(VERSION_HEADER, "v9")], &call("v9", json!({}))).err(), Some(-32022));
        assert_eq!(asked(&[(VERSION_HEADER, "v9")], &plain).err(), Some(-32020));
        let bare = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
        assert_eq!(asked(&all, &bare).err(), Some(-32602));
        assert_eq!(asked(&all, &call(MODERN, json!(1))).err(), Some(-32602));
        assert_eq!(asked(&[(VERSION_HEADER, "v9")], &bare).err(), Some(-32022));
    }

    #[test]
    fn a_client_elicits_if_it_can_show_forms() {
        let all = [(VERSION_HEADER, MODERN), (METHOD_HEADER, "tools/call"), (NAME_HEADER, "=?base64?aMOp?=")];
        for (capabilities, expected) in [
            (json!({}), false),
            (json!({"elicitation": {}}), true),
            (json!({"elicitation": {"form": {}, "url": {}}}), true),
            (json!({"elicitation": {"url": {}}}), false),
        ] {
            let asked = asked(&all, &call(MODERN, capabilities)).expect("a request");
            assert!(matches!(asked.era, Era::Modern { elicits, .. } if elicits == expected));
        }
    }

    #[test]
    fn malformed_messages_are_refused() {
        for (body, code) in [
            (json!([]), -32600),
            (json!({"id": 1, "method": "ping"}), -32600),
            (json!({"jsonrpc": "2.0", "id": null, "method": "ping"}), -32600),
            (json!({"jsonrpc": "2.0", "id": 1}), -32600),
            (json!({"jsonrpc": "2.0", "id": 1, "method": 1}), -32600),
            (json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}), -32600),
        ] {
            assert_eq!(asked(&[], &body).err(), Some(code), "{body}");
        }
        let ping = json!({"jsonrpc": "2.0", "id": "a", "method": "ping"});
        assert!(!asked(&[], &ping).expect("a request").is_modern());
        assert_eq!(asked(&[(SESSION_HEADER, "a b")], &ping).err(), Some(-32001));
    }
}
