//! The part of JSON Schema (2020-12) that tools and callers use: checks values, and converts values to the
//! schema's types when the conversion is lossless.
//!
//! Checks `type`, `enum`, `const`, the bounds of numbers, strings, arrays and objects, `properties`,
//! `required`, `additionalProperties`, `items`, `prefixItems`, `anyOf`, `oneOf`, `allOf`, `not`, and `$ref`
//! within the schema. Ignores annotations (including `format`) and every other keyword; [`check`] reports
//! beforehand whether a schema depends on an unsupported keyword such as `pattern`.

mod coerce;
mod supported;
mod values;
mod work;

pub use coerce::coerce;
pub use supported::{check, check_form};

use crate::types::{FieldError, json::escaped};
use serde_json::{Map, Number, Value};
use std::{
    cmp::Ordering,
    collections::HashSet,
    fmt::{self, Write},
    mem, slice,
};
use values::{compare, count, integer, is_multiple, is_whole, same};
use work::{READ_BYTES, WRITE_BYTES, spend};

/// Returns JSON that is identical for equal values, regardless of member order and number format.
pub fn canonical(value: &Value) -> String {
    // Cannot fail: the work is not limited here.
    values::canonical(value, &mut usize::MAX.clone()).unwrap_or_default()
}

/// Maximum combined nesting of value and schema.
const MAX_DEPTH: u32 = 64;
/// Maximum number of violations that are reported.
const MAX_VIOLATIONS: usize = 32;
/// Maximum work, in the units of [`work`]. Recursive alternatives would double the work at each level, and a
/// short schema can require much work on a large value.
const MAX_WORK: usize = 500_000;
/// Work of visiting one value, not counting its keywords.
const VISIT_WORK: usize = 4;
/// Maximum length of a list of allowed values in a message, in characters.
const MAX_LIST: usize = 300;

/// Checks `value` against `schema` and returns at most the first 32 violations; empty when the value
/// conforms. A value that is nested deeper than 64 levels, or that takes too much work to check, does not
/// conform.
pub fn violations(schema: &Value, value: &Value) -> Vec<FieldError> {
    let mut work = MAX_WORK;
    Checker::run(schema, schema, value, &mut work)
}

/// Checks one value against a schema.
struct Checker<'a> {
    /// The document that `$ref` points into.
    root: &'a Value,
    /// JSON Pointer to the current value.
    path: String,
    depth: u32,
    /// Remaining work.
    left: usize,
    /// Set when a limit was exceeded. The result is unknown then, even inside `not`.
    gave_up: bool,
    found: Vec<FieldError>,
}

impl<'a> Checker<'a> {
    fn run(root: &'a Value, schema: &'a Value, value: &Value, work: &mut usize) -> Vec<FieldError> {
        let (path, found) = (String::new(), Vec::new());
        let mut checker = Self { root, path, depth: 0, left: *work, gave_up: false, found };
        checker.visit(schema, value);
        *work = checker.left;
        if checker.gave_up {
            checker.path.clear();
            checker.found.clear();
            checker.report("too large or too deeply nested to check");
        }
        checker.found
    }

    fn report(&mut self, detail: impl Into<String>) {
        let detail = detail.into();
        self.pay(2 + (self.path.len() + detail.len()) / WRITE_BYTES);
        if self.found.len() < MAX_VIOLATIONS {
            self.found.push(FieldError { pointer: self.path.clone(), detail });
        }
    }

    /// Subtracts work. Returns false when none is left.
    fn pay(&mut self, work: usize) -> bool {
        self.gave_up |= spend(&mut self.left, work).is_none();
        !self.gave_up
    }

    /// Runs work that draws on the remaining budget. Returns `None` when the budget was exceeded.
    fn metered<T>(&mut self, work: impl FnOnce(&mut usize) -> Option<T>) -> Option<T> {
        let done = work(&mut self.left);
        self.gave_up |= done.is_none();
        done
    }

    fn visit(&mut self, schema: &'a Value, value: &Value) {
        if !self.pay(1) {
            return;
        }
        let keywords = match schema {
            Value::Bool(true) => return,
            Value::Bool(false) => return self.report("no value is allowed here"),
            Value::Object(keywords) => keywords,
            // Not a schema: `check` reports it, and no value can conform to it.
            _ => return self.report("the schema of this value is invalid"),
        };
        if self.depth == MAX_DEPTH || !self.pay(VISIT_WORK) {
            self.gave_up = true;
            return;
        }
        self.depth += 1;
        self.check_common(keywords, value);
        match value {
            Value::Number(number) => self.number(keywords, number),
            Value::String(text) => self.text(keywords, text),
            Value::Array(items) => self.array(keywords, items),
            Value::Object(members) => self.object(keywords, members),
            Value::Null | Value::Bool(_) => {}
        }
        self.combined(keywords, value);
        self.depth -= 1;
    }

