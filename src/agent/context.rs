//! Who is speaking: bound to each call, never stored.

use crate::ports::Clock;
use crate::session::{Permit, Session};
use crate::types::Timestamp;
use serde_json::{Map, Value};
use std::{cell::Cell, rc::Rc};

/// What hooks and tools know of the call at hand.
#[derive(Clone)]
pub struct RuntimeContext {
    /// The tenant.
    pub tenant: String,
    /// The user.
    pub user: String,
    /// The agent.
    pub agent: String,
    /// The session.
    pub session: Rc<Session>,
    /// The right to write for this (re)start of the turn.
    pub permit: Permit,
    /// The time.
    pub clock: Rc<dyn Clock>,
}

impl RuntimeContext {
    /// The session's id.
    pub fn session_id(&self) -> String {
        self.session.state().meta.id.clone()
    }

    /// The turn's id.
    pub fn turn(&self) -> &str {
        &self.permit.turn
    }
}

/// Tells a tool that nobody waits for it any more. The tool's own future is dropped as well; the
/// token is for what the tool has handed to others.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Rc<Cell<bool>>);

impl CancelToken {
    /// Whether the call is over.
    pub fn is_canceled(&self) -> bool {
        self.0.get()
    }

    pub(crate) fn cancel(&self) {
        self.0.set(true);
    }
}

/// What a tool knows of its call.
#[derive(Clone)]
pub struct ToolContext {
    /// Who is speaking.
    pub run: Rc<RuntimeContext>,
    /// The call.
    pub call_id: String,
    /// When the call must have ended.
    pub deadline: Timestamp,
    /// Set when the call is over.
    pub cancel: CancelToken,
}

impl ToolContext {
    /// The session's own state, as the caller set it.
    pub fn session_state(&self) -> Map<String, Value> {
        self.run.session.state().meta.state.clone()
    }
}
