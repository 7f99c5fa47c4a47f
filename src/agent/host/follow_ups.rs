//! Does what turns have handed over, behind them and until it is done.

use super::{RETRY_MS, SETTLE_MS, SessionHost};
use crate::agent::{
    CancelToken,
    follow_up::{FollowUpContext, Progress},
};
use crate::ports::{StoreError, within};
use crate::session::{Draft, Session, owner};
use crate::types::{EventKind, FollowUpProgress, Owner, TenantId, Timestamp};
use futures::{
    FutureExt,
    future::{LocalBoxFuture, Shared},
};
use std::rc::Rc;

/// Longest that one piece of work may take, in milliseconds.
const MAX_MS: u64 = 180_000;
/// Longest wait after a failure, in milliseconds.
const MAX_WAIT_MS: u64 = 24 * 60 * 60 * 1_000;

/// The work that is being done.
pub(super) struct Following {
    work: Shared<LocalBoxFuture<'static, ()>>,
    cancel: CancelToken,
}

impl SessionHost {
    /// Sees to it that what was handed over is done. To be called when something may have been.
    pub(super) fn follow_up(self: &Rc<Self>, session: &Rc<Session>) {
        if self.erasing.get() {
            return;
        }
        let Some(at) = self.next_follow_up(session) else { return };
        if at > self.now() {
            return self.wake_for_follow_ups(session);
        }
        // If it does not live to its end, a wake-up goes on.
        self.wake_soon();
        if self.following.borrow().as_ref().is_some_and(|following| following.work.peek().is_none()) {
            // It looks again before it ends.
            return;
        }
        let cancel = CancelToken::default();
        let (host, session, own) = (Rc::clone(self), Rc::clone(session), cancel.clone());
        let work = async move {
            // What the store refuses is tried again by the next wake-up.
            match host.follow_all(&session, &own).await {
                _ if own.is_canceled() => {}
                Ok(()) => host.wake_for_follow_ups(&session),
                Err(_) => host.wake_after(RETRY_MS),
            }
        };
        let work = work.boxed_local().shared();
        *self.following.borrow_mut() = Some(Following { work: work.clone(), cancel });
        self.ports.spawner.spawn(work.boxed_local());
    }

    /// When the first work that is due may be done; the others wait for it.
    fn next_follow_up(&self, session: &Session) -> Option<Timestamp> {
        let state = session.state();
        let follow_ups = self.agent.follow_ups.iter().filter_map(|work| state.follow_ups.get(work.name()));
        follow_ups.filter(|progress| progress.is_due()).map(|progress| progress.not_before).next()
    }

    /// Does all that is due, round after round, until nothing is.
    async fn follow_all(&self, session: &Rc<Session>, cancel: &CancelToken) -> Result<(), StoreError> {
        while self.follow_round(session, cancel).await? {}
        Ok(())
    }

    /// Does what is due, in the order of the agent's list, and stores in one commit how far it has come. Returns
    /// whether anything was due.
    async fn follow_round(&self, session: &Rc<Session>, cancel: &CancelToken) -> Result<bool, StoreError> {
        let mut cx = self.follow_context(session, cancel);
        let mut done = Vec::new();
        for follow_up in &self.agent.follow_ups {
            let progress = session.state().follow_ups.get(follow_up.name()).copied().unwrap_or_default();
            if !progress.is_due() {
                continue;
            }
            if progress.not_before > self.now() {
                break;
            }
            cx.seen = progress.seen;
            let result = within(self.ports.clock.as_ref(), MAX_MS, follow_up.run(&cx)).await;
            let result = result.unwrap_or_else(|unfinished| Err(unfinished.to_string()));
            if cancel.is_canceled() {
                return Ok(false);
            }
            if let Ok(Progress::Done(records) | Progress::UpTo(_, records)) = &result {
                cx.uncommitted.extend_from_slice(records);
            }
            // What builds on this one is to find it done.
            let goes_on = matches!(result, Ok(Progress::Done(_)));
            done.push((follow_up.name(), progress.asked, result));
            if !goes_on {
                break;
            }
        }
        let (now, any) = (self.now(), !done.is_empty());
        if any {
            session.commit(now, |draft| {
                done.into_iter()
                    .for_each(|(name, asked, result)| progress(draft, name, asked, cx.until, result, now));
            })?;
        }
        Ok(any)
    }

    fn follow_context(&self, session: &Rc<Session>, cancel: &CancelToken) -> FollowUpContext {
        let meta = session.state().meta.clone();
        FollowUpContext {
            owner: Owner { tenant: meta.tenant, user: meta.user, agent: meta.agent },
            session_id: meta.id,
            created_at: meta.created_at,
            model: meta.model,
            seen: 0,
            until: session.last_seq(),
            urgent: false,
            uncommitted: Vec::new(),
            clock: Rc::clone(&self.ports.clock),
            session: Rc::clone(session),
            cancel: cancel.clone(),
        }
    }

    fn wake_for_follow_ups(&self, session: &Session) {
        if let Some(at) = self.next_follow_up(session) {
            self.wake_after(at.since(self.now()).max(RETRY_MS));
        }
    }

    /// Ends what is being done, waits until it writes nothing any more, and removes what was kept of
    /// the session.
    ///
    /// # Errors
    /// When it does not end in time, or a store breaks.
    pub(super) async fn undo_follow_ups(&self, tenant: &TenantId, id: &str) -> Result<(), String> {
        let following = self.following.borrow().as_ref().map(|f| (f.work.clone(), f.cancel.clone()));
        if let Some((work, cancel)) = following {
            cancel.cancel();
            // It stays known until it has ended: who tries again waits again.
            let ended = within(self.ports.clock.as_ref(), SETTLE_MS, work).await;
            ended.map_err(|unfinished| unfinished.to_string())?;
            self.following.borrow_mut().take();
        }
        // What cannot be read was never followed; what is not there any more, was undone before.
        let owner = owner(self.ports.store.as_ref()).ok().flatten().filter(|owner| owner.tenant == *tenant);
        let Some(owner) = owner else { return Ok(()) };
        for follow_up in &self.agent.follow_ups {
            follow_up.erase(&owner, id).await?;
        }
        Ok(())
    }
}

/// Drafts how far a work has come.
fn progress(
    draft: &mut Draft,
    name: &str,
    asked: u64,
    until: u64,
    result: Result<Progress, String>,
    now: Timestamp,
) {
    let state = draft.state.follow_ups.entry(name.to_owned()).or_default();
    match result {
        Ok(Progress::Done(records)) => {
            *state = FollowUpProgress {
                asked: state.asked,
                answered: asked,
                seen: until.max(state.seen),
                ..FollowUpProgress::default()
            };
            records.into_iter().for_each(|kind| draft.record(None, kind));
        }
        Ok(Progress::UpTo(seen, records)) => {
            *state = FollowUpProgress {
                seen: seen.max(state.seen),
                failed: 0,
                not_before: Timestamp(0),
                ..*state
            };
            records.into_iter().for_each(|kind| draft.record(None, kind));
        }
        Ok(Progress::NotBefore(at)) => state.not_before = at.max(now.plus(RETRY_MS)),
        Err(reason) => {
            state.not_before = now.plus(wait_after(state.failed));
            state.failed += 1;
            if state.failed == 1 {
                // Once: it may go on failing for long.
                draft.record(None, EventKind::SubStepFailed { step: name.to_owned(), reason });
            }
        }
    }
}

/// How long to wait after so many failures before: twice as long each time.
fn wait_after(failures: u32) -> u64 {
    (RETRY_MS << failures.min(20)).min(MAX_WAIT_MS)
}
