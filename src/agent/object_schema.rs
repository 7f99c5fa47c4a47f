//! The schemas of arguments of tools that are not known at compile time.

use crate::turn::schema;
use crate::types::{FieldError, Invalid};
use serde_json::{Map, Value};

/// Maximum number of schema errors reported to the model.
const MAX_REPORTED: usize = 8;
/// Maximum length of the name of an argument.
pub const MAX_NAME: usize = 64;

/// Completes the declared schema of a tool's arguments to an object schema, which providers require.
///
/// # Errors
/// The schema uses something that cannot be checked.
pub fn complete(mut parameters: Map<String, Value>) -> Result<Value, FieldError> {
    parameters.entry("type").or_insert_with(|| "object".into());
    parameters.entry("properties").or_insert_with(|| Map::new().into());
    if parameters.get("type").is_none_or(|kind| kind != "object") {
        return Err(FieldError { pointer: "/type".into(), detail: "must be an object schema".into() });
    }
    let parameters = Value::Object(parameters);
    schema::check(&parameters)?;
    Ok(parameters)
}

/// Returns whether all providers accept the name of an argument. A provider refuses each request with another one.
pub fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_in_name)
}

/// Returns whether the name of an argument may have a character.
pub fn is_in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// Returns the first argument of an object schema whose name some provider refuses.
pub fn bad_name(parameters: &Value) -> Option<&str> {
    let properties = parameters.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(Map::keys).map(String::as_str).find(|name| !is_name(name))
}

/// Checks arguments against a schema of [`complete`].
///
/// # Errors
/// What is wrong and where, for the model.
pub fn check(parameters: &Value, args: &Value) -> Result<(), Invalid> {
    let misfits = schema::violations(parameters, args);
    if misfits.is_empty() {
        return Ok(());
    }
    let faults =
        misfits.iter().take(MAX_REPORTED).map(|misfit| format!("`{}`: {}", misfit.pointer, misfit.detail));
    let faults = faults.collect::<Vec<_>>().join("; ");
    Err(Invalid(format!("the arguments do not match the schema at {faults}")))
}
