//! The reply of a turn is stored once, in the record of its message. The record of the turn's end refers to that
//! message, and readers get the reply from there.

use super::{decode_record, encode};
use crate::ports::{
    SessionStore, StoreError,
    session_store::{Records, Select, StoredRecord},
};
use crate::types::{EventKind, Record};

/// Returns a record in the form to store. `encoded` is the form that clients read.
///
/// # Errors
/// If it cannot be written as JSON.
pub(crate) fn stored(record: &Record, encoded: StoredRecord) -> Result<StoredRecord, StoreError> {
    let Some(end) = record.kind.turn_end().and_then(|end| end.stored()) else { return Ok(encoded) };
    let mut kind = record.kind.clone();
    if let Some(whole) = kind.turn_end_mut() {
        *whole = end;
    }
    let json = encode(&Record { kind, ..record.clone() })?;
    Ok(StoredRecord { json, ..encoded })
}

/// Gives the end of a turn its reply.
///
/// # Errors
/// If the store fails, or a message cannot be parsed.
pub(super) fn resolve(store: &dyn SessionStore, record: &mut Record) -> Result<(), StoreError> {
    let (seq, turn) = (record.seq, record.turn.clone());
    let Some(end) = record.kind.turn_end_mut() else { return Ok(()) };
    let Some(reply) = &end.reply_ref else { return Ok(()) };
    let select = Select {
        before: Some(seq),
        turn: turn.as_ref(),
        kinds: &["message.completed"],
        newest_first: true,
        // It is nearly always the newest message of its turn.
        limit: 1,
        ..Select::default()
    };
    for stored in Records::new(store, select) {
        match decode_record(&stored?.json)?.kind {
            EventKind::MessageCompleted { message } if message.id == reply.message => {
                end.resolve(&message);
                return Ok(());
            }
            _ => {}
        }
    }
    end.reply_ref = None;
    Ok(())
}

/// Returns a stored record in the form that clients read.
///
/// # Errors
/// As for [`resolve`].
pub(super) fn whole(store: &dyn SessionStore, stored: StoredRecord) -> Result<StoredRecord, StoreError> {
    if !ENDS.contains(&stored.kind.as_str()) {
        return Ok(stored);
    }
    let mut record = decode_record(&stored.json)?;
    resolve(store, &mut record)?;
    Ok(StoredRecord { json: encode(&record)?, ..stored })
}

/// The types of the records that end turns.
pub(super) const ENDS: &[&str] = &["turn.completed", "turn.failed", "turn.canceled"];
