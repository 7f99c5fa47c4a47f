//! One session: its log, its documents, its context window and its live listeners.
//!
//! [`Session`] is the only writer. A change is drafted on a copy and committed in one batch. Only then does
//! it become visible, in memory and to listeners, so that a failed write changes nothing.

pub mod artifacts;
pub mod audit;
mod background;
pub mod bounds;
mod display;
pub mod document_key;
mod draft;
mod encoding;
pub mod fold;
pub mod frame;
pub mod hub;
pub mod idempotency;
pub mod kernel;
pub mod modes;
mod reads;
mod recent;
pub mod replay;
mod reply;
pub mod schema;
mod state;
mod stored;
pub mod suspensions;
pub mod task_list;
pub mod tokens;
pub mod usage;
pub mod view;
pub mod window;

use crate::ports::{SessionStore, StoreError, session_store::Batch};
use crate::types::{
    Delta, FollowUpProgress, Message, Record, SessionState, SessionStatus, Timestamp, TurnId, TurnState,
};
pub use artifacts::{ArtifactReader, Artifacts};
pub use bounds::Refused;
pub use document_key::DocumentKey;
pub(crate) use draft::first_record;
pub use draft::{Draft, SessionChange};
use encoding::decode_part;
pub use encoding::{decode, decode_record, encode};
pub(crate) use encoding::{encoded, numbered};
pub use modes::{ModeError, Modes, SwitchError};
pub(crate) use reply::stored;
pub use schema::OpenError;
pub use state::owes_status;
pub(crate) use stored::discard_copy;
pub(crate) use stored::workspace;
pub use stored::{agent, check_schema, owner};
pub use task_list::{TaskError, TaskList};

use frame::Frame;
use hub::Hub;
use recent::RecentRecords;
use state::{Stored, StoredState};
use std::{
    cell::{Cell, Ref, RefCell},
    rc::Rc,
};
use thiserror::Error;
use window::{Bounds, ContextState, ContextWindow};

/// Why a write was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WriteError {
    /// The writer's turn was sealed or restarted.
    #[error("the turn has ended or was restarted")]
    Stale,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The right to write for one start of one turn.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permit {
    /// The turn.
    pub turn: TurnId,
    /// Its epoch.
    pub epoch: u32,
}

impl Permit {
    /// Returns the permit of the session's current turn.
    pub fn of(session: &Session) -> Option<Self> {
        session.state().activity.turn.as_ref().map(|turn| Self { turn: turn.id.clone(), epoch: turn.epoch })
    }
}

/// One session.
pub struct Session {
    store: RecentRecords,
    state: RefCell<SessionState>,
    stored: Cell<Stored>,
    last_seq: Cell<u64>,
    context: RefCell<ContextWindow>,
    bounds: Bounds,
    hub: Hub,
    retired: Cell<bool>,
    /// The time of the first record for which a report to the ledger is due.
    unreported: Cell<Option<Timestamp>>,
    on_commit: RefCell<Option<Rc<dyn Fn()>>>,
}

impl Session {
    /// Opens the stored session, or returns `None` if there is none.
    ///
    /// # Errors
    /// If a newer version has written the session, the store fails, or its contents cannot be parsed.
    pub fn open(store: Rc<dyn SessionStore>, bounds: Bounds, hub: Hub) -> Result<Option<Self>, OpenError> {
        if !store.exists()? {
            return Ok(None);
        }
        let Some(stored) = state::read(store.as_ref())? else { return Ok(None) };
        let StoredState { mut state, is_earlier, lacks_account } = stored;
        let last_seq = store.last_seq()?;
        if lacks_account {
            Rc::make_mut(&mut state.account).reported = last_seq;
        }
        let unreported = usage::first_due(store.as_ref(), state.account.reported)?;
        let context = ContextWindow::load(store.as_ref(), bounds)?;
        let session = Self::with(store, state, last_seq, context, bounds, hub);
        session.stored.set(if is_earlier { Stored::Earlier } else { Stored::Current });
        session.unreported.set(unreported);
        Ok(Some(session))
    }

    /// Creates a session in memory. Its first [`Session::commit`] stores it.
    pub fn create(store: Rc<dyn SessionStore>, state: SessionState, bounds: Bounds, hub: Hub) -> Self {
        Self::with(store, state, 0, ContextWindow::new(bounds), bounds, hub)
    }

