//! Server-sent events whose data is JSON.

use serde::Serialize;
use std::fmt::Display;

/// Appends an event that has only data.
pub fn write(data: &impl Serialize, out: &mut Vec<u8>) {
    out.extend_from_slice(b"data: ");
    // Writing to memory cannot fail, and the data has only text as keys.
    let _ = serde_json::to_writer(&mut *out, data);
    out.extend_from_slice(b"\n\n");
}

/// Appends the id of the event that follows.
pub fn write_id(id: &impl Display, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("id: {id}\n").as_bytes());
}

/// Appends an event with a name.
pub fn write_named(name: &str, data: &impl Serialize, out: &mut Vec<u8>) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(name.as_bytes());
    out.push(b'\n');
    write(data, out);
}
