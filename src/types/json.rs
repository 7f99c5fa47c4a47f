//! Reading JSON from outside, and writing it for HTTP headers.

mod reader;

use super::FieldError;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Error, Value};
use std::fmt::Display;

/// Deserializes `value` as a `T`.
///
/// # Errors
/// `value` is not a `T`. The error says what is wrong and where, in terms of JSON.
pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, FieldError> {
    reader::read(value).map_err(misfit)
}

/// Parses `text` as a `T`. Where speed matters, use [`serde_json::from_str`], which adds code for each type.
///
/// # Errors
/// `text` is not JSON, or not a `T`.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, FieldError> {
    from_value(serde_json::from_str(text).map_err(not_json)?)
}

/// Parses `bytes` as a `T`. Otherwise like [`from_str`].
///
/// # Errors
/// `bytes` are not JSON, or not a `T`.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FieldError> {
    from_str(std::str::from_utf8(bytes).map_err(not_json)?)
}

fn misfit((pointer, error): (String, Error)) -> FieldError {
    FieldError { pointer, detail: in_terms_of_json(&error.to_string()) }
}

fn not_json(error: impl Display) -> FieldError {
    FieldError { pointer: String::new(), detail: error.to_string() }
}

/// Returns the `type` of a record that is not parsed otherwise; `None` if it has none, or an escaped one.
pub fn record_type(record: &[u8]) -> Option<&str> {
    #[derive(Deserialize)]
    struct Typed<'a> {
        r#type: &'a str,
    }
    serde_json::from_slice::<Typed<'_>>(record).ok().map(|typed| typed.r#type)
}

/// Replaces the names of Rust types in a message of serde, which ends with `, expected …`.
fn in_terms_of_json(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    let found = match found {
        "invalid type: map" => "invalid type: object",
        "invalid type: sequence" => "invalid type: array",
        other => other,
    };
    let expected = match expected {
        "u8" => "an integer from 0 to 255",
        "u16" => "an integer from 0 to 65535",
        "u32" => "an integer from 0 to 4294967295",
        "u64" | "usize" => "an integer that is not negative",
        "i8" | "i16" | "i32" | "i64" | "isize" => "an integer",
        "f32" | "f64" => "a number",
        "unit" => "null",
        "string or map" => "a string or an object",
        "a map" => "an object",
        "a sequence" => "an array",
        text if text.starts_with("struct ") => "an object",
        text if text.starts_with("enum ") => "a string or an object",
        text if text.starts_with("tuple ") || text.starts_with("a tuple ") => "an array",
        other => other,
    };
    format!("{found}, expected {expected}")
}

/// Escapes a name for a JSON Pointer.
pub fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
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

/// Maximum number of values in a JSON text from outside. The parsed form of a value takes up to about 200 bytes.
pub const MAX_VALUES: usize = 100_000;

/// Returns whether a JSON text has more than [`MAX_VALUES`] values, without building them.
pub fn has_too_many_values(text: &[u8]) -> bool {
    // Every value except the first follows a byte of its own, so a shorter text needs no scan.
    text.len() > MAX_VALUES && count_values(text) > MAX_VALUES
}

/// Returns the number of values in a JSON text, including arrays and objects. An empty array or object counts as two.
pub fn count_values(text: &[u8]) -> usize {
    let (mut count, mut is_string, mut is_escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_string,
            b'"' => is_string = !is_string,
            b',' | b'[' | b'{' if !is_string => count += 1,
            _ => {}
        }
    }
    count
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
    use serde::Deserialize;
    use serde_json::json;

    #[test]
    fn nesting_is_limited() {
        let nested = |depth| (0..depth).fold(Value::Null, |inner, _| json!([inner]));
        let objects = |depth| (0..depth).fold(Value::Null, |inner, _| json!({"a": 1, "b": inner}));
        assert!(!too_deep(&nested(MAX_DEPTH)) && !too_deep(&objects(MAX_DEPTH)));
        assert!(too_deep(&nested(MAX_DEPTH + 1)) && too_deep(&objects(MAX_DEPTH + 1)));
    }

    /// With its feature `raw_value`, `serde_json` would parse the value of a field with this name again.
    #[test]
    fn no_name_of_a_field_has_a_meaning() {
        let named =
            json!({"$serde_json::private::RawValue": "[1]", "a": {"$serde_json::private::RawValue": "x"}});
        assert_eq!(serde_json::from_str::<Value>(&named.to_string()).expect("an object"), named);
        assert_eq!(from_value::<Value>(named.clone()).expect("an object"), named);
        assert_eq!(from_str::<Value>(&named.to_string()).expect("an object"), named);
    }

    #[test]
    fn values_are_counted_outside_of_strings() {
        for (text, count) in [
            ("1", 1),
            (r#"{"a":1}"#, 2),
            (r#"[{"a":1},{"b":[true,null]}]"#, 7),
            (r#"{"a,[{":"\\\",[{","b":"\\"}"#, 3),
        ] {
            assert_eq!(count_values(text.as_bytes()), count, "{text}");
        }
        let numbers = |count: usize| format!("[{}]", vec!["1"; count].join(","));
        assert!(!has_too_many_values(numbers(MAX_VALUES - 1).as_bytes()));
        assert!(has_too_many_values(numbers(MAX_VALUES).as_bytes()));
        assert!(!has_too_many_values(format!("\"{}\"", ",".repeat(MAX_VALUES)).as_bytes()));
    }

    #[test]
    fn any_character_round_trips_as_ascii() {
        let name = "Zoë 世界 🌍 \"\\ é";
        let text = ascii(&name).expect("JSON");
        assert!(text.is_ascii());
        assert_eq!(serde_json::from_str::<String>(&text).expect("a string"), name);
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Order {
        items: Vec<Item>,
        #[serde(default)]
        way: Option<Way>,
        #[serde(default)]
        count: u32,
        #[serde(default)]
        pair: (u8, u8),
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Item {
        #[serde(rename = "a/b")]
        name: String,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    #[allow(dead_code)]
    enum Way {
        Sea,
        Land(String),
    }

    #[test]
    fn errors_name_the_field_that_does_not_fit() {
        for (body, place, detail) in [
            (json!({}), "", "missing field `items`"),
            (json!({"items": [{"a/b": null}]}), "/items/0/a~1b", "invalid type: null, expected a string"),
            (json!({"items": ["a"]}), "/items/0", "invalid type: string \"a\", expected an object"),
            (json!({"items": [], "way": "moon"}), "/way", "unknown variant `moon`, expected `sea` or `land`"),
            (
                json!({"items": [], "way": {"land": 5}}),
                "/way/land",
                "invalid type: integer `5`, expected a string",
            ),
            (
                json!({"items": [], "count": -1}),
                "/count",
                "invalid value: integer `-1`, expected an integer from 0 to 4294967295",
            ),
            (json!({"items": {}}), "/items", "invalid type: object, expected an array"),
            (json!({"items": [], "pair": 1}), "/pair", "invalid type: integer `1`, expected an array"),
            (
                json!({"items": [], "way": 1}),
                "/way",
                "invalid type: integer `1`, expected a string or an object",
            ),
        ] {
            let error = from_value::<Order>(body.clone()).expect_err("not an order");
            assert_eq!((error.pointer.as_str(), error.detail.as_str()), (place, detail), "{body}");
        }
    }
}
