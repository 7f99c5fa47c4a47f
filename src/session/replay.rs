//! What a reader missed: stored records behind its cursor, and the text it has not seen.
//!
//! Every byte of a message's text is delivered as a delta once, before the record that completes
//! it, whether the reader was there or comes back later: a client may render from deltas alone.

use super::{Session, decode, frame::Frame, hub::text_after};
use crate::ports::{StoreError, session_store::Select};
use crate::types::{Cursor, EventKind, Record};

/// Records read from the store at once.
pub const PAGE: usize = 256;

impl Session {
    /// Where a reader really stands who says it stands at `cursor`: a place that does not exist
    /// counts as the start.
    ///
    /// # Errors
    /// When the store breaks.
    pub fn place(&self, cursor: Cursor) -> Result<Cursor, StoreError> {
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
        let select = Select { after: seq.saturating_sub(1), limit: 1, ..Select::default() };
        let stored = self.records(select)?.pop().filter(|record| record.seq == seq);
        Ok(stored.is_some_and(|record| match record.kind {
            EventKind::MessageCompleted { message } => message.text().is_char_boundary(offset),
            // Text that was void before it was complete: another record has its number.
            _ => true,
        }))
    }

    /// The next page of frames behind `cursor`, and the cursor behind the page; `None` for the
    /// latter when the log ends here. With `deltas`, text comes as deltas too.
    ///
    /// # Errors
    /// When the store breaks.
    pub fn replay(
        &self,
        cursor: Cursor,
        turn: Option<&str>,
        deltas: bool,
        limit: usize,
    ) -> Result<(Vec<Frame>, Option<Cursor>), StoreError> {
        // Inside a message's text the record that holds it is still to come.
        let after = if cursor.offset.is_some() { cursor.seq.saturating_sub(1) } else { cursor.seq };
        let stored = self.store().read(Select { after, turn, limit, ..Select::default() })?;
        let next =
            (stored.len() == limit).then(|| stored.last().map(|last| Cursor::after(last.seq))).flatten();
        let mut frames = Vec::with_capacity(stored.len());
        for record in &stored {
            if deltas && record.kind == "message.completed" {
                let seen = if record.seq == cursor.seq { cursor.offset.unwrap_or(0) } else { 0 };
                let parsed: Record = decode(&record.json)?;
                if let EventKind::MessageCompleted { message } = &parsed.kind {
                    let turn = record.turn.as_deref().unwrap_or_default();
                    frames.extend(text_after(record.seq, &message.id, turn, &message.text(), seen));
                }
            }
            frames.push(Frame::record(record));
        }
        Ok((frames, next))
    }
}
