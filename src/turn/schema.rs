//! The part of JSON Schema that tools and callers use: checking a value, and bringing one into the
//! schema's types where nothing is lost by it.

use serde_json::Value;

/// Where a value does not fit its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// JSON Pointer into the value.
    pub pointer: String,
    /// What was expected there.
    pub detail: String,
}

/// Checks `value` against `schema`; empty when it fits.
pub fn misfits(_schema: &Value, _value: &Value) -> Vec<Misfit> {
    Vec::new()
}

/// Brings `value` into the types of `schema` where nothing is lost by it. Says whether it changed.
pub fn coerce(_schema: &Value, _value: &mut Value) -> bool {
    false
}
