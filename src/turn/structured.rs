//! Answers that must be JSON of a caller's schema.

use super::schema;
use serde_json::Value;

/// What the model is told.
pub fn instruction(schema: &Value) -> String {
    format!(
        "Your final answer must be one JSON value and nothing else. It must fit this JSON Schema: {schema}"
    )
}

/// Reads an answer. A fence of Markdown around the JSON is let pass.
///
/// # Errors
/// What does not fit, for the model.
pub fn parse(schema: &Value, answer: &str) -> Result<Value, String> {
    let text = answer.trim();
    let fenced = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let text = fenced.map_or(text, |inner| inner.strip_prefix("json").unwrap_or(inner));
    let value: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON ({error})"))?;
    let misfits = schema::misfits(schema, &value);
    if misfits.is_empty() {
        return Ok(value);
    }
    let told: Vec<String> =
        misfits.iter().take(8).map(|misfit| format!("{}: {}", misfit.pointer, misfit.detail)).collect();
    Err(told.join("; "))
}
