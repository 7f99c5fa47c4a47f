//! Valid messages in the protocols of other clients.

use super::{
    Pool,
    values::{content, parameter, value},
};
use fastrand::Rng;
use serde_json::{Value, json};

/// Headers and the body of a request.
pub(super) type Written = (Vec<(&'static str, String)>, Value);

/// Writes a request to post a message in the protocol of a route, to this session; `None` for any other route. The turn
/// does not fail because of its text: some protocols respond to a failed turn with a 5xx.
pub(super) fn of_protocol(
    rng: &mut Rng,
    pool: &Pool,
    mark: &str,
    path: &str,
    session: &str,
) -> Option<Written> {
    let text = loop {
        let text = content(rng, mark);
        if !text.starts_with("/fail") {
            break text;
        }
    };
    let message = json!({ "role": "user", "content": text });
    let rpc = |method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let (headers, mut body) = match path {
        "/v1/chat/completions" => {
            let said = json!({ "role": "assistant", "content": mark });
            let messages = if rng.bool() { json!([message, said, message]) } else { json!([message]) };
            let tool = json!({ "type": "function", "function": { "name": "read_file" } });
            let body =
                json!({ "model": "default", "messages": messages, "stream": rng.bool(), "tools": [tool] });
            (vec![("x-session-id", session.to_owned())], body)
        }
        "/v1/responses" => {
            let input = if rng.bool() { json!([message]) } else { text.into() };
            let body = json!({ "model": "demo/echo", "input": input, "conversation": session, "stream": rng.bool() });
            (Vec::new(), body)
        }
        "/api/chat" => {
            let parts = json!([{ "type": "text", "text": text }]);
            (
                Vec::new(),
                json!({ "id": session, "messages": [{ "id": "m", "role": "user", "parts": parts }] }),
            )
        }
        "/ag-ui" => (Vec::new(), json!({ "threadId": session, "runId": "r", "messages": [message] })),
        "/a2a" | "/a2a/{agent}" => {
            let task = format!("{}.{session}", parameter(rng, pool, "turn"));
            let message = json!({ "messageId": "m", "role": "ROLE_USER", "contextId": session, "parts": [{ "text": text }] });
            let (method, params) = match rng.u8(..6) {
                0 => ("GetTask", json!({ "id": task })),
                1 => ("ListTasks", json!({ "contextId": session })),
                2 => ("SendStreamingMessage", json!({ "message": message })),
                _ => ("SendMessage", json!({ "message": message })),
            };
            (vec![("a2a-version", "1.0".to_owned())], rpc(method, params))
        }
        "/mcp" => {
            let version = "2026-07-28";
            let (method, name, mut params) = match rng.u8(..4) {
                0 => ("tools/list", "", json!({})),
                1 => ("tools/call", "search_memory", json!({ "arguments": { "query": "mark hello" } })),
                _ => (
                    "tools/call",
                    "ask_agent",
                    json!({ "arguments": { "message": text, "session": session } }),
                ),
            };
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": version,
                "io.modelcontextprotocol/clientCapabilities": {},
            });
            let mut headers =
                vec![("mcp-protocol-version", version.to_owned()), ("mcp-method", method.to_owned())];
            headers.push(("accept", "application/json, text/event-stream".to_owned()));
            if !name.is_empty() {
                params["name"] = name.into();
                headers.push(("mcp-name", name.to_owned()));
            }
            (headers, rpc(method, params))
        }
        _ => return None,
    };
    if rng.u8(..6) == 0 {
        // The session stays, so that it is known of which session a stream was cut.
        let names =
            ["messages", "input", "model", "stream", "tools", "tool_choice", "method", "resume", "metadata"];
        body[names[rng.usize(..names.len())]] = value(rng, mark, 3);
    }
    Some((headers, body))
}
