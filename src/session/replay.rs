//! Replay: the records that a reader has missed, and the text that it has not received.
//!
//! Every byte of a message's text is delivered exactly once as a delta, before the record that completes the
//! message, whether the reader is connected or reconnects later. A client may render from deltas alone.

use super::{Session, decode_record, frame::Frame, hub::texts_after, reply};
use crate::ports::{
    StoreError,
    session_store::{Page, Select},
};
use crate::types::{Cursor, EventKind, TurnId};

impl Session {
    /// Validates a reader's cursor: a position that does not exist becomes the start of the log.
    ///
    /// # Errors
    /// If the store fails.
    pub fn resolve_cursor(&self, cursor: Cursor) -> Result<Cursor, StoreError> {
        let exists = match cursor.offset {
            None => cursor.seq <= self.last_seq(),
            Some(offset) => self.is_inside_text(cursor.seq, offset)?,
        };
        Ok(if exists { cursor } else { Cursor::default() })
    }

    fn is_inside_text(&self, seq: u64, offset: u64) -> Result<bool, StoreError> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        if let Some(fits) = self.hub().streamed_fits(seq, offset) {
            return Ok(fits);
        }
        let select = Select { after: seq.saturating_sub(1), ..Select::default() };
        let stored = self.first(select)?.filter(|record| record.seq == seq);
        Ok(stored.is_some_and(|record| match record.kind {
            EventKind::MessageCompleted { message } => message.text().is_char_boundary(offset),
            // The streamed text was voided, and another record has its sequence number.
            _ => true,
        }))
    }

    /// Returns the frames of the next page of at most `limit` records after `cursor`, and the cursor after the
    /// page; the latter is `None` at the end of the log. With `deltas`, text is also sent as deltas.
    ///
    /// # Errors
    /// If the store fails.
    pub fn replay(
        &self,
        cursor: Cursor,
        turn: Option<&TurnId>,
        deltas: bool,
        limit: usize,
    ) -> Result<(Vec<Frame>, Option<Cursor>), StoreError> {
        // For a cursor inside a message's text, the record of the message is still to be sent.
        let after = if cursor.offset.is_some() { cursor.seq.saturating_sub(1) } else { cursor.seq };
        let Page { records, more } = self.store().read(Select { after, turn, limit, ..Select::default() })?;
        let next = records.last().filter(|_| more).map(|last| Cursor::after(last.seq));
        let mut frames = Vec::with_capacity(records.len());
        for record in records {
            if deltas && record.kind == "message.completed" {
                let seen = if record.seq == cursor.seq { cursor.offset.unwrap_or(0) } else { 0 };
                let parsed = decode_record(&record.json)?;
                if let EventKind::MessageCompleted { message } = &parsed.kind {
                    let turn = record.turn.clone().unwrap_or_else(TurnId::none);
                    frames.extend(texts_after(record.seq, &message.id, &turn, &message.text(), seen));
                }
            }
            frames.push(Frame::stored(reply::whole(self.store(), record)?));
        }
        Ok((frames, next))
    }
}
