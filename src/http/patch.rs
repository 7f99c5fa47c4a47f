//! Reads fields of request bodies.

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Value, json};
use std::{fmt, marker::PhantomData};

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

/// Deserializes an object or null; `None` for null. Without it, a struct may also be an array of its fields.
///
/// # Errors
/// When the value is neither, or does not have the type of the field.
pub(super) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    deserializer.deserialize_any(Object(PhantomData))
}

/// Deserializes an object, null, or an absent field: see [`object`] and [`present`].
///
/// # Errors
/// As for [`object`].
pub(super) fn present_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    object(deserializer).map(Some)
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

struct Object<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }
}
