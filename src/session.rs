//! One session: its log, its small state, its context window and its live listeners.
//!
//! [`Session`] is the only writer. A change is drafted on a copy, committed in one batch, and only
//! then visible, in memory and to listeners alike: a failed write leaves everything as it was.

pub mod artifacts;
pub mod bounds;
mod display;
pub mod fold;
pub mod frame;
pub mod hub;
pub mod idempotency;
pub mod kernel;
pub mod modes;
pub mod replay;
pub mod suspensions;
pub mod task_list;
pub mod tokens;
pub mod view;
pub mod window;

use crate::fault::{self, Fault};
use crate::ports::{
    SessionStore, StoreError,
    session_store::{Batch, Select, StoredRecord},
};
use crate::types::{
    ContextState, EventKind, Message, Owner, Record, SessionState, Timestamp, TurnState, json,
};
pub use artifacts::{ArtifactReader, Artifacts};
pub use bounds::Refused;
pub use modes::{ModeError, Modes, SwitchError};
pub use task_list::{TaskError, TaskList};

use frame::Frame;
use hub::Hub;
use serde::Deserialize;
use serde_json::Value;
use std::{
    cell::{Cell, Ref, RefCell},
    rc::Rc,
};
use thiserror::Error;
use window::{Bounds, ContextWindow};

/// The document that holds the state.
const STATE: &str = "state";

/// Whose the stored session is, also where the rest of what is stored cannot be read; `None` when there
/// is none.
///
/// # Errors
/// When the store breaks, or not even this can be read.
pub fn owner(store: &dyn SessionStore) -> Result<Option<Owner>, StoreError> {
    #[derive(Deserialize)]
    struct State {
        meta: Owner,
    }
    if !store.exists()? {
        return Ok(None);
    }
    let Some(json) = store.get(STATE)? else { return Ok(None) };
    // Directly: what is passed over on the way may be of any shape and nested however deep.
    let state: Result<State, _> = serde_json::from_slice(json.as_bytes());
    state.map(|state| Some(state.meta)).map_err(|e| StoreError(format!("cannot read stored JSON: {e}")))
}

/// Whether the stored session is a subagent's, and the session that sent it out waits for what comes of the errand.
/// What cannot be read is owed to nobody.
pub fn owes_status(store: &dyn SessionStore) -> bool {
    let state = store.get(STATE).ok().flatten().and_then(|json| decode::<Value>(&json).ok());
    state.is_some_and(|state| state["meta"]["parent"].is_object() && state["reported"] != true)
}

/// Why a write did not happen.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WriteError {
    /// The writer's turn was sealed or restarted since.
    #[error("the turn is over or was restarted")]
    Stale,
    /// The store broke.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The right to write for one (re)start of one turn.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permit {
    /// The turn.
    pub turn: String,
    /// Its epoch.
    pub epoch: u32,
}

impl Permit {
    /// The permit of the turn that stands in the session.
    pub fn of(session: &Session) -> Option<Self> {
        session.state().turn.as_ref().map(|turn| Self { turn: turn.id.clone(), epoch: turn.epoch })
    }
}

/// A change being drafted.
#[derive(Clone)]
pub struct Draft {
    /// The state as it will be.
    pub state: SessionState,
    /// Each with its time, where that is not now.
    records: Vec<(Option<Timestamp>, Option<String>, EventKind)>,
    put: Vec<(String, String)>,
    delete: Vec<String>,
    closes_message: bool,
}

impl Draft {
    /// Appends a record to the log.
    pub fn record(&mut self, turn: Option<&str>, kind: EventKind) {
        self.records.push((None, turn.map(str::to_owned), kind));
    }

    /// Appends a record of another log: when it happened stays, its number does not.
    pub fn copy(&mut self, record: Record) {
        self.records.push((Some(record.at), record.turn, record.kind));
    }

