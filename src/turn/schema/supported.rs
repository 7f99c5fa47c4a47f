//! Checks whether values can be validated against a schema.

use super::{MAX_DEPTH, MAX_WORK, WRITE_BYTES, count, resolve, spend};
use crate::types::{FieldError, Invalid, json::escaped};
use serde_json::Value;
use std::{
    collections::{HashMap, HashSet},
    ptr,
};

/// Supported keywords.
const SUPPORTED: &str = "type, enum, const, properties, required, additionalProperties, items, prefixItems, \
minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, minLength, maxLength, minItems, maxItems, \
uniqueItems, minProperties, maxProperties, anyOf, oneOf, allOf, not, $ref to #/…, $defs";

/// Validating keywords of any JSON Schema draft that are not supported.
const UNSUPPORTED: &[&str] = &[
    "pattern",
    "patternProperties",
    "propertyNames",
    "contains",
    "minContains",
    "maxContains",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedProperties",
    "unevaluatedItems",
    "additionalItems",
    "if",
    "then",
    "else",
    "$dynamicRef",
    "$recursiveRef",
    "disallow",
    "divisibleBy",
    "extends",
];

const TYPES: &[&str] = &["null", "boolean", "integer", "number", "string", "array", "object"];

/// Checks that `schema` is well-formed and uses no unsupported validating keyword. Annotations and unknown
/// keywords are accepted, as JSON Schema requires.
///
/// # Errors
/// Returns the first problem; its pointer leads into the schema.
pub fn check(schema: &Value) -> Result<(), FieldError> {
    Checker::run(schema, false)
}

/// Checks that `schema` is well-formed. Accepts keywords and references that [`check`] refuses because values cannot be
/// checked against them.
///
/// # Errors
/// As for [`check`].
pub fn check_form(schema: &Value) -> Result<(), FieldError> {
    Checker::run(schema, true)
}

/// Walks a schema. After an error, `path` points to the problem.
struct Checker<'a> {
    root: &'a Value,
    /// Whether keywords and references may be unsupported.
    form_only: bool,
    path: String,
    depth: u32,
    /// Remaining work.
    left: usize,
    /// Schemas already checked. Each is checked once, however many references lead to it.
    seen: HashSet<*const Value>,
    /// Length of the chain of references that starts at a schema.
    hops: HashMap<*const Value, u32>,
    /// References that are still to be followed, and their targets, which may be in places that no keyword
    /// leads to. A list instead of recursion, so that the stack stays bounded.
    due: Vec<(&'a str, &'a Value)>,
}

impl<'a> Checker<'a> {
    fn run(schema: &'a Value, form_only: bool) -> Result<(), FieldError> {
        let mut checker = Self {
            root: schema,
            form_only,
            path: String::new(),
            depth: 0,
            left: MAX_WORK,
            seen: HashSet::new(),
            hops: HashMap::new(),
            due: vec![("#", schema)],
        };
        while let Some((reference, target)) = checker.due.pop() {
            checker.path = reference.trim_start_matches('#').to_owned();
            checker.depth = 0;
            if let Err(detail) = checker.schema(target) {
                return Err(FieldError { pointer: checker.path, detail: detail.into() });
            }
        }
        Ok(())
    }

