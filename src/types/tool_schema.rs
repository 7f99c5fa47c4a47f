//! JSON Schemas of tools.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};
use std::{cell::OnceCell, ops::Deref};

/// The JSON Schema of a tool's arguments. Its text is kept, because each request to a model has the schemas of all tools.
///
/// ```
/// # use edge_harness::types::ToolSchema;
/// let schema: ToolSchema = serde_json::json!({"type": "object"}).into();
/// assert_eq!(schema["type"], "object");
/// assert_eq!(serde_json::to_string(&schema)?, r#"{"type":"object"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ToolSchema {
    schema: Value,
    text: OnceCell<Box<RawValue>>,
}

impl From<Value> for ToolSchema {
    fn from(schema: Value) -> Self {
        Self { schema, text: OnceCell::new() }
    }
}

impl Deref for ToolSchema {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.schema
    }
}

impl PartialEq for ToolSchema {
    fn eq(&self, other: &Self) -> bool {
        self.schema == other.schema
    }
}

impl Serialize for ToolSchema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.text.get() {
            Some(text) => text.serialize(serializer),
            None => {
                let text = to_raw_value(&self.schema).map_err(serde::ser::Error::custom)?;
                self.text.get_or_init(|| text).serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for ToolSchema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}
