//! Server-sent events that have only data.

use serde_json::Value;

/// Appends an event.
pub(super) fn write(data: &Value, out: &mut Vec<u8>) {
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(data.to_string().as_bytes());
    out.extend_from_slice(b"\n\n");
}
