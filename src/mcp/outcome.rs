//! The outcome of a call, made from what the server has returned.

use super::content::{NewFile, Writer};
use super::error::McpError;
use crate::agent::ToolError;
use crate::types::{FileRef, ToolOutcome, json};
use serde_json::{Value, json};

/// Maximum length of a failure that a server explains, in characters.
const MAX_REASON: usize = 4_000;

/// Returns the outcome of a request to which the server has given no result.
pub(super) fn of_error(server: &str, may_be_repeated: bool, error: &McpError) -> ToolOutcome {
    match error.is_uncertain() && !may_be_repeated {
        true => ToolOutcome::Unknown {
            reason: format!(
                "the MCP server {server:?} {error}; the call may or may not have taken effect. Check before you try again."
            ),
        },
        false => ToolOutcome::failure(format!("the MCP server {server:?} {error}")),
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

/// Returns the outcome of a call of a tool with this result, whose files are stored with this function.
pub(super) async fn of_result(
    result: &Value,
    store: impl AsyncFn(NewFile) -> Result<FileRef, ToolError>,
) -> ToolOutcome {
    let blocks = result.get("content").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut writer = Writer::new(store);
    if result.get("isError") == Some(&Value::Bool(true)) {
        let text = writer.blocks(blocks).await;
        let reason =
            if text.is_empty() { "the tool failed without an explanation".to_owned() } else { bounded(text) };
        return ToolOutcome::failure(reason);
    }
    match result.get("structuredContent") {
        Some(data) if !data.is_null() && !json::too_deep(&json!([data])) => {
            // Texts repeat the structure, for clients that do not read it.
            let is_more = |block: &&Value| block.get("type").is_some_and(|kind| kind != "text");
            let result = match writer.blocks(blocks.iter().filter(is_more)).await {
                none if none.is_empty() => data.clone(),
                content => json!({"structuredContent": data, "content": content}),
            };
            ToolOutcome::Result { result }
        }
        _ => ToolOutcome::Result { result: Value::String(writer.blocks(blocks).await) },
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::RpcError;
    use futures::executor::block_on;
    use pretty_assertions::assert_eq;

    fn result(value: Value) -> ToolOutcome {
        let store = async |(bytes, mime_type, name): NewFile| {
            Ok(FileRef { r#ref: "art_1".into(), mime_type, bytes: bytes.len() as u64, name: Some(name) })
        };
        block_on(of_result(&value, store))
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
    fn structured_content_keeps_what_is_no_text() {
        let returned = json!({"structuredContent": {"n": 1}, "content": [
            {"type": "text", "text": "{\"n\": 1}"},
            {"type": "image", "mimeType": "image/png", "data": "AAAA"},
            {"type": "resource_link", "name": "n", "uri": "file:///a"},
        ]});
        let line = "[file \"image.png\", image/png, 3 bytes: read parts of it with read_artifact, ref art_1]";
        let content = format!("{line}\n[resource \"n\": file:///a]");
        let expected = json!({"structuredContent": {"n": 1}, "content": content});
        assert_eq!(result(returned), ToolOutcome::Result { result: expected });
        let image = json!({"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA"}]});
        assert_eq!(text(result(image)), line);
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
        assert_eq!(of_error("crm", false, &rpc), ToolOutcome::failure(reason));
    }

    #[test]
    fn a_lost_call_is_unknown_unless_it_may_be_repeated() {
        let lost = |may_be_repeated| of_error("crm", may_be_repeated, &McpError::Unreachable).name();
        assert_eq!((lost(false), lost(true)), ("unknown", "failure"));
        let with_status = |status| {
            let error = McpError::Status { status, error: None, names_session: false };
            of_error("crm", false, &error).name()
        };
        assert_eq!([408, 500, 503, 504, 524].map(with_status), ["unknown"; 5]);
        assert_eq!([400, 404, 429].map(with_status), ["failure"; 3]);
    }
}
