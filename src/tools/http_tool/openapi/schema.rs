//! References and schemas of an OpenAPI document.

use crate::types::{FieldError, json::escaped};
use serde_json::{Map, Value};
use std::cell::Cell;

/// A fault of a document, with a pointer that starts at the import.
pub(super) type Fault = FieldError;

/// Maximum nesting of a schema, references included.
const MAX_DEPTH: usize = 32;
/// Maximum number of values of the schemas of one operation.
const MAX_VALUES: usize = 10_000;
/// Maximum size of the schemas of one operation, in bytes of JSON. References can repeat a large text many times.
const MAX_BYTES: usize = 64 << 10;
/// The keywords that the schema of a tool keeps. The server checks what the others say.
const KEPT: &[&str] = &[
    "type",
    "title",
    "description",
    "enum",
    "const",
    "default",
    "format",
    "required",
    "minimum",
    "maximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
];
/// The keywords whose values are schemas, and lists or maps of schemas.
const OF_ONE: &[&str] = &["items", "additionalProperties", "not"];
const OF_SEVERAL: &[&str] = &["properties", "anyOf", "oneOf", "allOf", "prefixItems"];

const TOO_LARGE: &str = "the schema is too large or too deeply nested";

/// A document whose references are resolved.
pub(super) struct Document<'a> {
    root: &'a Map<String, Value>,
    values: Cell<usize>,
    bytes: Cell<usize>,
}

pub(super) fn fault(at: &str, detail: impl Into<String>) -> Fault {
    FieldError { pointer: at.to_owned(), detail: detail.into() }
}

impl<'a> Document<'a> {
    pub(super) fn new(root: &'a Map<String, Value>) -> Self {
        Self { root, values: Cell::default(), bytes: Cell::default() }
    }

    /// Follows the reference of an object, if it is one. Returns the pointer to the value as well.
    pub(super) fn resolve(&self, value: &'a Value, at: &str) -> Result<(&'a Value, String), Fault> {
        let (mut value, mut place) = (value, at.to_owned());
        for _ in 0..MAX_DEPTH {
            let Some(reference) = value.get("$ref") else { return Ok((value, place)) };
            let (next, pointer) = self.target(reference, &place)?;
            value = next;
            place = format!("/document{pointer}");
        }
        Err(fault(at, "the references lead to each other"))
    }

    /// Returns what a reference names, and its pointer in the document.
    fn target(&self, reference: &'a Value, at: &str) -> Result<(&'a Value, &'a str), Fault> {
        let place = format!("{at}/$ref");
        let pointer = reference.as_str().and_then(|text| text.strip_prefix('#'));
        let pointer = pointer.filter(|pointer| pointer.starts_with("/components/"));
        let pointer = pointer.ok_or_else(|| fault(&place, "expected a reference to #/components/"))?;
        let rest = pointer.strip_prefix("/components").unwrap_or_default();
        let found = self.root.get("components").and_then(|components| components.pointer(rest));
        found.map(|found| (found, pointer)).ok_or_else(|| fault(&place, "refers to nothing"))
    }

    /// Returns a schema without references, and with the keywords that a tool's schema can have. A schema that contains
    /// itself accepts any value there.
    pub(super) fn schema(&self, schema: &'a Value, at: &str) -> Result<Value, Fault> {
        self.expanded(schema, at, &mut Vec::new(), 0)
    }

    fn expanded(
        &self,
        schema: &'a Value,
        at: &str,
        open: &mut Vec<&'a str>,
        depth: usize,
    ) -> Result<Value, Fault> {
        self.values.set(self.values.get() + 1);
        if depth > MAX_DEPTH || self.values.get() > MAX_VALUES {
            return Err(fault(at, TOO_LARGE));
        }
        let Some(keywords) = schema.as_object() else {
            return match schema {
                Value::Bool(_) => Ok(schema.clone()),
                _ => Err(fault(at, "expected a schema")),
            };
        };
        if let Some(reference) = keywords.get("$ref") {
            let (target, pointer) = self.target(reference, at)?;
            if open.contains(&pointer) {
                return Ok(Value::Object(Map::new()));
            }
            open.push(pointer);
            let whole = self.expanded(target, &format!("/document{pointer}"), open, depth + 1);
            open.pop();
            return whole;
        }
        let spend = |bytes: usize| {
            self.bytes.set(self.bytes.get() + bytes);
            (self.bytes.get() <= MAX_BYTES).then_some(()).ok_or_else(|| fault(at, TOO_LARGE))
        };
        let mut own = Map::new();
        for (name, value) in keywords {
            let place = format!("{at}/{}", escaped(name));
            let name = name.as_str();
            let kept = match value {
                _ if OF_ONE.contains(&name) => self.expanded(value, &place, open, depth + 1)?,
                Value::Array(items) if OF_SEVERAL.contains(&name) => {
                    let item =
                        |(index, item)| self.expanded(item, &format!("{place}/{index}"), open, depth + 1);
                    items.iter().enumerate().map(item).collect::<Result<_, _>>()?
                }
                Value::Object(members) if OF_SEVERAL.contains(&name) => {
                    let mut all = Map::new();
                    for (key, member) in members.iter().filter(|(_, member)| member["readOnly"] != true) {
                        let place = format!("{place}/{}", escaped(key));
                        spend(key.len())?;
                        all.insert(key.clone(), self.expanded(member, &place, open, depth + 1)?);
                    }
                    Value::Object(all)
                }
                // In OpenAPI 3.0 these are booleans.
                Value::Number(_) if matches!(name, "exclusiveMinimum" | "exclusiveMaximum") => value.clone(),
                _ if KEPT.contains(&name) => {
                    spend(name.len() + value.to_string().len())?;
                    value.clone()
                }
                _ => continue,
            };
            own.insert(name.to_owned(), kept);
        }
        without_read_only(keywords, &mut own);
        if keywords.get("nullable") == Some(&Value::Bool(true)) {
            accept_null(&mut own);
        }
        Ok(Value::Object(own))
    }
}

/// Requires no property that was left out.
fn without_read_only(keywords: &Map<String, Value>, own: &mut Map<String, Value>) {
    let Some(properties) = keywords.get("properties").and_then(Value::as_object) else { return };
    let is_left_out = |name: &Value| {
        name.as_str()
            .and_then(|name| properties.get(name))
            .is_some_and(|property| property["readOnly"] == true)
    };
    if let Some(required) = own.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !is_left_out(name));
    }
}

/// Lets a schema of OpenAPI 3.0 accept null.
fn accept_null(schema: &mut Map<String, Value>) {
    if let Some(kind) = schema.get_mut("type").filter(|kind| kind.is_string()) {
        *kind = Value::Array(vec![kind.take(), "null".into()]);
    }
    if let Some(values) = schema.get_mut("enum").and_then(Value::as_array_mut)
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
}
