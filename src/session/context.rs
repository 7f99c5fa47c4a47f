//! The context window: the newest part of the conversation, kept in memory between turns.

use super::{decode, fold};
use crate::ports::{SessionStore, StoreError, session_store::Select};
use crate::types::{EventKind, Message, Record, Role};
use std::rc::Rc;

/// Most bytes of text that the window holds before its older part is dropped from it.
const MAX_WEIGHT: usize = 400_000;

/// The newest messages, starting with a user's. When it grows past its bound it shrinks to three
/// quarters at once, so that the start of the prompt stays the same for many turns and provider
/// caches keep hitting. What drops out stays in the log.
pub struct ContextWindow {
    messages: Vec<Rc<Message>>,
    max_messages: usize,
}

impl ContextWindow {
    /// An empty window.
    pub fn new(max_messages: usize) -> Self {
        Self { messages: Vec::new(), max_messages: max_messages.max(4) }
    }

    /// Reads the window of a stored session: a bounded number of records, however long the log.
    ///
    /// # Errors
    /// When the store breaks or holds what cannot be read.
    pub fn load(store: &dyn SessionStore, max_messages: usize) -> Result<Self, StoreError> {
        let mut window = Self::new(max_messages);
        let select = Select {
            kinds: fold::MESSAGE_KINDS,
            newest_first: true,
            limit: window.max_messages * 2,
            ..Select::default()
        };
        let mut records = Vec::new();
        for stored in store.read(select)? {
            records.push(decode::<Record>(&stored.json)?);
        }
        let complete = records.len() < select.limit;
        records.reverse();
        if !complete {
            // The cut may lie inside a turn: start where one starts.
            match records.iter().position(|r| matches!(r.kind, EventKind::TurnStarted { .. })) {
                Some(start) => drop(records.drain(..start)),
                None => records = newest_turn(store)?,
            }
        }
        for record in &records {
            fold::fold(&mut window.messages, record);
        }
        window.trim();
        Ok(window)
    }

    /// Adds what a new record says.
    pub fn push(&mut self, record: &Record) {
        // Only a turn's start may move the window: inside a turn calls and results stay together.
        if fold::fold(&mut self.messages, record) && matches!(record.kind, EventKind::TurnStarted { .. }) {
            self.trim();
        }
    }

    /// The messages, oldest first.
    pub fn messages(&self) -> Vec<Rc<Message>> {
        self.messages.clone()
    }

    fn trim(&mut self) {
        let weight: usize = self.messages.iter().map(|m| m.weight()).sum();
        if self.messages.len() <= self.max_messages && weight <= MAX_WEIGHT {
            return;
        }
        let (most, heaviest) = (self.max_messages * 3 / 4, MAX_WEIGHT * 3 / 4);
        let (mut kept, mut weight, mut start) = (0, 0, None);
        for (index, message) in self.messages.iter().enumerate().rev() {
            kept += 1;
            weight += message.weight();
            if start.is_some() && (kept > most || weight > heaviest) {
                break;
            }
            if message.role == Role::User {
                start = Some(index);
            }
        }
        self.messages.drain(..start.unwrap_or(0));
    }
}

/// The newest turn as a whole, for one that is longer than the window.
fn newest_turn(store: &dyn SessionStore) -> Result<Vec<Record>, StoreError> {
    let kinds = &["turn.started"];
    let start = store.read(Select { kinds, newest_first: true, limit: 1, ..Select::default() })?;
    let after = start.first().map_or(0, |start| start.seq.saturating_sub(1));
    let turn = Select { after, kinds: fold::MESSAGE_KINDS, limit: usize::MAX, ..Select::default() };
    store.read(turn)?.iter().map(|stored| decode(&stored.json)).collect()
}