    /// Appends the record that every log starts with.
    pub fn created(&mut self, forked_from: Option<String>) {
        let meta = &self.state.meta;
        let (session, agent, user) = (meta.id.clone(), meta.agent.clone(), meta.user.clone());
        self.record(None, EventKind::SessionCreated { session, agent, user, forked_from });
    }

    /// Hands work over to be done behind the turn; see `agent::FollowUp`.
    pub fn request_follow_up(&mut self, name: &str) {
        self.state.follow_ups.entry(name.to_owned()).or_default().asked += 1;
    }

    /// Ends the message that is being streamed: the first record drafted takes its number.
    pub fn close_message(&mut self) {
        self.closes_message = true;
    }

    /// Writes a document.
    pub fn put(&mut self, key: String, json: String) {
        self.put.push((key, json));
    }

    /// Writes a document that expires: the purge looks for it from then on.
    pub fn put_until(&mut self, key: String, json: String, expires_at: Timestamp) {
        self.put(key, json);
        let purge_at = &mut self.state.purge_at;
        *purge_at = Some(purge_at.map_or(expires_at, |at| at.min(expires_at)));
    }

    /// Removes a document.
    pub fn delete(&mut self, key: String) {
        self.delete.push(key);
    }
}

/// One session.
pub struct Session {
    store: Rc<dyn SessionStore>,
    state: RefCell<SessionState>,
    last_seq: Cell<u64>,
    context: RefCell<ContextWindow>,
    bounds: Bounds,
    hub: Hub,
    retired: Cell<bool>,
    on_commit: RefCell<Option<Rc<dyn Fn()>>>,
}

impl Session {
    /// Opens the stored session; `None` when there is none.
    ///
    /// # Errors
    /// When the store breaks or holds what cannot be read.
    pub fn open(store: Rc<dyn SessionStore>, bounds: Bounds, hub: Hub) -> Result<Option<Self>, StoreError> {
        if !store.exists()? {
            return Ok(None);
        }
        let Some(json) = store.get(STATE)? else { return Ok(None) };
        let state: SessionState = decode(&json)?;
        let last_seq = store.last_seq()?;
        let context = ContextWindow::load(store.as_ref(), bounds)?;
        Ok(Some(Self::with(store, state, last_seq, context, bounds, hub)))
    }

    /// Makes a session in memory. Its first [`Session::commit`] stores it.
    pub fn create(store: Rc<dyn SessionStore>, state: SessionState, bounds: Bounds, hub: Hub) -> Self {
        Self::with(store, state, 0, ContextWindow::new(bounds), bounds, hub)
    }

    fn with(
        store: Rc<dyn SessionStore>,
        state: SessionState,
        last_seq: u64,
        context: ContextWindow,
        bounds: Bounds,
        hub: Hub,
    ) -> Self {
        Self {
            store,
            state: RefCell::new(state),
            last_seq: Cell::new(last_seq),
            context: RefCell::new(context),
            bounds,
            hub,
            retired: Cell::new(false),
            on_commit: RefCell::new(None),
        }
    }

    /// Calls `observer` after each commit.
    pub fn on_commit(&self, observer: impl Fn() + 'static) {
        *self.on_commit.borrow_mut() = Some(Rc::new(observer));
    }

    /// Retires this copy: it refuses all further writes.
    pub fn retire(&self) {
        self.retired.set(true);
    }

    /// Whether this copy was given up.
    pub fn is_retired(&self) -> bool {
        self.retired.get()
    }

