//! Reading JSON.

use serde::de::DeserializeOwned;
use serde_json::{Error, Value};

/// Reads `text` as a `T`, by way of a [`Value`].
///
/// Each deserializer makes its own copy of the code of every type it reads. One for all of them
/// keeps the Worker small; what is on the hot path (model streams) reads directly instead.
///
/// # Errors
/// When it is not JSON, or not a `T`.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    serde_json::from_value(serde_json::from_slice::<Value>(text)?)
}
