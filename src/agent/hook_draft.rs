//! What a hook may change at the end of a turn.

use crate::session::{Draft, SessionChange};
use crate::types::SessionState;
use serde_json::{Map, Value};

/// The changes of a hook, which become durable in the commit that ends the turn. A hook can change neither the turn nor the
/// queue, nor the permissions of the session.
pub struct HookDraft<'a>(&'a mut Draft);

impl<'a> HookDraft<'a> {
    pub(super) fn new(draft: &'a mut Draft) -> Self {
        Self(draft)
    }

    /// Returns the session's state with the changes so far.
    pub fn state(&self) -> &SessionState {
        self.0.state()
    }

    /// Sets the session's title; `None` removes it. It is then not derived from the first message.
    pub fn set_title(&mut self, title: Option<String>) {
        self.0.update(SessionChange { title: Some(title), ..SessionChange::default() });
    }

    /// Replaces the metadata of the session.
    pub fn set_metadata(&mut self, metadata: Map<String, Value>) {
        self.0.update(SessionChange { metadata: Some(metadata), ..SessionChange::default() });
    }

    /// Replaces the caller's state, in which these keys have changed.
    pub fn set_state(&mut self, state: Map<String, Value>, changed_keys: Vec<String>) {
        self.0.set_state(None, state, changed_keys);
    }

    /// Writes a document of the hook, which [`RuntimeContext::document`](super::RuntimeContext::document) reads. Its name
    /// should start with the hook's.
    pub fn put_document(&mut self, name: &str, json: String) {
        self.0.put_hook_document(name, json);
    }

    /// Returns the draft, for built-in hooks.
    pub(crate) fn whole(&mut self) -> &mut Draft {
        self.0
    }
}