    /// Descends into a member or an item.
    fn enter(&mut self, segment: &str, schema: &'a Value, value: &Value) {
        if !self.pay(1 + segment.len() / WRITE_BYTES) {
            return;
        }
        let length = self.path.len();
        self.path.push('/');
        self.path.push_str(&escaped(segment));
        self.visit(schema, value);
        self.path.truncate(length);
    }

    /// Returns the violations of another schema for the same value, without adding them to `found`.
    fn violations_of(&mut self, schema: &'a Value, value: &Value) -> Vec<FieldError> {
        let outer = mem::take(&mut self.found);
        self.visit(schema, value);
        mem::replace(&mut self.found, outer)
    }

    /// Checks the keywords that apply to values of every type.
    fn check_common(&mut self, keywords: &'a Map<String, Value>, value: &Value) {
        if let Some(kind) = keywords.get("type")
            && self.pay(kind.as_array().map_or(0, Vec::len))
        {
            let wanted = types(kind);
            if !wanted.iter().any(|kind| is_a(value, kind)) {
                self.report(format!("expected {}, found {}", truncate(&wanted.join(" or ")), type_of(value)));
            }
        }
        if let Some(Value::Array(allowed)) = keywords.get("enum")
            && !allowed.iter().any(|allowed| self.may_equal(allowed, value))
        {
            self.report(format!("expected one of {}", list_of_values(allowed)));
        }
        if let Some(only) = keywords.get("const")
            && !self.may_equal(only, value)
        {
            self.report(format!("expected {}", list_of_values(slice::from_ref(only))));
        }
    }

    /// Returns whether two values are equal. Returns true when the comparison exceeds the work limit.
    fn may_equal(&mut self, a: &Value, b: &Value) -> bool {
        self.metered(|left| same(a, b, left)).unwrap_or(true)
    }

    fn number(&mut self, keywords: &Map<String, Value>, number: &Number) {
        type Fits = fn(Ordering) -> bool;
        let bounds: [(&str, &str, Fits); 4] = [
            ("minimum", "at least", Ordering::is_ge),
            ("maximum", "at most", Ordering::is_le),
            ("exclusiveMinimum", "more than", Ordering::is_gt),
            ("exclusiveMaximum", "less than", Ordering::is_lt),
        ];
        for (keyword, word, fits) in bounds {
            if let Some(Value::Number(bound)) = keywords.get(keyword)
                && !compare(number, bound).is_some_and(fits)
            {
                self.report(format!("expected {word} {bound}"));
            }
        }
        if let Some(Value::Number(step)) = keywords.get("multipleOf")
            && !is_multiple(number, step)
        {
            self.report(format!("expected a multiple of {step}"));
        }
    }

    fn length(&mut self, keywords: &Map<String, Value>, length: usize, bounds: Bounds) {
        let bound = |keyword: &str| keywords.get(keyword).and_then(count);
        if let Some(min) = bound(bounds.min).filter(|min| (length as u64) < *min) {
            self.report(format!("expected at least {min} {}, found {length}", bounds.unit));
        }
        if let Some(max) = bound(bounds.max).filter(|max| length as u64 > *max) {
            self.report(format!("expected at most {max} {}, found {length}", bounds.unit));
        }
    }

    fn text(&mut self, keywords: &Map<String, Value>, text: &str) {
        let is_bounded = keywords.contains_key(STRING.min) || keywords.contains_key(STRING.max);
        if is_bounded && self.pay(text.len() / READ_BYTES) {
            self.length(keywords, text.chars().count(), STRING);
        }
    }

    fn array(&mut self, keywords: &'a Map<String, Value>, items: &[Value]) {
        self.length(keywords, items.len(), ARRAY);
        if keywords.get("uniqueItems") == Some(&Value::Bool(true)) {
            let mut seen = HashSet::new();
            let mut is_new = |item| {
                self.metered(|left| values::canonical(item, left)).is_none_or(|text| seen.insert(text))
            };
            if !items.iter().all(&mut is_new) {
                self.report("expected unique items");
            }
        }
        if !["items", "prefixItems"].iter().any(|keyword| keywords.contains_key(*keyword)) {
            return;
        }
        for (index, item) in items.iter().enumerate() {
            if let Some(schema) = item_schema(keywords, index) {
                self.enter(&index.to_string(), schema, item);
            }
        }
    }

