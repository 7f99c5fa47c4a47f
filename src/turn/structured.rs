//! Answers that must be JSON of a caller's schema.

use super::schema;
use crate::types::json;
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
    let value = json::parse(text.as_bytes()).map_err(|error| format!("it is not JSON ({error})"))?;
    if json::too_deep(&value) {
        return Err(format!("it is nested deeper than {} levels", json::MAX_DEPTH));
    }
    let misfits = schema::misfits(schema, &value);
    if misfits.is_empty() {
        return Ok(value);
    }
    let told: Vec<String> =
        misfits.iter().take(8).map(|misfit| format!("{}: {}", misfit.pointer, misfit.detail)).collect();
    Err(told.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_could_not_be_read_again_does_not_fit() {
        let answer = |depth: usize| format!("```json\n{}{}\n```", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&Value::Bool(true), &answer(64)).is_ok());
        let misfit = parse(&Value::Bool(true), &answer(65));
        assert_eq!(misfit, Err("it is nested deeper than 64 levels".to_owned()));
    }
}
