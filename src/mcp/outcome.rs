//! The outcome of a call, made from what the server has returned.

use super::error::McpError;
use crate::types::{ToolOutcome, json};
use serde_json::{Map, Value};

/// Maximum length of a failure that a server explains, in characters.
const MAX_REASON: usize = 4_000;

/// Returns the outcome of a call of a server's tool.
pub(super) fn of(server: &str, may_be_repeated: bool, returned: Result<Value, McpError>) -> ToolOutcome {
    match returned {
        Ok(result) => of_result(&result),
        Err(error) if error.is_uncertain() && !may_be_repeated => ToolOutcome::Unknown {
            reason: format!(
                "the MCP server {server:?} {error}; the call may or may not have taken effect. Check before you try again."
            ),
        },
        Err(error) => ToolOutcome::failure(format!("the MCP server {server:?} {error}")),
    }
}

/// Returns whether a server asks for input in place of a result.
pub(super) fn asks(result: &Value) -> bool {
    result.get("resultType").is_some_and(|kind| kind == "input_required")
}

/// Returns the outcome of a call whose server asks for input for which no person can be asked.
pub(super) fn unasked(server: &str, why: &str, result: &Value) -> ToolOutcome {
    ToolOutcome::failure(format!(
        "the MCP server {server:?} {why}: {}. If you know it, pass it as an argument; otherwise ask the user what to do.",
        bounded(wanted(result))
    ))
}

fn of_result(result: &Value) -> ToolOutcome {
    let text = content(result);
    if result.get("isError") == Some(&Value::Bool(true)) {
        let reason =
            if text.is_empty() { "the tool failed without an explanation".to_owned() } else { bounded(text) };
        return ToolOutcome::failure(reason);
    }
    match result.get("structuredContent") {
        Some(data) if !data.is_null() && !json::too_deep(data) => {
            ToolOutcome::Result { result: data.clone() }
        }
        _ => ToolOutcome::Result { result: Value::String(text) },
    }
}

/// Cuts a text that is too long for a failure.
fn bounded(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_REASON) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Describes the input that a server wants, in its own words.
fn wanted(result: &Value) -> String {
    let describe = |request: &Value| {
        let method = request.get("method").and_then(Value::as_str).unwrap_or("unknown");
        let message = request.pointer("/params/message").and_then(Value::as_str);
        message.map_or_else(|| method.to_owned(), |message| format!("{message} ({method})"))
    };
    let requests = result.get("inputRequests").and_then(Value::as_object);
    let all: Vec<String> = requests.into_iter().flatten().map(|(_, request)| describe(request)).collect();
    if all.is_empty() { "nothing in particular".to_owned() } else { all.join("; ") }
}

/// Returns the content as text. What is not text is described.
fn content(result: &Value) -> String {
    let blocks = result.get("content").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let texts: Vec<String> = blocks.iter().filter_map(Value::as_object).map(block).collect();
    texts.join("\n")
}

fn block(block: &Map<String, Value>) -> String {
    let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("type") {
        "text" => text("text").to_owned(),
        kind @ ("image" | "audio") => {
            format!("[{kind}, {}, {} bytes: not shown]", text("mimeType"), base64_bytes(text("data")))
        }
        "resource_link" => {
            let name = Some(text("title")).filter(|title| !title.is_empty()).unwrap_or(text("name"));
            format!("[resource {name:?}: {}]", text("uri"))
        }
        "resource" => resource(block.get("resource")),
        kind => format!("[content of the kind {kind:?}: not shown]"),
    }
}

fn resource(resource: Option<&Value>) -> String {
    let field = |name: &str| resource.and_then(|resource| resource.get(name)).and_then(Value::as_str);
    let uri = field("uri").unwrap_or_default();
    match (field("text"), field("blob")) {
        (Some(text), _) => format!("[resource {uri}]\n{text}"),
        (None, Some(blob)) => {
            let kind = field("mimeType").unwrap_or("unknown type");
            format!("[resource {uri}, {kind}, {} bytes: not shown]", base64_bytes(blob))
        }
        (None, None) => format!("[resource {uri}]"),
    }
}

/// Returns the number of bytes that a Base64 text encodes.
fn base64_bytes(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::RpcError;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    fn result(value: Value) -> ToolOutcome {
        of("crm", false, Ok(value))
    }

    fn text(outcome: ToolOutcome) -> String {
        match outcome {
            ToolOutcome::Result { result: Value::String(text) } => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn structured_content_precedes_text() {
        let both = json!({"content": [{"type": "text", "text": "{}"}], "structuredContent": {"n": 1}});
        assert_eq!(result(both), ToolOutcome::Result { result: json!({"n": 1}) });
        assert_eq!(
            text(result(json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}))),
            "a\nb"
        );
        assert_eq!(text(result(json!({}))), "");
        assert_eq!(text(result(json!({"content": "x", "structuredContent": null}))), "");
    }

    #[test]
    fn content_that_is_not_text_is_described() {
        let blocks = json!({"content": [
            {"type": "image", "mimeType": "image/png", "data": "AAAA"},
            {"type": "resource_link", "name": "n", "uri": "file:///a"},
            {"type": "resource", "resource": {"uri": "file:///b", "text": "B"}},
            {"type": "resource", "resource": {"uri": "file:///c", "blob": "AAA=", "mimeType": "x/y"}},
            {"type": "hologram"}, 7,
        ]});
        let expected = "[image, image/png, 3 bytes: not shown]\n[resource \"n\": file:///a]\n[resource file:///b]\nB\n\
                        [resource file:///c, x/y, 2 bytes: not shown]\n[content of the kind \"hologram\": not shown]";
        assert_eq!(text(result(blocks)), expected);
    }

    #[test]
    fn errors_and_wanted_input_are_failures() {
        let failed =
            result(json!({"isError": true, "content": [{"type": "text", "text": "no such customer"}]}));
        assert_eq!(failed, ToolOutcome::failure("no such customer"));
        let long = json!({"isError": true, "content": [{"type": "text", "text": "é".repeat(5_000)}]});
        let ToolOutcome::Failure { reason, .. } = result(long) else { panic!("no failure") };
        assert_eq!(reason.chars().count(), 4_001);
        let asked = json!({"resultType": "input_required", "inputRequests": {
            "a": {"method": "elicitation/create", "params": {"message": "Which account?"}},
        }});
        assert!(asks(&asked));
        let ToolOutcome::Failure { reason, .. } = unasked("crm", "asks", &asked) else {
            panic!("no failure")
        };
        assert!(reason.contains("Which account? (elicitation/create)"), "{reason}");
        let rpc = McpError::Rpc(RpcError { code: -32602, message: "bad".into(), supports_modern: false });
        let reason = "the MCP server \"crm\" answered with the error -32602: bad";
        assert_eq!(of("crm", false, Err(rpc)), ToolOutcome::failure(reason));
    }

    #[test]
    fn a_lost_call_is_unknown_unless_it_may_be_repeated() {
        let lost = |may_be_repeated| of("crm", may_be_repeated, Err(McpError::Unreachable)).name();
        assert_eq!((lost(false), lost(true)), ("unknown", "failure"));
        let with_status = |status| {
            let error = McpError::Status { status, error: None, names_session: false };
            of("crm", false, Err(error)).name()
        };
        assert_eq!([408, 500, 503, 504, 524].map(with_status), ["unknown"; 5]);
        assert_eq!([400, 404, 429].map(with_status), ["failure"; 3]);
    }
}
