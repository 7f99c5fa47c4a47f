//! What looking at values costs. A unit is about a tenth of a microsecond.

use serde_json::Value;

/// Bytes that are read, or compared, for a unit.
pub(super) const READ: usize = 64;
/// Bytes that are written, or looked up, for a unit.
pub(super) const WRITE: usize = 8;

/// Takes from the work that is left; `None`, and none left, when it is not enough.
pub(super) fn spend(left: &mut usize, work: usize) -> Option<()> {
    let rest = left.checked_sub(work);
    *left = rest.unwrap_or(0);
    rest.map(drop)
}

/// What a copy of `value` costs.
pub(super) fn weight(value: &Value) -> usize {
    1 + match value {
        Value::String(text) => text.len() / READ,
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| 1 + name.len() / READ + weight(member)).sum()
        }
        _ => 0,
    }
}
