//! Whether a schema is one that answers can be held to.

use super::{MAX_DEPTH, MAX_WORK, Misfit, WRITE, count, escaped, resolve, spend};
use serde_json::Value;
use std::{
    collections::{HashMap, HashSet},
    ptr,
};

/// What is checked of a value.
const SUPPORTED: &str = "type, enum, const, properties, required, additionalProperties, items, prefixItems, \
minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, minLength, maxLength, minItems, maxItems, \
uniqueItems, minProperties, maxProperties, anyOf, oneOf, allOf, not, $ref to #/…, $defs";

/// What JSON Schema, of any draft, would have checked and we do not.
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

/// Whether answers can be held to `schema`: what it asks for is written as it should be, and nothing
/// in it asks for a check that is not made. Annotations and keywords that JSON Schema does not know
/// are let pass, as it says. Tells the first trouble; its pointer leads into the schema.
///
/// # Errors
/// What the schema asks that we cannot do.
pub fn check(schema: &Value) -> Result<(), Misfit> {
    let mut checker = Checker {
        root: schema,
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
            return Err(Misfit { pointer: checker.path, detail });
        }
    }
    Ok(())
}

/// Walks a schema. Where it stops, `path` stays at the trouble.
struct Checker<'a> {
    root: &'a Value,
    path: String,
    depth: u32,
    /// Work that is left.
    left: usize,
    /// Schemas that were looked at. However many references lead to one, and however they are spelled,
    /// it is looked at once.
    seen: HashSet<*const Value>,
    /// How many references follow upon each other from a schema on.
    hops: HashMap<*const Value, u32>,
    /// References that are still to be followed, and what they lead to, which may stand where no
    /// keyword leads. One inside the other would have no bound.
    due: Vec<(&'a str, &'a Value)>,
}

impl<'a> Checker<'a> {
    fn schema(&mut self, schema: &'a Value) -> Result<(), String> {
        let keywords = match schema {
            Value::Bool(_) => return Ok(()),
            Value::Object(keywords) => keywords,
            _ => return Err("expected a schema: an object, true or false".into()),
        };
        if self.depth == MAX_DEPTH {
            return Err(format!("nested more than {MAX_DEPTH} deep"));
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

    /// Goes down; comes back up if all is well there.
    fn at(
        &mut self,
        segment: &str,
        inside: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.pay(2 + segment.len() / WRITE)?;
        let length = self.path.len();
        self.path.push('/');
        self.path.push_str(&escaped(segment));
        inside(self)?;
        self.path.truncate(length);
        Ok(())
    }

    fn keyword(&mut self, keyword: &str, value: &'a Value) -> Result<(), String> {
        match keyword {
            "type" => is_type(value),
            "properties" | "$defs" | "definitions" => {
                let Value::Object(schemas) = value else { return Err("expected an object".into()) };
                schemas.iter().try_for_each(|(name, schema)| self.at(name, |this| this.schema(schema)))
            }
            "additionalProperties" | "items" | "not" => self.schema(value),
            "prefixItems" | "anyOf" | "oneOf" | "allOf" => {
                let Some(schemas) = value.as_array().filter(|schemas| !schemas.is_empty()) else {
                    return Err("expected a list of schemas".into());
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
                _ => Err("expected a list of values".into()),
            },
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                value.is_number().then_some(()).ok_or_else(|| "expected a number".into())
            }
            "multipleOf" => match value.as_f64() {
                Some(step) if step > 0.0 => Ok(()),
                _ => Err("expected a number above 0".into()),
            },
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
                count(value).map(drop).ok_or_else(|| "expected a whole number, not negative".into())
            }
            "uniqueItems" => value.is_boolean().then_some(()).ok_or_else(|| "expected true or false".into()),
            "$ref" => self.reference(value),
            // What is below it would be another document, with pointers of its own.
            "$id" if self.path != "/$id" => Err("schemas inside a schema cannot have an $id here".into()),
            unsupported if UNSUPPORTED.contains(&unsupported) => {
                Err(format!("`{unsupported}` is not checked here; what is: {SUPPORTED}"))
            }
            _ => Ok(()),
        }
    }

    fn reference(&mut self, value: &'a Value) -> Result<(), String> {
        let Value::String(reference) = value else { return Err("expected a string".into()) };
        if !(reference == "#" || reference.starts_with("#/")) {
            return Err(format!("a $ref may only point into this schema, as #/…; supported: {SUPPORTED}"));
        }
        self.pay(1 + reference.len() / 2)?;
        let Some(target) = resolve(self.root, reference) else {
            return Err("it points to nothing".into());
        };
        if self.hops(target, 0).is_none() {
            return Err("it leads back to itself".into());
        }
        if !self.seen.contains(&ptr::from_ref(target)) {
            self.due.push((reference, target));
        }
        Ok(())
    }

    /// How many references lead on from `schema`; `None` when they never come to a member or an item.
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

    fn pay(&mut self, work: usize) -> Result<(), String> {
        spend(&mut self.left, work).ok_or_else(|| "the schema is too large to be checked".to_owned())
    }
}

fn is_type(value: &Value) -> Result<(), String> {
    let known = |kind: &Value| kind.as_str().is_some_and(|kind| TYPES.contains(&kind));
    let fits = match value {
        Value::Array(kinds) => !kinds.is_empty() && kinds.iter().all(known),
        kind => known(kind),
    };
    fits.then_some(()).ok_or_else(|| format!("expected one or a list of {}", TYPES.join(", ")))
}