    /// Creates a session in memory whose log is already stored. Its first [`Session::commit`] stores the rest.
    ///
    /// # Errors
    /// If the store fails, or a record cannot be parsed.
    pub(crate) fn over_log(
        store: Rc<dyn SessionStore>,
        state: SessionState,
        context: ContextState,
        bounds: Bounds,
        hub: Hub,
    ) -> Result<Self, StoreError> {
        let last_seq = store.last_seq()?;
        let context = ContextWindow::of_log(store.as_ref(), context, bounds)?;
        Ok(Self::with(store, state, last_seq, context, bounds, hub))
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
            store: RecentRecords::of(store),
            state: RefCell::new(state),
            stored: Cell::new(Stored::Nothing),
            last_seq: Cell::new(last_seq),
            context: RefCell::new(context),
            bounds,
            hub,
            retired: Cell::new(false),
            unreported: Cell::new(None),
            on_commit: RefCell::new(None),
        }
    }

    /// Calls `observer` after each commit.
    pub fn on_commit(&self, observer: impl Fn() + 'static) {
        *self.on_commit.borrow_mut() = Some(Rc::new(observer));
    }

    /// Retires this copy of the session: all later writes to it fail. From then on, it reads from the store alone,
    /// because that may have been erased, or written by another copy.
    pub fn retire(&self) {
        self.retired.set(true);
        self.store.forget();
    }

    /// Returns whether this copy is retired.
    pub fn is_retired(&self) -> bool {
        self.retired.get()
    }

    /// Returns the stored state.
    pub fn state(&self) -> Ref<'_, SessionState> {
        self.state.borrow()
    }

    /// Sequence number of the last record.
    pub fn last_seq(&self) -> u64 {
        self.last_seq.get()
    }

    /// Returns the time of the first record for which a report to the tenant's ledger is due.
    pub fn unreported(&self) -> Option<Timestamp> {
        self.unreported.get()
    }

    /// Returns the live listeners.
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Streams a delta to the live listeners.
    pub(crate) fn show(&self, turn: &TurnId, delta: &Delta) {
        self.hub.delta(turn, self.last_seq() + 1, delta);
    }

    /// Returns the session's store.
    pub(crate) fn store(&self) -> &dyn SessionStore {
        &self.store
    }

    /// Reads a document.
    pub(crate) fn document(&self, key: &DocumentKey) -> Result<Option<String>, StoreError> {
        document_key::read(&self.store, key)
    }

    /// Reads the document of a hook.
    ///
    /// # Errors
    /// If the store fails.
    pub fn hook_document(&self, name: &str) -> Result<Option<String>, StoreError> {
        self.document(&DocumentKey::Hook(name.to_owned()))
    }

    /// Returns the messages that the model is shown, oldest first.
    pub fn messages(&self) -> Vec<Rc<Message>> {
        self.context.borrow().messages()
    }

    /// Returns the context window.
    pub fn context(&self) -> Ref<'_, ContextWindow> {
        self.context.borrow()
    }

    /// Drafts a change, stores it, and notifies the listeners.
    ///
    /// A message that is being streamed already has a sequence number. Until it is complete, other records
    /// are deferred: they are kept in the state and appended after it.
    ///
    /// # Errors
    /// If the store fails; nothing has changed then.
    pub fn commit<T>(&self, now: Timestamp, draft: impl FnOnce(&mut Draft) -> T) -> Result<T, StoreError> {
        let (out, change) = self.draft(draft)?;
        self.apply(now, change)?;
        Ok(out)
    }

    /// Like [`Session::commit`], for a change from outside the turn. Refused if too many records are already
    /// deferred.
    ///
    /// # Errors
    /// [`Refused::Busy`], or if the store fails. Nothing has changed then.
    pub fn commit_from_outside<T>(
        &self,
        now: Timestamp,
        draft: impl FnOnce(&mut Draft) -> T,
    ) -> Result<T, Refused> {
        let (out, change) = self.draft(draft)?;
        if self.hub.is_streaming() && !change.closes_message && !change.records.is_empty() {
            bounds::check_deferred(&change)?;
        }
        self.apply(now, change)?;
        Ok(out)
    }

    /// Checks whether a change from outside could be deferred. Call it before expensive work.
    ///
    /// # Errors
    /// See [`Session::commit_from_outside`].
    pub fn check_capacity(&self) -> Result<(), Refused> {
        let waiting = self.state.borrow().activity.deferred.len();
        if self.hub.is_streaming() && waiting >= bounds::MAX_DEFERRED { Err(Refused::Busy) } else { Ok(()) }
    }

    fn draft<T>(&self, draft: impl FnOnce(&mut Draft) -> T) -> Result<(T, Draft), StoreError> {
        let mut change = self.empty_draft()?;
        let out = draft(&mut change);
        Ok((out, change))
    }

    /// Returns a draft without changes. Outside the generic [`Session::draft`], so that it is compiled once.
    fn empty_draft(&self) -> Result<Draft, StoreError> {
        if self.is_retired() {
            return Err(StoreError("this copy of the session is retired".into()));
        }
        Ok(Draft::new(self.state.borrow().clone()))
    }

    /// Requests an update of the list of sessions if the calls that wait change: the list shows their number.
    fn list_again_if_waiting_changes(&self, change: &mut Draft) {
        let waited =
            self.stored.get() == Stored::Current && self.state.borrow().status() == SessionStatus::Waiting;
        let waits = change.state.status() == SessionStatus::Waiting;
        let is_decision = |(key, _): &(DocumentKey, String)| {
            matches!(key, DocumentKey::Approval(_) | DocumentKey::Answer(_))
        };
        if waited != waits || waits && change.put.iter().any(is_decision) {
            change.relist();
        }
    }

    fn apply(&self, now: Timestamp, mut change: Draft) -> Result<(), StoreError> {
        if self.hub.is_streaming() && !change.closes_message {
            change.defer_records();
        } else {
            change.append_deferred();
        }
        let mut seq = self.last_seq.get();
        let mut records = Vec::with_capacity(change.records.len());
        for (turn, kind) in std::mem::take(&mut change.records) {
            seq += 1;
            records.push(numbered(Record { seq, at: now, turn, kind }));
        }
        change.notify_webhooks(&records);
        self.list_again_if_waiting_changes(&mut change);
        let put =
            std::mem::take(&mut change.put).into_iter().map(|(key, json)| (key.to_string(), json)).collect();
        let delete = change.delete.iter().map(DocumentKey::to_string).collect();
        let mut batch = Batch { append: Vec::new(), put, delete };
        let shown = self.context_after(&records);
        if let Some(shown) = &shown {
            batch.put.push((DocumentKey::Context.to_string(), encode(shown)?));
        }
        let records: Vec<Rc<Record>> = records.into_iter().map(Rc::new).collect();
        let mut frames = Vec::with_capacity(records.len());
        for record in &records {
            let encoded = encoded(record)?;
            batch.append.push(stored(record, encoded.clone())?);
            frames.push(Frame::record(Rc::clone(record), encoded));
        }
        if !records.is_empty() {
            change.activity().totals.updated_at = now;
        }
        let parts = state::changed(&change.state, self.stored.get(), &self.state.borrow())?;
        batch.put.extend(parts.into_iter().map(|(key, json)| (key.to_string(), json)));
        if self.stored.get() == Stored::Nothing && self.last_seq.get() == 0 {
            discard_copy(&self.store)?;
        }
        self.store.commit(batch)?;

        self.stored.set(Stored::Current);
        self.last_seq.set(seq);
        let reported = change.state.account.reported;
        let was_reported = std::mem::replace(&mut *self.state.borrow_mut(), change.state).account.reported;
        if reported != was_reported {
            let first_due = match reported >= seq {
                true => None,
                // The commit has succeeded, so a failure here only makes a report due.
                false => usage::first_due(&self.store, reported).unwrap_or(Some(now)),
            };
            self.unreported.set(first_due);
        } else if self.unreported.get().is_none() && records.iter().any(|record| is_due(record)) {
            self.unreported.set(Some(now));
        }
        for (record, frame) in records.iter().zip(&frames) {
            self.context.borrow_mut().push(record);
            self.hub.publish(frame, record);
        }
        if shown.is_some_and(|shown| !self.context.borrow_mut().replace_state(&shown)) {
            // From the log, so that the window is the same live and after a restart.
            let window = ContextWindow::load(&self.store, self.bounds)?;
            *self.context.borrow_mut() = window;
        }
        if change.closes_message {
            self.hub.end_message();
        }
        if !self.needs_recent_records() {
            self.store.forget();
        }
        if self.state.borrow().activity.turn.is_none() && self.state.borrow().activity.queue.is_empty() {
            self.hub.end_idle_streams();
        }
        let observer = self.on_commit.borrow().clone();
        if let Some(observer) = observer {
            observer();
        }
        Ok(())
    }

    /// Returns whether a turn works, or follow-ups or a report to the ledger have yet to read the records of turns.
    fn needs_recent_records(&self) -> bool {
        let activity = &self.state.borrow().activity;
        activity.turn.as_ref().is_some_and(TurnState::works)
            || activity.follow_ups.values().any(FollowUpProgress::is_requested)
            || self.unreported.get().is_some()
    }

    /// Returns the state of the context window after these records, if they change it.
    fn context_after(&self, records: &[Record]) -> Option<ContextState> {
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
    /// [`WriteError::Stale`] if the turn has ended or was restarted. If the store fails.
    pub(crate) fn commit_turn<T>(
        &self,
        permit: &Permit,
        now: Timestamp,
        draft: impl FnOnce(&mut Draft, &mut TurnState) -> T,
    ) -> Result<T, WriteError> {
        if !self.holds(permit) {
            return Err(WriteError::Stale);
        }
        let out = self.commit(now, |change| {
            let mut turn = change.activity().turn.take()?;
            let out = draft(change, &mut turn);
            change.activity().turn = Some(turn);
            Some(out)
        })?;
        out.ok_or(WriteError::Stale)
    }

    /// Returns whether the turn of `permit` still runs in the same epoch, in a copy that is not retired.
    pub fn holds(&self, permit: &Permit) -> bool {
        !self.retired.get()
            && self
                .state
                .borrow()
                .activity
                .turn
                .as_ref()
                .is_some_and(|t| t.id == permit.turn && t.epoch == permit.epoch)
    }
}

/// Returns whether a report to the ledger is due after this record.
fn is_due(record: &Record) -> bool {
    usage::DUE.contains(&record.kind.name())
}
