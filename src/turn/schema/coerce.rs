//! Converts values to the types of their schema when the conversion is lossless.

use super::{
    Checker, MAX_DEPTH, MAX_WORK, integer, is_a, item_schema, list, member_schema, resolve, types,
    work::{WRITE_BYTES, spend, weight},
};
use crate::types::json;
use serde_json::{Map, Number, Value};

/// Work of trying an alternative, not counting the check itself.
const TRY_WORK: usize = 100;

/// Converts `value` to the types of `schema`. Changes nothing unless the converted value conforms to the
/// schema. Returns whether the value changed.
///
/// Converts `"5"` to 5 and `"true"` to true if the text is exactly how JSON writes them; 5.0 to 5; an integer
/// or a boolean to text (but not 1.10, whose notation is lost once parsed); text that contains an object or
/// an array to that value; and a single value to a list of one. Removes a member that is null and not
/// required. Leaves conforming values as they are, except for 5.0 as an integer, which is the same number in
/// another notation.
pub fn coerce(schema: &Value, value: &mut Value) -> bool {
    let mut coercer = Coercer { root: schema, left: MAX_WORK, depth: 0 };
    let mut coerced = value.clone();
    let changed =
        coercer.coerce(schema, &mut coerced) && coercer.fits(schema, &coerced) && !json::too_deep(&coerced);
    if changed {
        *value = coerced;
    }
    changed
}

/// Converts a copy of the value; the caller checks the result.
struct Coercer<'a> {
    /// The document that `$ref` points into.
    root: &'a Value,
    /// Remaining work.
    left: usize,
    depth: u32,
}

impl<'a> Coercer<'a> {
    fn pay(&mut self, work: usize) -> bool {
        spend(&mut self.left, work).is_some()
    }

    fn fits(&mut self, schema: &'a Value, value: &Value) -> bool {
        Checker::run(self.root, schema, value, &mut self.left).is_empty()
    }

    fn coerce(&mut self, schema: &'a Value, value: &mut Value) -> bool {
        if self.depth == MAX_DEPTH || !self.pay(2) {
            return false;
        }
        let Value::Object(keywords) = schema else { return false };
        self.depth += 1;
        let mut changed = keywords.get("type").is_some_and(|kind| self.convert(kind, value));
        changed |= match value {
            Value::Array(items) if self.pay(items.len()) => {
                let mut changed = false;
                for (index, item) in items.iter_mut().enumerate() {
                    changed |= item_schema(keywords, index).is_some_and(|schema| self.coerce(schema, item));
                }
                changed
            }
            Value::Object(members) => self.members(keywords, members),
            _ => false,
        };
        if let Some(reference) = keywords.get("$ref").and_then(Value::as_str)
            && self.pay(1 + reference.len() / 2)
            && let Some(target) = resolve(self.root, reference)
        {
            changed |= self.coerce(target, value);
        }
        for schema in list(keywords, "allOf") {
            changed |= self.coerce(schema, value);
        }
        changed |= self.alternatives(list(keywords, "anyOf"), false, value);
        changed |= self.alternatives(list(keywords, "oneOf"), true, value);
        self.depth -= 1;
        changed
    }

    fn members(&mut self, keywords: &'a Map<String, Value>, members: &mut Map<String, Value>) -> bool {
        let before = members.len();
        if !self.pay(members.keys().map(|name| 1 + name.len() / WRITE_BYTES).sum()) {
            return false;
        }
        let required = list(keywords, "required");
        members.retain(|name, member| {
            let unfit = |schema: &'a Value, coercer: &mut Self| {
                !coercer.fits(schema, &Value::Null)
                    && coercer.pay(required.len())
                    && !required.iter().any(|required| required == name)
            };
            !(member.is_null() && member_schema(keywords, name).is_some_and(|schema| unfit(schema, self)))
        });
        let mut changed = members.len() < before;
        for (name, member) in members.iter_mut() {
            changed |= member_schema(keywords, name).is_some_and(|schema| self.coerce(schema, member));
        }
        changed
    }

    /// Applies the first alternative that the value matches or can be converted to.
    fn alternatives(&mut self, alternatives: &'a [Value], only_one: bool, value: &mut Value) -> bool {
        if let Some(fitting) = alternatives.iter().find(|schema| self.fits(schema, value)) {
            return self.coerce(fitting, value);
        }
        for schema in alternatives {
            if !self.pay(TRY_WORK + weight(value)) {
                return false;
            }
            let mut coerced = value.clone();
            if self.coerce(schema, &mut coerced)
                && self.fits(schema, &coerced)
                && (!only_one || alternatives.iter().filter(|other| self.fits(other, &coerced)).count() == 1)
            {
                *value = coerced;
                return true;
            }
        }
        false
    }

    /// Converts a value that has none of the wanted types to the first type it can be converted to.
    fn convert(&mut self, kind: &Value, value: &mut Value) -> bool {
        if !self.pay(kind.as_array().map_or(1, Vec::len)) {
            return false;
        }
        let wanted = types(kind);
        // Each wanted type parses the text again and compares it character by character.
        let text = value.as_str().map_or(0, |text| text.len() / 4);
        let conforms = wanted.iter().any(|kind| is_a(value, kind));
        (conforms || self.pay(text.saturating_mul(wanted.len()))) && convert(&wanted, value)
    }
}

fn convert(wanted: &[&str], value: &mut Value) -> bool {
    if wanted.iter().any(|kind| is_a(value, kind)) {
        // 5.0 as an integer: deserializers of integer types reject the notation.
        let whole = match value {
            Value::Number(number) if number.is_f64() && !wanted.contains(&"number") => written_out(number),
            _ => None,
        };
        return whole.map(|whole| *value = Value::Number(whole)).is_some();
    }
    let other = wanted.iter().find_map(|kind| converted(kind, value));
    let is_single = matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_));
    let single = || (is_single && wanted.contains(&"array")).then(|| Value::Array(vec![value.clone()]));
    match other.or_else(single) {
        Some(other) => {
            *value = other;
            true
        }
        None => false,
    }
}

fn converted(kind: &str, value: &Value) -> Option<Value> {
    let text = match value {
        Value::String(text) => text,
        Value::Bool(_) if kind == "string" => return Some(Value::String(value.to_string())),
        // Fractions, exponents and long numbers may have lost their original notation.
        Value::Number(number) if kind == "string" && !number.is_f64() => {
            return Some(Value::String(number.to_string()));
        }
        _ => return None,
    };
    if !matches!(kind, "integer" | "number" | "boolean" | "object" | "array") {
        return None;
    }
    let value: Value = serde_json::from_str(text).ok()?;
    let written = value.to_string();
    let is_lossless = match &value {
        Value::Number(number) => written == *text && (kind == "number" || !number.is_f64()),
        Value::Bool(_) => written == *text,
        _ => is_same_text(text, &written),
    };
    (is_lossless && is_a(&value, kind)).then_some(value)
}

/// Returns whether two JSON texts consist of the same characters, ignoring whitespace and order. If they do
/// not, parsing one of them lost something, such as a duplicate name or digits of a long number.
fn is_same_text(a: &str, b: &str) -> bool {
    let characters = |text: &str| {
        let mut characters: Vec<char> = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        characters.sort_unstable();
        characters
    };
    characters(a) == characters(b)
}

/// Returns a number with an integral value as an integer.
fn written_out(number: &Number) -> Option<Number> {
    // Above 2^53 a float represents several integers.
    let integer = i64::try_from(integer(number)?).ok().filter(|integer| integer.abs() < 1 << 53)?;
    Some(Number::from(integer))
}
