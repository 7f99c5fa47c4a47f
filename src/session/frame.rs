//! An event encoded once for all listeners.

use super::decode_record;
use crate::ports::{StoreError, session_store::StoredRecord};
use crate::types::{Cursor, Delta, EventKind, Record, TurnId};
use bytes::Bytes;
use serde::Serialize;
use std::{cell::OnceCell, rc::Rc};

/// An event as it is sent.
pub struct Frame {
    /// The position after this event; `None` for deltas that cannot be resumed.
    pub cursor: Option<Cursor>,
    /// The event's `type`.
    pub event: String,
    /// The turn of the event.
    pub turn: Option<TurnId>,
    content: Content,
    json: OnceCell<String>,
    sse: OnceCell<Bytes>,
}

enum Content {
    Delta(Delta),
    /// A record that was just committed.
    Record(Rc<Record>),
    /// A record that was read from the log. It is decoded for each reader, so that a replay holds little.
    Stored,
}

/// An event for a protocol that writes events in its own format.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A record of the log.
    Record(&'a Record),
    /// A piece of a message that is being streamed.
    Delta(&'a Delta),
}

impl Event<'_> {
    /// Returns whether the turn waits for a person or client from here on.
    pub fn is_wait(&self) -> bool {
        matches!(self, Self::Record(record) if matches!(record.kind, EventKind::TurnWaiting { .. }))
    }
}

#[derive(Serialize)]
struct DeltaData<'a> {
    #[serde(flatten)]
    delta: &'a Delta,
    turn: Option<&'a TurnId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

impl Frame {
    /// Creates the frame of a stored record.
    pub fn stored(stored: StoredRecord) -> Self {
        Self {
            cursor: Some(Cursor::after(stored.seq)),
            event: stored.kind,
            turn: stored.turn,
            content: Content::Stored,
            json: stored.json.into(),
            sse: OnceCell::new(),
        }
    }

    /// Creates the frame of a record, of which `encoded` is the form that clients read.
    pub fn record(record: Rc<Record>, encoded: StoredRecord) -> Self {
        Self { content: Content::Record(record), ..Self::stored(encoded) }
    }

    /// Creates the frame of a delta. Text has a `cursor`: the position after it.
    pub fn delta(delta: Delta, turn: &TurnId, cursor: Option<Cursor>) -> Self {
        Self {
            cursor,
            event: delta.name().to_owned(),
            turn: Some(turn.to_owned()),
            content: Content::Delta(delta),
            json: OnceCell::new(),
            sse: OnceCell::new(),
        }
    }

    /// Passes the event to `read`.
    ///
    /// # Errors
    /// If the record is malformed.
    pub fn read<T>(&self, read: impl FnOnce(Event<'_>) -> T) -> Result<T, StoreError> {
        Ok(match &self.content {
            Content::Delta(delta) => read(Event::Delta(delta)),
            Content::Record(record) => read(Event::Record(record)),
            Content::Stored => read(Event::Record(&decode_record(self.json())?)),
        })
    }

    /// Returns the event as JSON.
    pub fn json(&self) -> &str {
        // The JSON of a record is set.
        self.json.get_or_init(|| {
            let turn = self.turn.as_ref();
            let Content::Delta(delta) = &self.content else { return String::new() };
            let data = DeltaData { delta, turn, cursor: self.cursor.map(|cursor| cursor.to_string()) };
            // Serializing a struct of strings cannot fail.
            serde_json::to_string(&data).unwrap_or_default()
        })
    }

    /// Returns the event in `text/event-stream` format, with LF line ends.
    pub fn sse(&self) -> Bytes {
        self.sse
            .get_or_init(|| {
                let data = self.json();
                let mut out = String::with_capacity(data.len() + self.event.len() + 40);
                if let Some(cursor) = self.cursor {
                    out.push_str("id: ");
                    out.push_str(&cursor.to_string());
                    out.push('\n');
                }
                out.push_str("event: ");
                out.push_str(&self.event);
                out.push_str("\ndata: ");
                out.push_str(data);
                out.push_str("\n\n");
                Bytes::from(out)
            })
            .clone()
    }

    /// Returns the event as a line of NDJSON.
    pub fn ndjson(&self) -> Bytes {
        Bytes::from(format!("{}\n", self.json()))
    }

    /// Returns whether this event ends or suspends its turn.
    pub fn ends_turn(&self) -> bool {
        matches!(self.event.as_str(), "turn.completed" | "turn.failed" | "turn.canceled" | "turn.waiting")
    }
}
