//! The headers that repeat parts of a modern request, so that proxies need not read its body.

use crate::types::header::is_token;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

/// The keyword of a schema that names the header of an argument.
const KEYWORD: &str = "x-mcp-header";
/// The start of the names of these headers.
const PREFIX: &str = "mcp-param-";
/// The keywords that contain other schemas, in which no argument can name a header.
const ELSEWHERE: &[&str] = &[
    "items",
    "prefixItems",
    "contains",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "propertyNames",
    "patternProperties",
    "dependentSchemas",
    "oneOf",
    "anyOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "$defs",
    "definitions",
];

/// An argument that is repeated in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mirrored {
    /// The place of the argument.
    path: Vec<String>,
    /// The header, in lower case.
    header: String,
}

/// Returns the arguments that a schema wants in headers; `None` if it names them in a way that the protocol forbids.
pub(super) fn mirrored(schema: &Value) -> Option<Vec<Mirrored>> {
    let mut found = Vec::new();
    visit(schema, &mut Vec::new(), &mut found)?;
    Some(found)
}

fn visit(schema: &Value, path: &mut Vec<String>, found: &mut Vec<Mirrored>) -> Option<()> {
    let Some(keywords) = schema.as_object() else { return Some(()) };
    if let Some(name) = keywords.get(KEYWORD) {
        let name = name.as_str().filter(|name| is_token(name))?;
        let kind = keywords.get("type").and_then(Value::as_str);
        let header = format!("{PREFIX}{}", name.to_ascii_lowercase());
        let fits = matches!(kind, Some("string" | "integer" | "boolean"));
        if path.is_empty() || !fits || found.iter().any(|known| known.header == header) {
            return None;
        }
        found.push(Mirrored { path: path.clone(), header });
    }
    for (name, schema) in keywords.get("properties").and_then(Value::as_object).into_iter().flatten() {
        path.push(name.clone());
        visit(schema, path, found)?;
        path.pop();
    }
    let is_free = |keyword: &&str| keywords.get(*keyword).is_none_or(|inner| !names_headers(inner));
    ELSEWHERE.iter().all(is_free).then_some(())
}

fn names_headers(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(names_headers),
        Value::Object(members) => members.contains_key(KEYWORD) || members.values().any(names_headers),
        _ => false,
    }
}

/// Returns the headers of these arguments. One that is absent or null has none.
pub(super) fn of_arguments(mirrored: &[Mirrored], args: &Map<String, Value>) -> Vec<(String, String)> {
    let header = |Mirrored { path, header }: &Mirrored| {
        let (first, rest) = path.split_first()?;
        let value = rest.iter().try_fold(args.get(first)?, |value, name| value.get(name))?;
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            _ => return None,
        };
        Some((header.clone(), encoded(&text)))
    };
    mirrored.iter().filter_map(header).collect()
}

/// Encodes a text as the value of a header. One that a header cannot contain as it is becomes Base64.
pub(super) fn encoded(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e));
    let is_encoded = text.starts_with("=?base64?") && text.ends_with("?=");
    if is_plain && !is_encoded && !text.is_empty() && text.trim() == text {
        return text.to_owned();
    }
    format!("=?base64?{}?=", STANDARD.encode(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    #[test]
    fn arguments_are_repeated_in_headers() {
        let schema = json!({"properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "page": {"properties": {"size": {"type": "integer", "x-mcp-header": "Size"}}},
            "dry": {"type": "boolean", "x-mcp-header": "Dry"},
        }});
        let found = mirrored(&schema).expect("valid names");
        let headers = |args: Value| {
            let mut headers = of_arguments(&found, args.as_object().expect("an object"));
            headers.sort();
            headers.into_iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
        };
        let all = headers(json!({"region": "eu", "page": {"size": 7}, "dry": true}));
        assert_eq!(all, ["mcp-param-dry: true", "mcp-param-region: eu", "mcp-param-size: 7"]);
        assert_eq!(headers(json!({"region": null, "page": 1})), [""; 0]);
        assert_eq!(headers(json!({"region": "hé"})), ["mcp-param-region: =?base64?aMOp?="]);
        for text in ["", " a", "a\nb", "=?base64?aA==?="] {
            assert!(encoded(text).starts_with("=?base64?") && encoded(text) != text, "{text}");
        }
    }

    #[test]
    fn a_schema_that_names_headers_wrongly_is_refused() {
        for schema in [
            json!({"x-mcp-header": "A", "type": "string"}),
            json!({"properties": {"a": {"type": "number", "x-mcp-header": "A"}}}),
            json!({"properties": {"a": {"type": "string", "x-mcp-header": "A b"}}}),
            json!({"properties": {"a": {"type": "string", "x-mcp-header": ""}}}),
            json!({"properties": {"a": {"type": "string", "x-mcp-header": "X"}, "b": {"type": "string", "x-mcp-header": "x"}}}),
            json!({"properties": {"a": {"items": {"type": "string", "x-mcp-header": "A"}}}}),
            json!({"anyOf": [{"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}]}),
        ] {
            assert_eq!(mirrored(&schema), None, "{schema}");
        }
    }
}
