//! Runs the ticks of an agent's intervals, for as long as the session exists.

use super::SessionHost;
use crate::agent::{
    CancelToken,
    interval::{Interval, Tick, TickContext},
};
use crate::ports::{StoreError, within};
use crate::session::Session;
use crate::types::{BoxError, EventKind, IntervalState, Owner};
use futures::{
    FutureExt,
    future::{Either, select},
    pin_mut,
};
use std::time::Duration;
use std::{panic::AssertUnwindSafe, rc::Rc};

/// Timeout of a tick.
const TICK_TIMEOUT: Duration = Duration::from_mins(1);

impl SessionHost {
    /// Runs one tick of an interval, and stores when the next one is due.
    pub(super) async fn tick(
        &self,
        session: &Rc<Session>,
        name: &str,
        cancel: &CancelToken,
    ) -> Result<(), StoreError> {
        let agent = self.agent();
        let Some(interval) = agent.intervals.iter().find(|interval| interval.name() == name) else {
            return Ok(());
        };
        let (began, before) = (self.now(), interval_state(session, interval.as_ref()));
        let cx = self.tick_context(session, interval.as_ref(), cancel);
        let result = {
            let tick = within(self.ports.clock.as_ref(), TICK_TIMEOUT, isolated(interval.tick(&cx)));
            let over = cx.cancel.canceled();
            pin_mut!(tick, over);
            match select(tick, over).await {
                Either::Left((result, _)) => result.unwrap_or_else(|unfinished| Err(unfinished.into())),
                Either::Right(_) => return Ok(()),
            }
        };
        // Ticks run at a fixed rate; missed ticks are skipped.
        let (now, due) = (self.now(), if before.next_at.0 > 0 { before.next_at } else { began });
        let next = due + interval.every();
        let next_at = if next > now { next } else { now + interval.every() };
        let (state, failure) = match result {
            Ok(tick) => {
                let stopped = tick == Tick::Stop;
                (IntervalState { next_at, runs: before.runs + 1, stopped, failed: 0 }, None)
            }
            Err(error) => {
                (IntervalState { next_at, failed: before.failed + 1, ..before }, Some(error.to_string()))
            }
        };
        // The host may have replaced its copy of the session during the tick.
        let current = self.session.borrow().clone();
        current.as_ref().unwrap_or(session).commit(now, |draft| {
            draft.set_interval(interval.name(), state);
            // Only the first failure in a row is recorded.
            if let Some(reason) = failure.filter(|_| before.failed == 0) {
                draft.record(None, EventKind::SubStepFailed { step: interval.name().to_owned(), reason });
            }
        })
    }

    pub(super) fn tick_context(
        &self,
        session: &Rc<Session>,
        interval: &dyn Interval,
        cancel: &CancelToken,
    ) -> TickContext {
        let state = interval_state(session, interval);
        let meta = &session.state().meta;
        let (tenant, user, agent) = (meta.tenant.clone(), meta.user.clone(), meta.agent.clone());
        TickContext {
            owner: Owner { tenant, user, agent },
            session_id: meta.id.clone(),
            first_run: state.runs == 0,
            runs: state.runs,
            clock: Rc::clone(&self.ports.clock),
            session: Rc::clone(session),
            rules: Rc::clone(&self.agent().state),
            cancel: cancel.clone(),
        }
    }
}

fn interval_state(session: &Session, interval: &dyn Interval) -> IntervalState {
    session.state().background.intervals.get(interval.name()).copied().unwrap_or_default()
}

/// Converts a panic of an interval into a failure of its tick.
async fn isolated(tick: impl Future<Output = Result<Tick, BoxError>>) -> Result<Tick, BoxError> {
    let ended = AssertUnwindSafe(tick).catch_unwind().await;
    ended.unwrap_or_else(|_panic| Err("internal error: the interval panicked".into()))
}
