//! Work that a session does again and again, whether or not anybody speaks.

use super::{CancelToken, StateRules, state::Merged};
use crate::ports::Clock;
use crate::session::{Draft, Session};
use crate::types::{EventKind, Owner};
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::rc::Rc;

/// Shortest interval, in milliseconds.
pub const MIN_MS: u64 = 1_000;

/// What is to follow a beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// The next one.
    Again,
    /// Nothing, in this session.
    Stop,
}

/// Something that beats in each session of an agent: first when the session is made, then at intervals. It does not
/// matter whether a turn runs. One beat at a time, 60 seconds at most each; what is missed while no machine runs is
/// not made up for, but a beat that a machine took away with it comes again.
#[async_trait(?Send)]
pub trait Interval {
    /// The name: unique among those of an agent.
    fn name(&self) -> &'static str;

    /// From one beat to the next, in milliseconds: a second at least.
    fn every_ms(&self) -> u64;

    /// Beats.
    ///
    /// # Errors
    /// Why it could not. That is told once; the next beat comes all the same.
    async fn tick(&self, cx: &TickContext) -> Result<Tick, String>;

    /// The session is being erased; nothing of it can be changed any more. May come twice.
    async fn shutdown(&self, _cx: &TickContext) {}
}

/// What a beat knows, and may do.
pub struct TickContext {
    /// Whose session it is.
    pub owner: Owner,
    /// The session's id.
    pub session_id: String,
    /// Whether none has succeeded yet in this session.
    pub first_run: bool,
    /// How many have succeeded.
    pub runs: u64,
    /// The time.
    pub clock: Rc<dyn Clock>,
    pub(super) session: Rc<Session>,
    pub(super) rules: Rc<StateRules>,
    pub(super) cancel: CancelToken,
}

impl TickContext {
    /// The session's own state, as callers and tools set it.
    pub fn state(&self) -> Map<String, Value> {
        self.session.state().meta.state.clone()
    }

    /// Sets one key of the session's state; null removes it.
    ///
    /// # Errors
    /// When the state would not be as it must, the session is gone, or the store broke.
    pub fn set_state(&self, key: &str, value: Value) -> Result<(), String> {
        let Merged { state, changed_keys } = self.rules.set(&self.state(), key, value)?;
        if changed_keys.is_empty() {
            return Ok(());
        }
        self.commit(|draft| {
            draft.state.meta.state = state;
            draft.record(None, EventKind::StateChanged { changed_keys });
        })
    }

    /// Writes down in the log that something happened.
    ///
    /// # Errors
    /// When the session is gone, or the store broke.
    pub fn record(&self, kind: EventKind) -> Result<(), String> {
        self.commit(|draft| draft.record(None, kind))
    }

    fn commit(&self, draft: impl FnOnce(&mut Draft)) -> Result<(), String> {
        if self.cancel.is_canceled() {
            return Err("the session is gone".into());
        }
        self.session.commit_from_outside(self.clock.now(), draft).map_err(|refused| refused.to_string())
    }
}
