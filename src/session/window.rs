//! The context window: the part of the conversation that the model is shown. Kept in memory between turns.

mod head;
mod observed;
pub mod shorten;
mod state;

pub use head::{NO_SUMMARY, SUMMARY_ID, head};
pub use observed::Observed;
pub use state::ContextState;

use super::{
    decode, decode_record,
    document_key::{self, DocumentKey},
    fold, tokens,
};
use crate::ports::{
    SessionStore, StoreError,
    session_store::{Records, Select},
};
use crate::types::{EventKind, Message, Record, Role};
use serde_json::{Value, json};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// Maximum number of bytes of JSON that are read to load a window, so that a session can be opened whatever its
/// messages hold.
pub const MAX_LOAD: usize = 8 << 20;

/// The size above which the older part of a window is always dropped.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum number of messages.
    pub messages: usize,
    /// Maximum number of bytes of text.
    pub bytes: usize,
}

impl Bounds {
    /// Limits the window to `messages` messages and 400 kB.
    pub fn messages(messages: usize) -> Self {
        Self { messages, bytes: 400_000 }
    }

    /// Limits for an agent with a context strategy, which normally keeps the window far smaller.
    pub fn wide() -> Self {
        Self { messages: 2_000, bytes: 8_000_000 }
    }
}

/// The newest messages, and the summary or notes that replace the earlier ones.
///
/// When the window exceeds its bounds it shrinks to three quarters at once, so that the start of the prompt
/// stays the same for many turns and providers' caches hit. Dropped messages stay in the log.
pub struct ContextWindow {
    state: ContextState,
    /// The message that replaces the earlier ones, and its tokens.
    head: Option<(Rc<Message>, u64)>,
    messages: Vec<Rc<Message>>,
    /// For each message: its number of parts when it was measured, and its tokens.
    measured: RefCell<Vec<(usize, u64)>>,
    /// The sum of the messages' tokens, if they have not changed since it was calculated.
    total: Cell<Option<u64>>,
    bounds: Bounds,
}

impl ContextWindow {
    /// Creates an empty window.
    pub fn new(bounds: Bounds) -> Self {
        let bounds = Bounds { messages: bounds.messages.max(4), ..bounds };
        Self {
            state: ContextState::default(),
            head: None,
            messages: Vec::new(),
            measured: RefCell::default(),
            total: Cell::default(),
            bounds,
        }
    }

    /// Loads the window of a stored session. Reads a bounded number of records and bytes. The last turn is read as
    /// a whole unless it alone exceeds [`MAX_LOAD`]; then its user message and its last steps are.
    ///
    /// # Errors
    /// If the store fails, or a record cannot be parsed.
    pub fn load(store: &dyn SessionStore, bounds: Bounds) -> Result<Self, StoreError> {
        let stored = document_key::read(store, &DocumentKey::Context)?;
        Self::of_log(store, stored.as_deref().map(decode).transpose()?.unwrap_or_default(), bounds)
    }

    /// Loads the window that a state shows of a stored log.
    ///
    /// # Errors
    /// If the store fails, or a record cannot be parsed.
    pub fn of_log(store: &dyn SessionStore, state: ContextState, bounds: Bounds) -> Result<Self, StoreError> {
        let mut window = Self { state, ..Self::new(bounds) };
        let kept_from = window.state.kept_from();
        let mut records = newest(store, kept_from, window.bounds)?;
        if !records.iter().any(starts) {
            // The window begins inside the current turn, whose first message stays in the window.
            let before = records.first().map_or(kept_from, |first| first.seq);
            let kinds = &["turn.started"];
            let started = Select { before: Some(before), kinds, newest_first: true, ..Select::default() };
            let started = store.read(Select { limit: 1, ..started })?.records.pop();
            records.splice(0..0, started.map(|stored| decode_record(&stored.json)).transpose()?);
        }
        for record in &records {
            fold::fold(&mut window.messages, record);
        }
        let messages = std::mem::take(&mut window.messages);
        window.messages =
            messages.into_iter().map(|message| window.shortened(message.seq, message)).collect();
        window.head = head(&window.state).map(|head| (Rc::clone(&head), tokens::of_message(&head)));
        window.trim();
        Ok(window)
    }

    /// Applies a new record. A change to the window's state requires loading the window again.
    pub fn push(&mut self, record: &Record) {
        self.total.take();
        // Only the start of a turn may drop messages, so that calls and results stay together.
        if fold::fold(&mut self.messages, record) && starts(record) {
            let kept_from = self.state.kept_from();
            if self.messages.iter().any(|message| message.seq < kept_from) {
                self.messages.retain(|message| message.seq >= kept_from);
                self.measured.take();
            }
            self.trim();
        }
    }

    /// Returns the message as the window shows it at sequence number `seq`, shortened if necessary.
    pub fn shortened(&self, seq: u64, mut message: Rc<Message>) -> Rc<Message> {
        let cut = &self.state.cut;
        if seq < cut.brief_before {
            shorten::brief(&mut message);
        }
        if let Some(chars) = cut.chars(seq) {
            shorten::part(&mut message, chars);
        }
        message
    }

