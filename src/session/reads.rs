//! Reads of a session's log.

use super::{DocumentKey, Session, decode, decode_record, reply};
use crate::ports::{
    StoreError,
    session_store::{Page, Records, Select, StoredRecord},
};
use crate::types::{EventKind, Message, QueuedTurn, Record, SessionId, TurnId, TurnOptions};
use std::rc::Rc;

impl Session {
    /// Reads and parses all selected records. One page of their text is in memory at a time.
    ///
    /// # Errors
    /// An item is an error if the store fails, or the record cannot be parsed.
    pub fn records<'a>(
        &'a self,
        select: Select<'a>,
    ) -> impl Iterator<Item = Result<Record, StoreError>> + use<'a> {
        Records::new(&self.store, select).map(|stored| self.parsed(&stored?))
    }

    /// Reads and parses the first page of the selected records, and returns whether more follow.
    ///
    /// # Errors
    /// If the store fails, or a record cannot be parsed.
    pub fn page(&self, select: Select<'_>) -> Result<(Vec<Record>, bool), StoreError> {
        let Page { records, more } = self.store().read(select)?;
        let records: Result<_, _> = records.iter().map(|stored| self.parsed(stored)).collect();
        Ok((records?, more))
    }

    /// Reads and parses the first of the selected records.
    ///
    /// # Errors
    /// If the store fails, or the record cannot be parsed.
    pub fn first(&self, select: Select<'_>) -> Result<Option<Record>, StoreError> {
        self.records(Select { limit: 1, ..select }).next().transpose()
    }

    /// Returns the session that this one was forked from.
    ///
    /// # Errors
    /// If the store fails.
    pub fn forked_from(&self) -> Result<Option<SessionId>, StoreError> {
        let created = self.first(Select { kinds: &["session.created"], ..Select::default() })?;
        Ok(match created.map(|record| record.kind) {
            Some(EventKind::SessionCreated { forked_from, .. }) => forked_from,
            _ => None,
        })
    }

    /// Returns the current or queued turn that this request of a client has started; see [`TurnOptions::request`].
    ///
    /// # Errors
    /// If the store fails.
    pub fn turn_of_request(&self, request: &str) -> Result<Option<TurnId>, StoreError> {
        let state = self.state();
        let is_of = |options: &TurnOptions| options.request.as_deref() == Some(request);
        if let Some(turn) = state.activity.turn.as_ref().filter(|turn| is_of(&turn.options)) {
            return Ok(Some(turn.id.clone()));
        }
        for turn in &state.activity.queue {
            let stored = self.document(&DocumentKey::Queued(turn.clone()))?;
            let queued = stored.and_then(|json| decode::<QueuedTurn>(&json).ok());
            if queued.is_some_and(|queued| is_of(&queued.options)) {
                return Ok(Some(turn.clone()));
            }
        }
        Ok(None)
    }

    pub(super) fn parsed(&self, stored: &StoredRecord) -> Result<Record, StoreError> {
        let mut record = decode_record(&stored.json)?;
        reply::resolve(&self.store, &mut record)?;
        Ok(record)
    }

    /// Returns the complete text of a message that the context window may show shortened.
    ///
    /// # Errors
    /// If the store fails.
    pub fn complete_message(&self, shown: &Rc<Message>) -> Result<Rc<Message>, StoreError> {
        if self.context.borrow().state().cut.chars(shown.seq).is_none() {
            return Ok(Rc::clone(shown));
        }
        let select = Select { after: shown.seq.saturating_sub(1), ..Select::default() };
        let record = self.first(select)?;
        Ok(match record.map(|record| record.kind) {
            Some(EventKind::TurnStarted { message } | EventKind::MessageCompleted { message }) => message,
            _ => Rc::clone(shown),
        })
    }
}
