//! JSON Schemas of tools.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::{cell::OnceCell, ops::Deref};

/// The JSON Schema of a tool's arguments. Its text is kept, because each request to a model has the schemas of all tools.
///
/// ```
/// # use edge_harness::types::ToolSchema;
/// let schema: ToolSchema = serde_json::json!({"type": "object"}).into();
/// assert_eq!(schema["type"], "object");
/// assert_eq!(schema.text(), r#"{"type":"object"}"#);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ToolSchema {
    schema: Value,
    text: OnceCell<String>,
}

impl ToolSchema {
    /// Returns the schema as JSON.
    pub fn text(&self) -> &str {
        self.text.get_or_init(|| self.schema.to_string())
    }
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
        self.schema.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ToolSchema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}
