//! Structured output: final responses that must conform to a caller's JSON Schema.

use super::schema;
use crate::types::{Invalid, json};
use serde_json::Value;

/// Returns the instruction for the model.
pub fn instruction(schema: &Value) -> String {
    format!(
        "Your final answer must be one JSON value and nothing else. It must conform to this JSON Schema: {schema}"
    )
}

/// Parses and checks a response. Accepts a Markdown code fence around the JSON.
///
/// # Errors
/// Returns the violations, worded for the model.
pub fn parse(schema: &Value, response: &str) -> Result<Value, Invalid> {
    let text = response.trim();
    let fenced = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let text = fenced.map_or(text, |inner| inner.strip_prefix("json").unwrap_or(inner));
    let value: Value = serde_json::from_str(text).map_err(|error| format!("not valid JSON: {error}"))?;
    if json::too_deep(&value) {
        return Err(Invalid(format!("nested deeper than {} levels", json::MAX_DEPTH)));
    }
    let violations = schema::violations(schema, &value);
    if violations.is_empty() {
        return Ok(value);
    }
    let details: Vec<String> = violations
        .iter()
        .take(8)
        .map(|violation| format!("{}: {}", violation.pointer, violation.detail))
        .collect();
    Err(details.join("; ").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_that_is_nested_too_deeply_is_rejected() {
        let response = |depth: usize| format!("```json\n{}{}\n```", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&Value::Bool(true), &response(64)).is_ok());
        let violation = parse(&Value::Bool(true), &response(65));
        assert_eq!(violation, Err("nested deeper than 64 levels".into()));
    }
}