    fn object(&mut self, keywords: &'a Map<String, Value>, members: &Map<String, Value>) {
        self.length(keywords, members.len(), OBJECT);
        if let Some(Value::Array(required)) = keywords.get("required") {
            for name in required.iter().filter_map(Value::as_str) {
                if !self.pay(1 + name.len() / WRITE_BYTES) {
                    return;
                }
                if !members.contains_key(name) {
                    self.report(format!("expected a member named {name:?}"));
                }
            }
        }
        if !["properties", "additionalProperties"].iter().any(|keyword| keywords.contains_key(*keyword)) {
            return;
        }
        for (name, member) in members {
            if !self.pay(1 + name.len() / WRITE_BYTES) {
                return;
            }
            if let Some(schema) = member_schema(keywords, name) {
                self.enter(name, schema, member);
            }
        }
    }

    /// Checks the keywords that apply other schemas to the same value.
    fn combined(&mut self, keywords: &'a Map<String, Value>, value: &Value) {
        if let Some(Value::String(reference)) = keywords.get("$ref") {
            if !self.pay(1 + reference.len() / 2) {
                return;
            }
            match resolve(self.root, reference) {
                Some(target) => self.visit(target, value),
                None => self.report(format!("the schema reference {reference:?} does not resolve")),
            }
        }
        list(keywords, "allOf").iter().for_each(|schema| self.visit(schema, value));
        if let Some(schema) = keywords.get("not")
            && self.violations_of(schema, value).is_empty()
        {
            self.report("expected a value that does not match the schema under `not`");
        }
        for keyword in ["anyOf", "oneOf"] {
            let alternatives = list(keywords, keyword);
            if alternatives.is_empty() {
                continue;
            }
            let tried: Vec<_> = alternatives.iter().map(|schema| self.violations_of(schema, value)).collect();
            let fits = tried.iter().filter(|violations| violations.is_empty()).count();
            if keyword == "oneOf" && fits > 1 {
                self.report(format!("expected to match exactly one alternative, matches {fits}"));
            }
            if fits == 0 {
                self.report(format!("matches none of {} alternatives", tried.len()));
                // The violations of the closest alternative are the most useful.
                self.found.extend(tried.into_iter().min_by_key(Vec::len).unwrap_or_default());
                self.found.truncate(MAX_VIOLATIONS);
            }
        }
    }
}

/// The keywords that limit a length, and the unit they count.
#[derive(Clone, Copy)]
struct Bounds {
    min: &'static str,
    max: &'static str,
    unit: &'static str,
}

const STRING: Bounds = Bounds { min: "minLength", max: "maxLength", unit: "characters" };
const ARRAY: Bounds = Bounds { min: "minItems", max: "maxItems", unit: "items" };
const OBJECT: Bounds = Bounds { min: "minProperties", max: "maxProperties", unit: "members" };

/// Returns the names in `type`, which holds one name or a list.
fn types(kind: &Value) -> Vec<&str> {
    match kind {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_a(value: &Value, kind: &str) -> bool {
    match (kind, value) {
        // 1.0 counts as an integer.
        ("integer", Value::Number(number)) => integer(number).is_some() || is_whole(number),
        (kind, value) => kind == type_of(value),
    }
}

/// Returns the schema of an item, if there is one.
fn item_schema(keywords: &Map<String, Value>, index: usize) -> Option<&Value> {
    list(keywords, "prefixItems").get(index).or_else(|| keywords.get("items"))
}

/// Returns the schema of a member, if there is one.
fn member_schema<'a>(keywords: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let named = keywords.get("properties").and_then(|properties| properties.get(name));
    named.or_else(|| keywords.get("additionalProperties"))
}

/// Returns the schemas of a keyword that holds a list; empty when the keyword is absent.
fn list<'a>(keywords: &'a Map<String, Value>, keyword: &str) -> &'a [Value] {
    keywords.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Resolves a reference within the schema.
fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = percent_encoding::percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?;
    root.pointer(&pointer)
}

fn truncate(text: &str) -> String {
    let mut list = TruncatedText::default();
    let _ = list.write_str(text);
    list.text
}

/// Formats values as a list of JSON texts. Stops writing at the length limit.
fn list_of_values(values: &[Value]) -> String {
    let mut list = TruncatedText::default();
    for (index, value) in values.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        if write!(list, "{comma}{value}").is_err() {
            break;
        }
    }
    list.text
}

/// Text of at most [`MAX_LIST`] characters.
#[derive(Default)]
struct TruncatedText {
    text: String,
    length: usize,
}

impl fmt::Write for TruncatedText {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        match more.char_indices().nth(MAX_LIST - self.length) {
            Some((end, _)) => {
                self.text.push_str(more.split_at(end).0);
                self.text.push('…');
                Err(fmt::Error)
            }
            None => {
                self.text.push_str(more);
                self.length += more.chars().count();
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;
