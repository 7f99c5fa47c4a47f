//! The uncommitted changes of one commit.
//!
//! Each kind of change is one method, in the file of its topic. The methods that hooks and tools of other crates can
//! call change settings, documents of hooks and the log, but never the turn or the queue.

mod background;
mod progress;
mod settings;
mod turn;
mod webhooks;

pub use settings::SessionChange;

use super::DocumentKey;
use crate::types::{
    EventKind, SessionId, SessionMeta, SessionState, Task, Timestamp, TurnId,
    background::Subagents,
    session::{Account, Activity, Background, ChildState, Guidance},
};
use std::rc::Rc;

/// Returns the first record of a session's log.
pub(crate) fn first_record(meta: &SessionMeta, forked_from: Option<SessionId>) -> EventKind {
    let (session, agent, user) = (meta.id.clone(), meta.agent.clone(), meta.user.clone());
    EventKind::SessionCreated { session, agent, user, forked_from }
}

/// The uncommitted changes of one commit.
#[derive(Clone)]
pub struct Draft {
    pub(super) state: SessionState,
    /// The records to append.
    pub(super) records: Vec<(Option<TurnId>, EventKind)>,
    pub(super) put: Vec<(DocumentKey, String)>,
    pub(super) delete: Vec<DocumentKey>,
    pub(super) closes_message: bool,
}

impl Draft {
    /// Creates a draft without changes.
    pub(super) fn new(state: SessionState) -> Self {
        Self { state, records: Vec::new(), put: Vec::new(), delete: Vec::new(), closes_message: false }
    }

    /// Returns the session's state with the changes so far.
    pub fn state(&self) -> &SessionState {
        &self.state
    }

    /// Appends a record to the log.
    pub fn record(&mut self, turn: Option<&TurnId>, kind: EventKind) {
        self.records.push((turn.cloned(), kind));
    }

    /// Appends the first record of a log.
    pub(crate) fn created(&mut self, forked_from: Option<SessionId>) {
        let created = first_record(&self.state.meta, forked_from);
        self.record(None, created);
    }

    /// Sets the state that a copied log has led to.
    pub(crate) fn set_copied(&mut self, context: String, tasks: Vec<Task>) {
        self.put(DocumentKey::Context, context);
        self.guidance().tasks = tasks;
    }

    /// Ends the message that is being streamed. The first record of the draft takes its sequence number.
    pub(crate) fn close_message(&mut self) {
        self.closes_message = true;
    }

    /// Writes a document of a hook, which [`Session::hook_document`](super::Session::hook_document) reads. The name
    /// should start with the hook's.
    pub fn put_hook_document(&mut self, name: &str, json: String) {
        self.put(DocumentKey::Hook(name.to_owned()), json);
    }

    /// Writes a document.
    pub(crate) fn put(&mut self, key: DocumentKey, json: String) {
        self.put.push((key, json));
    }

    /// Writes a document that expires. The purge deletes it after `expires_at`.
    pub(super) fn put_until(&mut self, key: DocumentKey, json: String, expires_at: Timestamp) {
        self.put(key, json);
        let purge_at = &mut self.background().purge_at;
        *purge_at = Some(purge_at.map_or(expires_at, |at| at.min(expires_at)));
    }

    /// Moves the records to those that wait for the end of the streamed message.
    pub(super) fn defer_records(&mut self) {
        if !self.records.is_empty() {
            let records = std::mem::take(&mut self.records);
            self.activity().deferred.extend(records);
        }
    }

    /// Appends the records that waited for the end of the streamed message.
    pub(super) fn append_deferred(&mut self) {
        if !self.state.activity.deferred.is_empty() {
            let deferred = std::mem::take(&mut self.activity().deferred);
            self.records.extend(deferred);
        }
    }

    pub(super) fn meta(&mut self) -> &mut SessionMeta {
        Rc::make_mut(&mut self.state.meta)
    }

    pub(super) fn guidance(&mut self) -> &mut Guidance {
        Rc::make_mut(&mut self.state.guidance)
    }

    pub(super) fn activity(&mut self) -> &mut Activity {
        Rc::make_mut(&mut self.state.activity)
    }

    pub(super) fn background(&mut self) -> &mut Background {
        Rc::make_mut(&mut self.state.background)
    }

    pub(super) fn subagents(&mut self) -> &mut Subagents {
        Rc::make_mut(&mut self.state.subagents)
    }

    pub(super) fn account(&mut self) -> &mut Account {
        Rc::make_mut(&mut self.state.account)
    }

    /// Returns the state of a child; `None` if the session is not one.
    pub(super) fn child(&mut self) -> Option<&mut ChildState> {
        self.state.child.as_mut().map(Rc::make_mut)
    }

    /// Deletes a document.
    pub(super) fn delete(&mut self, key: DocumentKey) {
        self.delete.push(key);
    }
}
