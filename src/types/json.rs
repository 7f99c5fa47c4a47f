//! Parsing JSON, and writing it for HTTP headers.

mod reader;
pub mod tagged;

pub use reader::Misfit;
pub(crate) use tagged::tagged;

use serde::{
    Serialize,
    de::{DeserializeOwned, Error as _},
};
use serde_json::{Error, Value};

/// Parses `text` as a `T`, by way of a [`Value`]. The hot path (model streams) deserializes directly instead.
///
/// # Errors
/// `text` is not JSON, or not a `T`.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    from_value(parse(text)?).map_err(Error::custom)
}

/// Parses `text` as JSON. Always from bytes, because serde_json compiles separate parsers for bytes and
/// `str`.
///
/// # Errors
/// `text` is not JSON.
pub fn parse(text: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(text)
}

/// Deserializes `value` as a `T`.
///
/// # Errors
/// `value` is not a `T`. The error contains what is wrong and where.
pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, Misfit> {
    T::deserialize(reader::Reader(value))
}

/// Maximum nesting of arrays and objects in a request. Stored records add a few levels, and the parser
/// accepts at most 128.
pub const MAX_DEPTH: usize = 64;

/// Returns whether arrays and objects in `value` are nested deeper than [`MAX_DEPTH`].
pub fn too_deep(value: &Value) -> bool {
    fn exceeds(value: &Value, left: usize) -> bool {
        let Some(inner) = left.checked_sub(1) else { return value.is_array() || value.is_object() };
        match value {
            Value::Array(items) => items.iter().any(|item| exceeds(item, inner)),
            Value::Object(members) => members.values().any(|member| exceeds(member, inner)),
            _ => false,
        }
    }
    exceeds(value, MAX_DEPTH)
}

/// Serializes `value` as ASCII-only JSON for a header, since user names may contain any character.
///
/// # Errors
/// `value` cannot be serialized.
pub fn ascii(value: &impl Serialize) -> Result<String, Error> {
    let text = serde_json::to_string(value)?;
    if text.is_ascii() {
        return Ok(text);
    }
    let mut out = String::with_capacity(text.len() * 2);
    for c in text.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            // Outside ASCII, characters occur only in strings, where an escape is equivalent.
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nesting_is_limited() {
        let nested = |depth| (0..depth).fold(Value::Null, |inner, _| json!([inner]));
        let objects = |depth| (0..depth).fold(Value::Null, |inner, _| json!({"a": 1, "b": inner}));
        assert!(!too_deep(&nested(MAX_DEPTH)) && !too_deep(&objects(MAX_DEPTH)));
        assert!(too_deep(&nested(MAX_DEPTH + 1)) && too_deep(&objects(MAX_DEPTH + 1)));
    }

    #[test]
    fn any_character_round_trips_as_ascii() {
        let name = "Zoë 世界 🌍 \"\\ é";
        let text = ascii(&name).expect("JSON");
        assert!(text.is_ascii());
        assert_eq!(read::<String>(text.as_bytes()).expect("a string"), name);
    }
}
