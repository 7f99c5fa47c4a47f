//! The headers of a message over HTTP.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

/// The field of `_meta` that a modern client sets in each request, in place of a handshake.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// Returns whether a message is one of a modern client.
pub(super) fn is_modern(message: &Value) -> bool {
    message["params"]["_meta"][VERSION].is_string()
}

/// Returns the headers of a modern message, which repeat values of its body.
pub(super) fn modern(message: &Value) -> Vec<(&'static str, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (params, method) = (&message["params"], text(&message["method"]));
    let name = match method.as_str() {
        "tools/call" | "prompts/get" => params["name"].as_str(),
        "resources/read" => params["uri"].as_str(),
        method if method.starts_with("tasks/") => params["taskId"].as_str(),
        _ => None,
    };
    let mut headers = vec![("mcp-protocol-version", text(&params["_meta"][VERSION])), ("mcp-method", method)];
    headers.extend(name.map(|name| ("mcp-name", encoded(name))));
    headers
}

/// Encodes a text that a header cannot contain, or that would look encoded.
fn encoded(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && text.trim() == text;
    if is_plain && !text.starts_with("=?base64?") {
        text.to_owned()
    } else {
        format!("=?base64?{}?=", STANDARD.encode(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_modern_message_repeats_its_version_method_and_name() {
        let call = |name: &str| json!({"method": "tools/call", "params": {"name": name, "_meta": {VERSION: "2026-07-28"}}});
        assert!(is_modern(&call("a")) && !is_modern(&json!({"method": "tools/call", "params": {}})));
        let version = ("mcp-protocol-version", "2026-07-28".to_owned());
        let method = ("mcp-method", "tools/call".to_owned());
        assert_eq!(modern(&call("ask")), [version.clone(), method.clone(), ("mcp-name", "ask".to_owned())]);
        assert_eq!(modern(&call("hé")), [version, method, ("mcp-name", "=?base64?aMOp?=".to_owned())]);
    }
}