    fn schema(&mut self, schema: &'a Value) -> Result<(), Invalid> {
        let keywords = match schema {
            Value::Bool(_) => return Ok(()),
            Value::Object(keywords) => keywords,
            _ => return Err("expected a schema: an object, true or false".into()),
        };
        if self.depth == MAX_DEPTH {
            return Err(Invalid(format!("nested more than {MAX_DEPTH} levels deep")));
        }
        if !self.seen.insert(ptr::from_ref(schema)) {
            return Ok(());
        }
        self.depth += 1;
        for (keyword, value) in keywords {
            self.at(keyword, |this| this.keyword(keyword, value))?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Descends into a segment. Restores the path unless an error occurred there.
    fn at(
        &mut self,
        segment: &str,
        inside: impl FnOnce(&mut Self) -> Result<(), Invalid>,
    ) -> Result<(), Invalid> {
        self.pay(2 + segment.len() / WRITE_BYTES)?;
        let length = self.path.len();
        self.path.push('/');
        self.path.push_str(&escaped(segment));
        inside(self)?;
        self.path.truncate(length);
        Ok(())
    }

    fn keyword(&mut self, keyword: &str, value: &'a Value) -> Result<(), Invalid> {
        match keyword {
            "type" => is_type(value),
            "properties" | "$defs" | "definitions" => {
                let Value::Object(schemas) = value else { return Err("expected an object".into()) };
                schemas.iter().try_for_each(|(name, schema)| self.at(name, |this| this.schema(schema)))
            }
            "additionalProperties" | "items" | "not" => self.schema(value),
            "prefixItems" | "anyOf" | "oneOf" | "allOf" => {
                let Some(schemas) = value.as_array().filter(|schemas| !schemas.is_empty()) else {
                    return Err("expected a non-empty list of schemas".into());
                };
                let mut schemas = schemas.iter().enumerate();
                schemas
                    .try_for_each(|(index, schema)| self.at(&index.to_string(), |this| this.schema(schema)))
            }
            "required" => {
                let names = value.as_array().is_some_and(|names| names.iter().all(Value::is_string));
                names.then_some(()).ok_or_else(|| "expected a list of names".into())
            }
            "enum" => match value.as_array() {
                Some(values) if !values.is_empty() => Ok(()),
                _ => Err("expected a non-empty list of values".into()),
            },
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                value.is_number().then_some(()).ok_or_else(|| "expected a number".into())
            }
            "multipleOf" => match value.as_f64() {
                Some(step) if step > 0.0 => Ok(()),
                _ => Err("expected a number greater than 0".into()),
            },
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
                count(value).map(drop).ok_or_else(|| "expected a non-negative integer".into())
            }
            "uniqueItems" => value.is_boolean().then_some(()).ok_or_else(|| "expected true or false".into()),
            "$ref" => self.reference(value),
            // An inner `$id` would start another document, with its own pointers.
            "$id" if self.path != "/$id" && !self.form_only => {
                Err("`$id` is supported only at the top of the schema".into())
            }
            unsupported if UNSUPPORTED.contains(&unsupported) && !self.form_only => {
                Err(Invalid(format!("`{unsupported}` is not supported; supported keywords: {SUPPORTED}")))
            }
            _ => Ok(()),
        }
    }

    fn reference(&mut self, value: &'a Value) -> Result<(), Invalid> {
        let Value::String(reference) = value else { return Err("expected a string".into()) };
        let is_local = reference == "#" || reference.starts_with("#/");
        if self.form_only && !is_local {
            return Ok(());
        }
        if !is_local {
            return Err(Invalid(format!(
                "a $ref must point into this schema (#/…); supported keywords: {SUPPORTED}"
            )));
        }
        self.pay(1 + reference.len() / 2)?;
        let Some(target) = resolve(self.root, reference) else {
            return Err("the reference does not resolve".into());
        };
        if self.hops(target, 0).is_none() {
            return Err("the reference is circular".into());
        }
        if !self.seen.contains(&ptr::from_ref(target)) {
            self.due.push((reference, target));
        }
        Ok(())
    }

    /// Returns the length of the chain of references that starts at `schema`, or `None` when the chain is
    /// circular.
    fn hops(&mut self, schema: &'a Value, before: u32) -> Option<u32> {
        if before == MAX_DEPTH {
            return None;
        }
        if let Some(known) = self.hops.get(&ptr::from_ref(schema)) {
            return (before + known < MAX_DEPTH).then_some(*known);
        }
        let next = schema.get("$ref").and_then(Value::as_str).and_then(|next| resolve(self.root, next));
        let hops = match next {
            Some(next) => self.hops(next, before + 1)? + 1,
            None => 0,
        };
        self.hops.insert(ptr::from_ref(schema), hops);
        Some(hops)
    }

    fn pay(&mut self, work: usize) -> Result<(), Invalid> {
        spend(&mut self.left, work).ok_or_else(|| "the schema is too large to check".into())
    }
}

fn is_type(value: &Value) -> Result<(), Invalid> {
    let known = |kind: &Value| kind.as_str().is_some_and(|kind| TYPES.contains(&kind));
    let fits = match value {
        Value::Array(kinds) => !kinds.is_empty() && kinds.iter().all(known),
        kind => known(kind),
    };
    fits.then_some(()).ok_or_else(|| Invalid(format!("expected one of, or a list of: {}", TYPES.join(", "))))
}
