//! Records and documents as JSON.

use crate::ports::{StoreError, session_store::StoredRecord};
use crate::types::{EventKind, Record, json};
use serde::de::DeserializeOwned;
use std::rc::Rc;

/// Copies the record's sequence number into its message.
pub(crate) fn numbered(mut record: Record) -> Record {
    if let EventKind::TurnStarted { message } | EventKind::MessageCompleted { message } = &mut record.kind {
        Rc::make_mut(message).seq = record.seq;
    }
    record
}

/// Returns a record in the form that clients read.
///
/// # Errors
/// If it cannot be written as JSON.
pub(crate) fn encoded(record: &Record) -> Result<StoredRecord, StoreError> {
    let (kind, turn) = (record.kind.name().to_owned(), record.turn.clone());
    Ok(StoredRecord { seq: record.seq, kind, turn, json: encode(record)? })
}

/// Serializes a document.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn encode(value: &impl serde::Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|e| StoreError(format!("cannot write JSON: {e}")))
}

/// Parses a document.
///
/// # Errors
/// If it cannot be parsed.
pub fn decode<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    json::from_str(text).map_err(unreadable)
}

/// Parses a record directly from the text. [`decode`] would first build a value, from which a record would build another
/// one, and a session reads thousands of records.
///
/// # Errors
/// If it cannot be parsed.
pub fn decode_record(text: &str) -> Result<Record, StoreError> {
    serde_json::from_str(text).map_err(unreadable)
}

/// Parses some fields of a document or record. The others may have any form.
pub(super) fn decode_part<T: DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(unreadable)
}

fn unreadable(error: impl std::fmt::Display) -> StoreError {
    StoreError(format!("cannot read stored JSON: {error}"))
}
