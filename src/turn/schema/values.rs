//! Numbers and values as JSON Schema compares them: 1 and 1.0 are the same.

use serde_json::{Number, Value};
use std::{cmp::Ordering, fmt::Write};

/// A number of things; `2.0` counts as 2.
pub(super) fn count(value: &Value) -> Option<u64> {
    let number = value.as_number()?;
    u64::try_from(integer(number)?).ok()
}

pub(super) fn is_whole(number: &Number) -> bool {
    number.as_f64().is_some_and(|float| float.is_finite() && float.fract() == 0.0)
}

/// A whole number, however it is written, as far as it is exact.
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
            // 0.3 is three times 0.1 to whoever wrote it, though not to a binary float.
            let times = number / step;
            (times - times.round()).abs() <= times.abs().max(1.0) * f64::EPSILON * 4.0
        }
    }
}

/// Whether two values are the same to JSON Schema: 1 and 1.0 are.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare(a, b) == Some(Ordering::Equal),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            let matches = |(name, a)| b.get(name).is_some_and(|b| same(a, b));
            a.len() == b.len() && a.iter().all(matches)
        }
        (a, b) => a == b,
    }
}

/// A text that is the same for values that are the [`same`].
pub(super) fn canonical(value: &Value) -> String {
    fn write(value: &Value, out: &mut String) {
        match value {
            Value::Number(number) => {
                let _ = match integer(number) {
                    Some(integer) => write!(out, "{integer}"),
                    None => write!(out, "{number}"),
                };
            }
            Value::Array(items) => {
                out.push('[');
                items.iter().for_each(|item| {
                    write(item, out);
                    out.push(',');
                });
                out.push(']');
            }
            Value::Object(members) => {
                out.push('{');
                let mut members: Vec<_> = members.iter().collect();
                members.sort_by_key(|(name, _)| *name);
                for (name, member) in members {
                    let _ = write!(out, "{name:?}:");
                    write(member, out);
                    out.push(',');
                }
                out.push('}');
            }
            other => {
                let _ = write!(out, "{other}");
            }
        }
    }
    let mut out = String::new();
    write(value, &mut out);
    out
}
