//! The cost of examining values. One unit is about a tenth of a microsecond.

use serde_json::Value;

/// Bytes that are read or compared per unit.
pub(super) const READ_BYTES: usize = 64;
/// Bytes that are written or looked up per unit.
pub(super) const WRITE_BYTES: usize = 8;

/// Subtracts from the remaining work. When too little is left, returns `None` and leaves none.
pub(super) fn spend(left: &mut usize, work: usize) -> Option<()> {
    let rest = left.checked_sub(work);
    *left = rest.unwrap_or(0);
    rest.map(drop)
}

/// Returns the cost of copying `value`.
pub(super) fn weight(value: &Value) -> usize {
    1 + match value {
        Value::String(text) => text.len() / READ_BYTES,
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| 1 + name.len() / READ_BYTES + weight(member)).sum()
        }
        _ => 0,
    }
}
