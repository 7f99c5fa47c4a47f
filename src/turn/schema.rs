//! The part of JSON Schema (2020-12) that tools and callers use: checking a value, and bringing one
//! into the schema's types where nothing is lost by it.
//!
//! Checked are `type`, `enum`, `const`, the bounds of numbers, strings, arrays and objects,
//! `properties`, `required`, `additionalProperties`, `items`, `prefixItems`, `anyOf`, `oneOf`,
//! `allOf`, `not`, and `$ref` within the schema. Annotations, `format` among them, are ignored, and
//! so is every other keyword: [`check`] says beforehand whether a schema needs one, such as `pattern`.

mod coerce;
mod supported;
mod values;
mod work;

pub use coerce::coerce;
pub use supported::check;

use serde_json::{Map, Number, Value};
use std::{
    cmp::Ordering,
    collections::HashSet,
    fmt::{self, Write},
    mem, slice,
};
use values::{compare, count, integer, is_multiple, is_whole, same};
use work::{READ, WRITE, spend};

/// JSON that is the same for equal values, however their members stand and their numbers are written.
pub fn canonical(value: &Value) -> String {
    // With work without end it always comes to an end.
    values::canonical(value, &mut usize::MAX.clone()).unwrap_or_default()
}

/// Deepest nesting, of value and schema together, that is followed.
const MAX_DEPTH: u32 = 64;
/// Most misfits that are told.
const MAX_MISFITS: usize = 32;
/// Most work, in the units of [`work`]: alternatives in a circle would double it at each level, and a large
/// value can be asked much in few words.
const MAX_WORK: usize = 500_000;
/// What looking at one place costs beside what is asked there.
const VISIT: usize = 4;
/// Longest list of allowed values that is told, in characters.
const MAX_LIST: usize = 300;

/// Where a value does not fit its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// JSON Pointer into the value.
    pub pointer: String,
    /// What was expected there.
    pub detail: String,
}

/// Checks `value` against `schema`; empty when it fits. Tells at most the first 32 misfits. What is
/// nested deeper than 64 levels, or takes too much work to check, does not fit.
pub fn misfits(schema: &Value, value: &Value) -> Vec<Misfit> {
    let mut work = MAX_WORK;
    Checker::run(schema, schema, value, &mut work)
}

/// Checks one value.
struct Checker<'a> {
    /// What `$ref` points into.
    root: &'a Value,
    /// Where we are in the value.
    path: String,
    depth: u32,
    /// Work that is left.
    left: usize,
    /// Set when a bound was hit: the result is not known then, whatever `not` makes of it.
    gave_up: bool,
    found: Vec<Misfit>,
}

impl<'a> Checker<'a> {
    fn run(root: &'a Value, schema: &'a Value, value: &Value, work: &mut usize) -> Vec<Misfit> {
        let (path, found) = (String::new(), Vec::new());
        let mut checker = Self { root, path, depth: 0, left: *work, gave_up: false, found };
        checker.visit(schema, value);
        *work = checker.left;
        if checker.gave_up {
            checker.path.clear();
            checker.found.clear();
            checker.misfit("too large or too deeply nested to be checked");
        }
        checker.found
    }

    fn misfit(&mut self, detail: impl Into<String>) {
        let detail = detail.into();
        self.pay(2 + (self.path.len() + detail.len()) / WRITE);
        if self.found.len() < MAX_MISFITS {
            self.found.push(Misfit { pointer: self.path.clone(), detail });
        }
    }

    /// Pays for work; false when none is left.
    fn pay(&mut self, work: usize) -> bool {
        self.gave_up |= spend(&mut self.left, work).is_none();
        !self.gave_up
    }