    /// The state as it is stored.
    pub fn state(&self) -> Ref<'_, SessionState> {
        self.state.borrow()
    }

    /// The number of the last record.
    pub fn last_seq(&self) -> u64 {
        self.last_seq.get()
    }

    /// The live listeners.
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Where the session is stored.
    pub fn store(&self) -> &Rc<dyn SessionStore> {
        &self.store
    }

    /// What the model should see of the conversation, oldest first.
    pub fn messages(&self) -> Vec<Rc<Message>> {
        self.context.borrow().messages()
    }

    /// The same, with what bounds it and what it takes.
    pub fn context(&self) -> Ref<'_, ContextWindow> {
        self.context.borrow()
    }

    /// A message of the context window as it was said, also where it is shown in part.
    ///
    /// # Errors
    /// When the store breaks.
    pub fn whole(&self, shown: &Rc<Message>) -> Result<Rc<Message>, StoreError> {
        if self.context.borrow().state().cut.chars(shown.seq).is_none() {
            return Ok(Rc::clone(shown));
        }
        let select = Select { after: shown.seq.saturating_sub(1), limit: 1, ..Select::default() };
        let record = self.records(select)?.pop();
        Ok(match record.map(|record| record.kind) {
            Some(EventKind::TurnStarted { message } | EventKind::MessageCompleted { message }) => message,
            _ => Rc::clone(shown),
        })
    }

    /// Drafts a change, stores it, and tells every listener.
    ///
    /// While a message is being streamed its log number is taken, so records of others wait in
    /// the state and follow right behind it.
    ///
    /// # Errors
    /// When the store breaks; nothing has changed then.
    pub fn commit<T>(&self, now: Timestamp, draft: impl FnOnce(&mut Draft) -> T) -> Result<T, StoreError> {
        let (out, change) = self.draft(draft)?;
        self.apply(now, change)?;
        Ok(out)
    }

    /// Like [`Session::commit`], for a change that comes from outside and not from the turn: refused
    /// when too much waits already for the message that is being streamed.
    ///
    /// # Errors
    /// [`Refused::Busy`], or when the store breaks; nothing has changed then.
    pub fn commit_from_outside<T>(
        &self,
        now: Timestamp,
        draft: impl FnOnce(&mut Draft) -> T,
    ) -> Result<T, Refused> {
        let (out, change) = self.draft(draft)?;
        if self.hub.is_streaming() && !change.closes_message && !change.records.is_empty() {
            bounds::may_wait(&change)?;
        }
        self.apply(now, change)?;
        Ok(out)
    }

    /// Whether a change from outside would find room. To be asked before what costs much.
    ///
    /// # Errors
    /// See [`Session::commit_from_outside`].
    pub fn takes_more(&self) -> Result<(), Refused> {
        let waiting = self.state.borrow().deferred.len();
        if self.hub.is_streaming() && waiting >= bounds::MAX_DEFERRED { Err(Refused::Busy) } else { Ok(()) }
    }

    fn draft<T>(&self, draft: impl FnOnce(&mut Draft) -> T) -> Result<(T, Draft), StoreError> {
        let mut change = self.blank()?;
        let out = draft(&mut change);
        Ok((out, change))
    }

    /// A draft that changes nothing. Apart from [`Session::draft`], of which each caller has a copy.
    fn blank(&self) -> Result<Draft, StoreError> {
        if self.is_retired() {
            return Err(StoreError("this copy of the session was given up".into()));
        }
        Ok(Draft {
            state: self.state.borrow().clone(),
            records: Vec::new(),
            put: Vec::new(),
            delete: Vec::new(),
            closes_message: false,
        })
    }

    fn apply(&self, now: Timestamp, mut change: Draft) -> Result<(), StoreError> {
        if self.hub.is_streaming() && !change.closes_message {
            if fault::active(Fault::DropDeferred) {
                change.records.clear();
            }
            change.state.deferred.extend(change.records.drain(..).map(|(_, turn, kind)| (turn, kind)));
        } else {
            change.records.extend(change.state.deferred.drain(..).map(|(turn, kind)| (None, turn, kind)));
        }
        let mut seq = self.last_seq.get();
        let mut records = Vec::with_capacity(change.records.len());
        for (at, turn, kind) in change.records {
            seq += 1 + u64::from(fault::active(Fault::SkipNumbers));
            records.push(numbered(Record { seq, at: at.unwrap_or(now), turn, kind }));
        }
        let mut batch = Batch { append: Vec::new(), put: change.put, delete: change.delete };
        let shown = self.shown_by(&records);
        if let Some(shown) = &shown {
            batch.put.push((window::STATE.to_owned(), encode(shown)?));
        }
        for record in &records {
            batch.append.push(StoredRecord {
                seq: record.seq,
                kind: record.kind.name().to_owned(),
                turn: record.turn.clone(),
                json: encode(record)?,
            });
        }
        if !records.is_empty() {
            change.state.meta.updated_at = now;
        }
        if change.state != *self.state.borrow() || self.last_seq.get() == 0 {
            batch.put.push((STATE.to_owned(), encode(&change.state)?));
        }
        let frames: Vec<Frame> = batch.append.iter().map(Frame::record).collect();
        self.store.commit(batch)?;

        self.last_seq.set(seq);
        *self.state.borrow_mut() = change.state;
        for (record, frame) in records.iter().zip(&frames) {
            self.context.borrow_mut().push(record);
            self.hub.publish(frame, record);
        }
        if shown.is_some_and(|shown| !self.context.borrow_mut().take_over(&shown)) {
            // From the log, so that what is shown live and after a restart is the same.
            let window = ContextWindow::load(self.store.as_ref(), self.bounds)?;
            *self.context.borrow_mut() = window;
        }
        if change.closes_message {
            self.hub.end_message();
        }
        if self.state.borrow().turn.is_none() && self.state.borrow().queue.is_empty() {
            self.hub.idle();
        }
        let observer = self.on_commit.borrow().clone();
        if let Some(observer) = observer {
            observer();
        }
        Ok(())
    }

    /// What decides on what is shown, if these records change it.
    fn shown_by(&self, records: &[Record]) -> Option<ContextState> {
        let about = |record: &&Record| ContextState::is_about(&record.kind);
        let mut about = records.iter().filter(about).peekable();
        about.peek()?;
        let mut shown = self.context.borrow().state().clone();
        let mut changed = false;
        for record in about {
            changed |= shown.fold(&record.kind);
        }
        changed.then_some(shown)
    }

    /// Like [`Session::commit`], for the turn that holds `permit`.
    ///
    /// # Errors
    /// [`WriteError::Stale`] when the turn is over or was restarted since; when the store breaks.
    pub fn commit_turn<T>(
        &self,
        permit: &Permit,
        now: Timestamp,
        draft: impl FnOnce(&mut Draft, &mut TurnState) -> T,
    ) -> Result<T, WriteError> {
        if !self.holds(permit) {
            return Err(WriteError::Stale);
        }
        let out = self.commit(now, |change| {
            let mut turn = change.state.turn.take()?;
            let out = draft(change, &mut turn);
            change.state.turn = Some(turn);
            Some(out)
        })?;
        out.ok_or(WriteError::Stale)
    }

    /// Whether the turn of `permit` still runs under the same epoch, in a copy that was not given up.
    pub fn holds(&self, permit: &Permit) -> bool {
        !self.retired.get()
            && self
                .state
                .borrow()
                .turn
                .as_ref()
                .is_some_and(|t| t.id == permit.turn && t.epoch == permit.epoch)
    }

    /// Reads records and parses them.
    ///
    /// # Errors
    /// When the store breaks or holds what cannot be read.
    pub fn records(&self, select: Select<'_>) -> Result<Vec<Record>, StoreError> {
        self.store.read(select)?.iter().map(|stored| decode(&stored.json)).collect()
    }
}

/// A message inside a record carries the record's number.
fn numbered(mut record: Record) -> Record {
    if let EventKind::TurnStarted { message } | EventKind::MessageCompleted { message } = &mut record.kind {
        Rc::make_mut(message).seq = record.seq;
    }
    record
}

/// Writes a stored document.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn encode(value: &impl serde::Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|e| StoreError(format!("cannot write JSON: {e}")))
}

/// Reads a stored document.
///
/// # Errors
/// When it is not what was expected.
pub fn decode<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    json::read(text.as_bytes()).map_err(|e| StoreError(format!("cannot read stored JSON: {e}")))
}
