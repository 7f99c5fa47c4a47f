//! Work that a session repeats at a fixed interval.

use super::{CancelToken, StateRules, state::Merged};
use crate::ports::Clock;
use crate::session::{Draft, Session};
use crate::types::{BoxError, EventKind, Owner, SessionId};
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::rc::Rc;
use std::time::Duration;

/// The shortest interval.
pub const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Whether an interval continues after a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// Run again after the interval.
    Again,
    /// Never run again in this session.
    Stop,
}

/// Work that each session of an agent repeats, whether or not a turn is running. The first tick runs when the
/// session is created.
///
/// Ticks of one interval never overlap, and each is limited to 60 seconds. Ticks missed while the session was
/// evicted are skipped; a tick that an eviction interrupted runs again.
///
/// ```
/// use edge_harness::agent::{Interval, interval::{Tick, TickContext}};
/// use edge_harness::{testkit::TestSession, types::BoxError};
/// use std::time::Duration;
///
/// /// Counts the hours since the session was created.
/// struct Hours;
///
/// #[async_trait::async_trait(?Send)]
/// impl Interval for Hours {
///     fn name(&self) -> &'static str { "hours" }
///     fn every(&self) -> Duration { Duration::from_hours(1) }
///
///     async fn tick(&self, cx: &TickContext) -> Result<Tick, BoxError> {
///         cx.set_state("hours", cx.runs.into())?;
///         Ok(if cx.runs < 24 { Tick::Again } else { Tick::Stop })
///     }
/// }
///
/// let session = TestSession::new(|agent| agent.interval(Hours));
/// session.ask("/say Hello.");
/// assert_eq!(session.session().state().meta.state["hours"], 0);
/// ```
#[async_trait(?Send)]
pub trait Interval {
    /// Returns the name, unique within an agent.
    fn name(&self) -> &'static str;

    /// Returns the interval, at least [`MIN_INTERVAL`].
    fn every(&self) -> Duration;

    /// Runs one tick.
    ///
    /// # Errors
    /// The reason of the failure. The first of a series of failures is recorded; the interval continues.
    async fn tick(&self, cx: &TickContext) -> Result<Tick, BoxError>;

    /// Called when the session is erased and can no longer be changed. May be called more than once.
    async fn shutdown(&self, _cx: &TickContext) {}
}

/// The session as a tick sees it, and what a tick may change.
pub struct TickContext {
    /// The tenant, user and agent of the session.
    pub owner: Owner,
    /// The session's id.
    pub session_id: SessionId,
    /// Whether no earlier tick of this session succeeded.
    pub first_run: bool,
    /// Number of earlier ticks that succeeded.
    pub runs: u64,
    /// The clock.
    pub clock: Rc<dyn Clock>,
    pub(super) session: Rc<Session>,
    pub(super) rules: Rc<StateRules>,
    pub(super) cancel: CancelToken,
}

impl TickContext {
    /// Returns the session's state.
    pub fn state(&self) -> Map<String, Value> {
        self.session.state().meta.state.clone()
    }

    /// Sets one key of the session's state; null removes it.
    ///
    /// # Errors
    /// If the new state is invalid, the session was erased, or the store fails.
    pub fn set_state(&self, key: &str, value: Value) -> Result<(), BoxError> {
        let Merged { state, changed_keys } = self.rules.set(&self.state(), key, value)?;
        if changed_keys.is_empty() {
            return Ok(());
        }
        self.commit(|draft| draft.set_state(None, state, changed_keys))
    }

    /// Appends a record to the log.
    ///
    /// # Errors
    /// If the session was erased, or the store fails.
    pub fn record(&self, kind: EventKind) -> Result<(), BoxError> {
        self.commit(|draft| draft.record(None, kind))
    }

    fn commit(&self, draft: impl FnOnce(&mut Draft)) -> Result<(), BoxError> {
        if self.cancel.is_canceled() {
            return Err("the session was erased".into());
        }
        Ok(self.session.commit_from_outside(self.clock.now(), draft)?)
    }
}
