//! Reads fields of request bodies.

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// Distinguishes `null`, which reads as `Some(None)`, from an absent field, which reads as `None` by
/// `#[serde(default)]`.
///
/// # Errors
/// When the value does not have the type of the field.
pub(super) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Deserializes a value; null as the default.
///
/// # Errors
/// When the value does not have the type of the field.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Applies a merge patch (RFC 7396).
pub(super) fn merge(value: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *value = patch;
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    let Some(members) = value.as_object_mut() else { return };
    for (name, patch) in patch {
        match patch {
            Value::Null => drop(members.remove(&name)),
            patch => merge(members.entry(name).or_insert(Value::Null), patch),
        }
    }
}