    /// What metered work comes to; nothing when it was too much.
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
            Value::Bool(false) => return self.misfit("nothing is allowed here"),
            Value::Object(keywords) => keywords,
            // Not a schema: `check` says so, and here it cannot fit anything.
            _ => return self.misfit("its schema is no schema"),
        };
        if self.depth == MAX_DEPTH || !self.pay(VISIT) {
            self.gave_up = true;
            return;
        }
        self.depth += 1;
        self.whole(keywords, value);
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

    /// Goes down into a member or an item.
    fn enter(&mut self, segment: &str, schema: &'a Value, value: &Value) {
        if !self.pay(1 + segment.len() / WRITE) {
            return;
        }
        let length = self.path.len();
        self.path.push('/');
        self.path.push_str(&escaped(segment));
        self.visit(schema, value);
        self.path.truncate(length);
    }

    /// The misfits of another schema for the same value, kept apart.
    fn aside(&mut self, schema: &'a Value, value: &Value) -> Vec<Misfit> {
        let outer = mem::take(&mut self.found);
        self.visit(schema, value);
        mem::replace(&mut self.found, outer)
    }

    /// What a value of any type may be asked: its type, and the values allowed.
    fn whole(&mut self, keywords: &'a Map<String, Value>, value: &Value) {
        if let Some(kind) = keywords.get("type")
            && self.pay(kind.as_array().map_or(0, Vec::len))
        {
            let wanted = types(kind);
            if !wanted.iter().any(|kind| is_a(value, kind)) {
                self.misfit(format!("expected {}, found {}", cut(&wanted.join(" or ")), type_of(value)));
            }
        }
        if let Some(Value::Array(allowed)) = keywords.get("enum")
            && !allowed.iter().any(|allowed| self.may_be(allowed, value))
        {
            self.misfit(format!("expected one of {}", shown(allowed)));
        }
        if let Some(only) = keywords.get("const")
            && !self.may_be(only, value)
        {
            self.misfit(format!("expected {}", shown(slice::from_ref(only))));
        }
    }

    /// Whether two values are the same, or nobody knows.
    fn may_be(&mut self, a: &Value, b: &Value) -> bool {
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
                self.misfit(format!("expected {word} {bound}"));
            }
        }
        if let Some(Value::Number(step)) = keywords.get("multipleOf")
            && !is_multiple(number, step)
        {
            self.misfit(format!("expected a multiple of {step}"));
        }
    }

    fn length(&mut self, keywords: &Map<String, Value>, length: usize, bounds: Bounds) {
        let bound = |keyword: &str| keywords.get(keyword).and_then(count);
        if let Some(min) = bound(bounds.min).filter(|min| (length as u64) < *min) {
            self.misfit(format!("expected at least {min} {}, found {length}", bounds.unit));
        }
        if let Some(max) = bound(bounds.max).filter(|max| length as u64 > *max) {
            self.misfit(format!("expected at most {max} {}, found {length}", bounds.unit));
        }
    }

    fn text(&mut self, keywords: &Map<String, Value>, text: &str) {
        let is_bounded = keywords.contains_key(STRING.min) || keywords.contains_key(STRING.max);
        if is_bounded && self.pay(text.len() / READ) {
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
                self.misfit("expected no item twice");
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
                if !self.pay(1 + name.len() / WRITE) {
                    return;
                }
                if !members.contains_key(name) {
                    self.misfit(format!("expected a member {name:?}"));
                }
            }
        }
        if !["properties", "additionalProperties"].iter().any(|keyword| keywords.contains_key(*keyword)) {
            return;
        }
        for (name, member) in members {
            if !self.pay(1 + name.len() / WRITE) {
                return;
            }
            if let Some(schema) = member_schema(keywords, name) {
                self.enter(name, schema, member);
            }
        }
    }

    /// What other schemas say of the same value.
    fn combined(&mut self, keywords: &'a Map<String, Value>, value: &Value) {
        if let Some(Value::String(reference)) = keywords.get("$ref") {
            if !self.pay(1 + reference.len() / 2) {
                return;
            }
            match resolve(self.root, reference) {
                Some(target) => self.visit(target, value),
                None => self.misfit(format!("its schema refers to {reference:?}, which is not there")),
            }
        }
        list(keywords, "allOf").iter().for_each(|schema| self.visit(schema, value));
        if let Some(schema) = keywords.get("not")
            && self.aside(schema, value).is_empty()
        {
            self.misfit("expected something else: the schema under `not` fits");
        }
        for keyword in ["anyOf", "oneOf"] {
            let alternatives = list(keywords, keyword);
            if alternatives.is_empty() {
                continue;
            }
            let tried: Vec<_> = alternatives.iter().map(|schema| self.aside(schema, value)).collect();
            let fits = tried.iter().filter(|misfits| misfits.is_empty()).count();
            if keyword == "oneOf" && fits > 1 {
                self.misfit(format!("expected to fit exactly one of the alternatives, fits {fits}"));
            }
            if fits == 0 {
                self.misfit(format!("fits none of {} alternatives", tried.len()));
                // What is wrong with the nearest one helps most.
                self.found.extend(tried.into_iter().min_by_key(Vec::len).unwrap_or_default());
                self.found.truncate(MAX_MISFITS);
            }
        }
    }
}

/// The keywords that bound a length, and what they count.
#[derive(Clone, Copy)]
struct Bounds {
    min: &'static str,
    max: &'static str,
    unit: &'static str,
}

const STRING: Bounds = Bounds { min: "minLength", max: "maxLength", unit: "characters" };
const ARRAY: Bounds = Bounds { min: "minItems", max: "maxItems", unit: "items" };
const OBJECT: Bounds = Bounds { min: "minProperties", max: "maxProperties", unit: "members" };

/// The names in a `type`, which is one or a list.
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
        // 1.0 is an integer too.
        ("integer", Value::Number(number)) => integer(number).is_some() || is_whole(number),
        (kind, value) => kind == type_of(value),
    }
}

/// The schema of an item, if anything is said of it.
fn item_schema(keywords: &Map<String, Value>, index: usize) -> Option<&Value> {
    list(keywords, "prefixItems").get(index).or_else(|| keywords.get("items"))
}

/// The schema of a member, if anything is said of it.
fn member_schema<'a>(keywords: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let named = keywords.get("properties").and_then(|properties| properties.get(name));
    named.or_else(|| keywords.get("additionalProperties"))
}

/// A keyword that is a list of schemas; empty when it is not there.
fn list<'a>(keywords: &'a Map<String, Value>, keyword: &str) -> &'a [Value] {
    keywords.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// What a reference within the schema points to.
fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = percent_encoding::percent_decode_str(reference.strip_prefix('#')?).decode_utf8().ok()?;
    root.pointer(&pointer)
}

/// A segment of a JSON Pointer.
fn escaped(segment: &str) -> String {
    segment.replace('~', "~0").replace('/', "~1")
}

fn cut(text: &str) -> String {
    let mut list = List::default();
    let _ = list.write_str(text);
    list.text
}

/// Values as JSON, one behind the other. What would be cut off is not written in the first place.
fn shown(values: &[Value]) -> String {
    let mut list = List::default();
    for (index, value) in values.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        if write!(list, "{comma}{value}").is_err() {
            break;
        }
    }
    list.text
}

/// Text that takes no more than [`MAX_LIST`] characters.
#[derive(Default)]
struct List {
    text: String,
    length: usize,
}

impl fmt::Write for List {
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
