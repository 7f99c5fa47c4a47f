//! An event encoded once for all listeners.

use crate::ports::session_store::StoredRecord;
use crate::types::{Cursor, Delta, TurnId};
use bytes::Bytes;
use serde::Serialize;
use std::cell::OnceCell;

/// An event as it is sent.
pub struct Frame {
    /// The position after this event; `None` for deltas that cannot be resumed.
    pub cursor: Option<Cursor>,
    /// The event's `type`.
    pub event: String,
    /// The turn of the event.
    pub turn: Option<TurnId>,
    /// The event as JSON.
    pub data: String,
    sse: OnceCell<Bytes>,
}

#[derive(Serialize)]
struct DeltaData<'a> {
    #[serde(flatten)]
    delta: &'a Delta,
    turn: &'a TurnId,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

impl Frame {
    /// Encodes a stored record.
    pub fn record(stored: StoredRecord) -> Self {
        Self {
            cursor: Some(Cursor::after(stored.seq)),
            event: stored.kind,
            turn: stored.turn,
            data: stored.json,
            sse: OnceCell::new(),
        }
    }

    /// Encodes a delta. Text has a `cursor`: the position after it.
    pub fn delta(delta: &Delta, turn: &TurnId, cursor: Option<Cursor>) -> Self {
        let data = DeltaData { delta, turn, cursor: cursor.map(|c| c.to_string()) };
        Self {
            cursor,
            event: delta.name().to_owned(),
            turn: Some(turn.to_owned()),
            // Serializing a struct of strings cannot fail.
            data: serde_json::to_string(&data).unwrap_or_default(),
            sse: OnceCell::new(),
        }
    }

    /// Returns the event in `text/event-stream` format, with LF line ends.
    pub fn sse(&self) -> Bytes {
        self.sse
            .get_or_init(|| {
                let mut out = String::with_capacity(self.data.len() + self.event.len() + 40);
                if let Some(cursor) = self.cursor {
                    out.push_str("id: ");
                    out.push_str(&cursor.to_string());
                    out.push('\n');
                }
                out.push_str("event: ");
                out.push_str(&self.event);
                out.push_str("\ndata: ");
                out.push_str(&self.data);
                out.push_str("\n\n");
                Bytes::from(out)
            })
            .clone()
    }

    /// Returns the event as a line of NDJSON.
    pub fn ndjson(&self) -> Bytes {
        Bytes::from(format!("{}\n", self.data))
    }

    /// Returns whether this event ends or suspends its turn.
    pub fn ends_turn(&self) -> bool {
        matches!(self.event.as_str(), "turn.completed" | "turn.failed" | "turn.canceled" | "turn.waiting")
    }
}
