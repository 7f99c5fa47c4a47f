//! Reads the fields of a patch.

use serde::{Deserialize, Deserializer};

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
