//! Compares numbers and values as JSON Schema does: 1 and 1.0 are equal.

use super::work::{READ_BYTES, WRITE_BYTES, spend};
use serde_json::{Number, Value};
use std::{cmp::Ordering, fmt::Write};

/// Returns a count; `2.0` counts as 2.
pub(super) fn count(value: &Value) -> Option<u64> {
    let number = value.as_number()?;
    u64::try_from(integer(number)?).ok()
}

pub(super) fn is_whole(number: &Number) -> bool {
    number.as_f64().is_some_and(|float| float.is_finite() && float.fract() == 0.0)
}

/// Returns the exact integer value of a number, regardless of its notation.
pub(super) fn integer(number: &Number) -> Option<i128> {
    let exact = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    #[allow(clippy::cast_possible_truncation, reason = "whole, and within 2^64")]
    exact.or_else(|| {
        let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 2f64.powi(64))?;
        Some(float as i128)
    })
}

pub(super) fn compare(a: &Number, b: &Number) -> Option<Ordering> {
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

pub(super) fn is_multiple(number: &Number, step: &Number) -> bool {
    match (integer(number), integer(step)) {
        (Some(number), Some(step)) => number.checked_rem(step) == Some(0),
        _ => {
            let (Some(number), Some(step)) = (number.as_f64(), step.as_f64()) else { return false };
            // Tolerates rounding: 0.3 is a multiple of 0.1, although not in binary floating point.
            let times = number / step;
            (times - times.round()).abs() <= times.abs().max(1.0) * f64::EPSILON * 4.0
        }
    }
}

/// Returns whether two values are equal according to JSON Schema. Returns `None` when the work limit is
/// exceeded.
pub(super) fn same(a: &Value, b: &Value, left: &mut usize) -> Option<bool> {
    spend(left, 1)?;
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Some(compare(a, b) == Some(Ordering::Equal)),
        (Value::String(a), Value::String(b)) if a.len() == b.len() => {
            spend(left, a.len() / READ_BYTES)?;
            Some(a == b)
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (a, b) in a.iter().zip(b) {
                if !same(a, b, left)? {
                    return Some(false);
                }
            }
            Some(true)
        }
        (Value::Object(a), Value::Object(b)) if a.len() == b.len() => {
            for (name, a) in a {
                spend(left, 1 + name.len() / WRITE_BYTES)?;
                let Some(b) = b.get(name) else { return Some(false) };
                if !same(a, b, left)? {
                    return Some(false);
                }
            }
            Some(true)
        }
        (Value::Null, Value::Null) => Some(true),
        (Value::Bool(a), Value::Bool(b)) => Some(a == b),
        _ => Some(false),
    }
}

/// Returns JSON that is identical for values that are [`same`]: sorted members, no whitespace, one notation
/// per number. Returns `None` when the work limit is exceeded.
pub(super) fn canonical(value: &Value, left: &mut usize) -> Option<String> {
    fn write(value: &Value, out: &mut String, left: &mut usize) -> Option<()> {
        spend(left, 2)?;
        match value {
            Value::Number(number) => {
                let _ = match integer(number) {
                    Some(integer) => write!(out, "{integer}"),
                    None => write!(out, "{number}"),
                };
            }
            Value::Array(items) => {
                out.push('[');
                for (place, item) in items.iter().enumerate() {
                    out.push_str(if place > 0 { "," } else { "" });
                    write(item, out, left)?;
                }
                out.push(']');
            }
            Value::Object(members) => {
                out.push('{');
                let mut members: Vec<_> = members.iter().collect();
                members.sort_by_key(|(name, _)| *name);
                for (place, (name, member)) in members.into_iter().enumerate() {
                    spend(left, 1 + name.len() / WRITE_BYTES)?;
                    let _ =
                        write!(out, "{}{}:", if place > 0 { "," } else { "" }, Value::from(name.as_str()));
                    write(member, out, left)?;
                }
                out.push('}');
            }
            other => {
                spend(left, other.as_str().map_or(0, str::len) / WRITE_BYTES)?;
                let _ = write!(out, "{other}");
            }
        }
        Some(())
    }
    let mut out = String::new();
    write(value, &mut out, left)?;
    Some(out)
}
