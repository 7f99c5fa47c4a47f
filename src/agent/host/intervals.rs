//! Beats at intervals, by the object's alarm, for as long as the session is there.

use super::{RETRY_MS, SETTLE_MS, SessionHost, WATCHDOG_MS};
use crate::agent::{
    CancelToken,
    interval::{Interval, Tick, TickContext},
};
use crate::ports::{StoreError, within};
use crate::session::{Session, owner};
use crate::types::{EventKind, IntervalState, Owner, SessionMeta, TenantId, Timestamp};
use futures::{
    FutureExt,
    future::{Either, LocalBoxFuture, Shared, select},
    pin_mut,
};
use std::{panic::AssertUnwindSafe, rc::Rc};

/// Longest that a beat may take, in milliseconds.
const BEAT_MS: u64 = 60_000;

/// A beat that is going on.
pub(super) struct Beating {
    name: &'static str,
    work: Shared<LocalBoxFuture<'static, ()>>,
    cancel: CancelToken,
}

impl SessionHost {
    /// Begins what is due, and sees to it that what is not will be. To be called when something may be.
    pub(super) fn beat(self: &Rc<Self>, session: &Rc<Session>) {
        if self.erasing.get() {
            return;
        }
        for interval in &self.agent.intervals {
            let state = interval_state(session, interval.as_ref());
            let goes_on = self.beating.borrow().iter().any(|beating| beating.name == interval.name());
            if state.stopped || goes_on {
                continue;
            }
            if state.next_at > self.now() {
                let wait = state.next_at.since(self.now());
                // A machine that has just started does not know what it is to be woken for: it may be sooner.
                let known = self.wake_at.get() > Timestamp(0);
                self.wake_after(if known { wait } else { wait.min(WATCHDOG_MS) });
                continue;
            }
            // If it does not live to its end, a wake-up begins it again.
            self.wake_after(interval.every_ms().min(BEAT_MS));
            let (cancel, name) = (CancelToken::default(), interval.name());
            let (host, interval) = (Rc::clone(self), Rc::clone(interval));
            let cx = self.beat_context(session, &state, &cancel);
            let work = async move {
                let stored = host.one_beat(interval.as_ref(), state, &cx).await;
                host.beating.borrow_mut().retain(|beating| beating.name != name);
                if stored.is_err() {
                    return host.wake_after(RETRY_MS);
                }
                // Another copy of the session may have taken the place of this one.
                let current = host.session.borrow().clone();
                if let Some(session) = current {
                    host.beat(&session);
                }
            };
            let work = work.boxed_local().shared();
            self.beating.borrow_mut().push(Beating { name, work: work.clone(), cancel });
            self.ports.spawner.spawn(work.boxed_local());
        }
    }

    /// Beats once, and stores what comes next.
    async fn one_beat(
        &self,
        interval: &dyn Interval,
        before: IntervalState,
        cx: &TickContext,
    ) -> Result<(), StoreError> {
        let began = self.now();
        let result = {
            let beat = within(self.ports.clock.as_ref(), BEAT_MS, isolated(interval.tick(cx)));
            let over = cx.cancel.canceled();
            pin_mut!(beat, over);
            match select(beat, over).await {
                Either::Left((result, _)) => result.unwrap_or_else(|unfinished| Err(unfinished.to_string())),
                Either::Right(_) => return Ok(()),
            }
        };
        // By the clock of the interval, where that was kept.
        let (now, due) = (self.now(), if before.next_at.0 > 0 { before.next_at } else { began });
        let next = due.plus(interval.every_ms());
        let next_at = if next > now { next } else { now.plus(interval.every_ms()) };
        let (state, failure) = match result {
            Ok(beat) => {
                let stopped = beat == Tick::Stop;
                (IntervalState { next_at, runs: before.runs + 1, stopped, failed: 0 }, None)
            }
            Err(reason) => (IntervalState { next_at, failed: before.failed + 1, ..before }, Some(reason)),
        };
        cx.session.commit(now, |draft| {
            draft.state.intervals.insert(interval.name().to_owned(), state);
            // Once: it may go on failing for long.
            if let Some(reason) = failure.filter(|_| before.failed == 0) {
                draft.record(None, EventKind::SubStepFailed { step: interval.name().to_owned(), reason });
            }
        })
    }

    fn beat_context(
        &self,
        session: &Rc<Session>,
        state: &IntervalState,
        cancel: &CancelToken,
    ) -> TickContext {
        let meta = &session.state().meta;
        let (tenant, user, agent) = (meta.tenant.clone(), meta.user.clone(), meta.agent.clone());
        TickContext {
            owner: Owner { tenant, user, agent },
            session_id: meta.id.clone(),
            first_run: state.runs == 0,
            runs: state.runs,
            clock: Rc::clone(&self.ports.clock),
            session: Rc::clone(session),
            rules: Rc::clone(&self.agent.state),
            cancel: cancel.clone(),
        }
    }

    /// Ends what is going on, and lets each know that the session goes. `session` is the copy that was given up, where
    /// there was one.
    ///
    /// # Errors
    /// When something does not end in time.
    pub(super) async fn shut_down(
        &self,
        session: Option<Rc<Session>>,
        tenant: &TenantId,
        id: &str,
    ) -> Result<(), String> {
        let clock = self.ports.clock.as_ref();
        let going_on: Vec<_> =
            self.beating.borrow().iter().map(|b| (b.work.clone(), b.cancel.clone())).collect();
        going_on.iter().for_each(|(_, cancel)| cancel.cancel());
        for (work, _) in going_on {
            within(clock, SETTLE_MS, work).await.map_err(|unfinished| unfinished.to_string())?;
        }
        let owner = owner(self.ports.store.as_ref()).ok().flatten().filter(|owner| owner.tenant == *tenant);
        let Some(owner) = owner else { return Ok(()) };
        let session = session.unwrap_or_else(|| self.blank(SessionMeta::new(id, owner, Timestamp(0))));
        session.retire();
        let over = CancelToken::default();
        over.cancel();
        for interval in &self.agent.intervals {
            let cx = self.beat_context(&session, &interval_state(&session, interval.as_ref()), &over);
            // Whatever becomes of it, the session goes.
            let _ = within(clock, SETTLE_MS, AssertUnwindSafe(interval.shutdown(&cx)).catch_unwind()).await;
        }
        Ok(())
    }
}

fn interval_state(session: &Session, interval: &dyn Interval) -> IntervalState {
    session.state().intervals.get(interval.name()).copied().unwrap_or_default()
}

/// A panic of a handler is a failure of its beat, and of nothing else.
async fn isolated(beat: impl Future<Output = Result<Tick, String>>) -> Result<Tick, String> {
    let ended = AssertUnwindSafe(beat).catch_unwind().await;
    ended.unwrap_or_else(|_panic| Err("the handler broke (a defect of ours)".into()))
}
