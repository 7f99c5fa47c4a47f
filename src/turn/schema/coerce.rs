//! Bringing a value into its schema's types, where nothing is lost by it.

use super::{
    Checker, MAX_DEPTH, MAX_WORK, integer, is_a, item_schema, list, member_schema, resolve, types,
    work::{WRITE, spend, weight},
};
use crate::types::json;
use serde_json::{Map, Number, Value};

/// What trying an alternative costs beside the check itself.
const TRY: usize = 100;

/// Brings `value` into the types of `schema`: all of it, or nothing when it would not fit even then.
/// Says whether it changed.
///
/// `"5"` becomes 5 and `"true"` true, where the text is exactly how JSON writes them; 5.0 becomes 5;
/// a whole number or a boolean becomes text (not 1.10: as a number it has lost how it was written); text that holds an object or an array becomes that; a single
/// value becomes a list of one; a member that is null and need not be there goes. What fits already
/// stays as it is, but for 5.0 as an integer, which is the same number written in another way.
pub fn coerce(schema: &Value, value: &mut Value) -> bool {
    let mut mender = Mender { root: schema, left: MAX_WORK, depth: 0 };
    let mut mended = value.clone();
    let changed =
        mender.mend(schema, &mut mended) && mender.fits(schema, &mended) && !json::too_deep(&mended);
    if changed {
        *value = mended;
    }
    changed
}

/// Changes a copy; whether the result is any good is seen in the end.
struct Mender<'a> {
    /// What `$ref` points into.
    root: &'a Value,
    /// Work that is left.
    left: usize,
    depth: u32,
}

impl<'a> Mender<'a> {
    fn pay(&mut self, work: usize) -> bool {
        spend(&mut self.left, work).is_some()
    }

    fn fits(&mut self, schema: &'a Value, value: &Value) -> bool {
        Checker::run(self.root, schema, value, &mut self.left).is_empty()
    }

    fn mend(&mut self, schema: &'a Value, value: &mut Value) -> bool {
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
                    changed |= item_schema(keywords, index).is_some_and(|schema| self.mend(schema, item));
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
            changed |= self.mend(target, value);
        }
        for schema in list(keywords, "allOf") {
            changed |= self.mend(schema, value);
        }
        changed |= self.alternatives(list(keywords, "anyOf"), false, value);
        changed |= self.alternatives(list(keywords, "oneOf"), true, value);
        self.depth -= 1;
        changed
    }

    fn members(&mut self, keywords: &'a Map<String, Value>, members: &mut Map<String, Value>) -> bool {
        let before = members.len();
        if !self.pay(members.keys().map(|name| 1 + name.len() / WRITE).sum()) {
            return false;
        }
        let required = list(keywords, "required");
        members.retain(|name, member| {
            let unfit = |schema: &'a Value, mender: &mut Self| {
                !mender.fits(schema, &Value::Null)
                    && mender.pay(required.len())
                    && !required.iter().any(|required| required == name)
            };
            !(member.is_null() && member_schema(keywords, name).is_some_and(|schema| unfit(schema, self)))
        });
        let mut changed = members.len() < before;
        for (name, member) in members.iter_mut() {
            changed |= member_schema(keywords, name).is_some_and(|schema| self.mend(schema, member));
        }
        changed
    }

    /// Takes the first alternative that the value fits, or that it can be made to fit.
    fn alternatives(&mut self, alternatives: &'a [Value], only_one: bool, value: &mut Value) -> bool {
        if let Some(fitting) = alternatives.iter().find(|schema| self.fits(schema, value)) {
            return self.mend(fitting, value);
        }
        for schema in alternatives {
            if !self.pay(TRY + weight(value)) {
                return false;
            }
            let mut mended = value.clone();
            if self.mend(schema, &mut mended)
                && self.fits(schema, &mended)
                && (!only_one || alternatives.iter().filter(|other| self.fits(other, &mended)).count() == 1)
            {
                *value = mended;
                return true;
            }
        }
        false
    }

    /// Converts a value that is of none of the wanted types into the first that it can be.
    fn convert(&mut self, kind: &Value, value: &mut Value) -> bool {
        if !self.pay(kind.as_array().map_or(1, Vec::len)) {
            return false;
        }
        let wanted = types(kind);
        // Each type that is wanted reads a text anew, and compares it character by character.
        let text = value.as_str().map_or(0, |text| text.len() / 4);
        let is_fine = wanted.iter().any(|kind| is_a(value, kind));
        (is_fine || self.pay(text.saturating_mul(wanted.len()))) && convert(&wanted, value)
    }
}

fn convert(wanted: &[&str], value: &mut Value) -> bool {
    if wanted.iter().any(|kind| is_a(value, kind)) {
        // 5.0 as an integer: those who read integers do not read it.
        let whole = match value {
            Value::Number(number) if number.is_f64() && !wanted.contains(&"number") => written_out(number),
            _ => None,
        };
        return whole.map(|whole| *value = Value::Number(whole)).is_some();
    }
    let other = wanted.iter().find_map(|kind| converted(kind, value));
    let is_single = matches!(value, Value::Bool(_) | Value::Number(_) | Value::String(_));
    let one = || (is_single && wanted.contains(&"array")).then(|| Value::Array(vec![value.clone()]));
    match other.or_else(one) {
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
        // A fraction, an exponent and the digits of a long number are not what they were.
        Value::Number(number) if kind == "string" && !number.is_f64() => {
            return Some(Value::String(number.to_string()));
        }
        _ => return None,
    };
    if !matches!(kind, "integer" | "number" | "boolean" | "object" | "array") {
        return None;
    }
    let value = json::parse(text.as_bytes()).ok()?;
    let written = value.to_string();
    let is_lossless = match &value {
        Value::Number(number) => written == *text && (kind == "number" || !number.is_f64()),
        Value::Bool(_) => written == *text,
        _ => is_same_text(text, &written),
    };
    (is_lossless && is_a(&value, kind)).then_some(value)
}

/// Whether two JSON texts consist of the same characters, but for blanks and order. If not, reading
/// one has lost something, such as a name that stood there twice or the end of a long number.
fn is_same_text(a: &str, b: &str) -> bool {
    let characters = |text: &str| {
        let mut characters: Vec<char> = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        characters.sort_unstable();
        characters
    };
    characters(a) == characters(b)
}

/// A whole number without its fraction.
fn written_out(number: &Number) -> Option<Number> {
    // Beyond 2^53 a float stands for more than one integer.
    let integer = i64::try_from(integer(number)?).ok().filter(|integer| integer.abs() < 1 << 53)?;
    Some(Number::from(integer))
}