    /// Replaces the state if the new one shows the same messages, summary and notes. Returns whether it did.
    pub fn replace_state(&mut self, state: &ContextState) -> bool {
        let is_same = self.state.cut == state.cut && self.state.observed.active == state.observed.active;
        if is_same {
            self.state = state.clone();
        }
        is_same
    }

    /// Returns the state that determines the window.
    pub fn state(&self) -> &ContextState {
        &self.state
    }

    /// Returns the messages, oldest first, starting with the one that replaces the earlier messages.
    pub fn messages(&self) -> Vec<Rc<Message>> {
        self.head.iter().map(|(head, _)| head).chain(&self.messages).cloned().collect()
    }

    /// Returns the messages with their estimated tokens, without the one that replaces the earlier messages.
    pub fn measured(&self) -> Vec<(Rc<Message>, u64)> {
        self.measure();
        let known = self.measured.borrow();
        self.messages.iter().cloned().zip(known.iter().map(|(_, tokens)| *tokens)).collect()
    }

    /// Measures the messages that have changed since the last call.
    fn measure(&self) {
        let known = &mut *self.measured.borrow_mut();
        known.truncate(self.messages.len());
        for (index, message) in self.messages.iter().enumerate() {
            let parts = message.parts.len();
            match known.get_mut(index) {
                Some((then, _)) if *then == parts => {}
                Some(stale) => *stale = (parts, tokens::of_message(message)),
                None => known.push((parts, tokens::of_message(message))),
            }
        }
    }

    /// Returns the estimated tokens of the whole window.
    pub fn tokens(&self) -> u64 {
        let total = self.total.get().unwrap_or_else(|| {
            self.measure();
            self.measured.borrow().iter().map(|(_, tokens)| tokens).sum()
        });
        self.total.set(Some(total));
        self.head.as_ref().map_or(total, |(_, tokens)| tokens + total)
    }

    /// Returns the number of messages, without the one that replaces the earlier messages.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns the progress of observation in estimated tokens, or `None` before it has started.
    pub fn progress(&self) -> Option<Value> {
        let observed = &self.state.observed;
        if observed.next == 0 {
            return None;
        }
        let pending = self.measured().into_iter().filter(|(message, _)| message.seq >= observed.kept_from());
        Some(json!({
            "strategy": "observation",
            "pending_tokens": pending.map(|(_, tokens)| tokens).sum::<u64>(),
            "observed_tokens": observed.tokens(),
            "buffered_tokens": observed.buffered.iter().map(|chunk| chunk.of).sum::<u64>(),
            "generation": observed.generation,
        }))
    }

    fn trim(&mut self) {
        let Bounds { messages: max, bytes } = self.bounds;
        let weight: usize = self.messages.iter().map(|m| m.weight()).sum();
        if self.messages.len() <= max && weight <= bytes {
            return;
        }
        let (most, heaviest) = (max * 3 / 4, bytes * 3 / 4);
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
        self.measured.take();
    }
}

fn starts(record: &Record) -> bool {
    matches!(record.kind, EventKind::TurnStarted { .. })
}

/// Returns the newest message records from sequence number `from` on, oldest first, within the bounds: they begin
/// with the start of a turn, or with a step if the last turn alone exceeds [`MAX_LOAD`].
fn newest(store: &dyn SessionStore, from: u64, bounds: Bounds) -> Result<Vec<Record>, StoreError> {
    let select = Select {
        after: from.saturating_sub(1),
        kinds: fold::MESSAGE_KINDS,
        newest_first: true,
        ..Select::default()
    };
    let mut records: Vec<Record> = Vec::new();
    let (mut bytes, mut is_cut) = (0, false);
    for stored in Records::new(store, select) {
        let stored = stored?;
        bytes += stored.json.len();
        is_cut = bytes > MAX_LOAD && !records.is_empty();
        if is_cut {
            break;
        }
        let record = decode_record(&stored.json)?;
        let is_start = starts(&record);
        records.push(record);
        // JSON is larger than the text in it. The caller trims the window exactly.
        if is_start && (records.len() >= bounds.messages * 2 || bytes / 2 > bounds.bytes) {
            break;
        }
    }
    records.reverse();
    if is_cut {
        let start = records.iter().position(starts).or_else(|| first_step(&records));
        records.drain(..start.unwrap_or(records.len()));
    }
    Ok(records)
}

/// Returns the index of the first record that begins a step, so that no call is separated from its result.
fn first_step(records: &[Record]) -> Option<usize> {
    let is_result = |record: &Record| matches!(record.kind, EventKind::ToolCompleted { .. });
    let begins = |pair: &[Record]| matches!(pair, [before, next] if is_result(before) && !is_result(next));
    records.windows(2).position(begins).map(|index| index + 1)
}
