//! What a host does beside turns: wakes in time, keeps streams alive, removes what expired, and keeps
//! the list of sessions up to date.

use super::{RETRY_MS, SessionHost, WATCHDOG_MS, directory_down};
use crate::ports::directory::SessionEntry;
use crate::session::{Session, idempotency};
use crate::types::{Problem, Timestamp};
use futures::{
    FutureExt,
    future::{AbortHandle, abortable},
};
use std::rc::{Rc, Weak};

/// How often streams get a comment, in milliseconds.
const PING_MS: u64 = 15_000;
/// How often what expired is looked for while turns keep running, in milliseconds.
const PURGE_MS: u64 = 3_600_000;

impl SessionHost {
    /// Keeps the session's streams alive with comments for as long as anybody listens. To be called
    /// when somebody has begun to.
    pub fn ping(self: &Rc<Self>, session: &Rc<Session>) {
        let pinged = |(of, _): &(Weak<Session>, AbortHandle)| std::ptr::eq(of.as_ptr(), Rc::as_ptr(session));
        if !session.hub().has_listeners() || self.pinging.borrow().as_ref().is_some_and(pinged) {
            return;
        }
        self.stop_pings();
        let (clock, own) = (Rc::clone(&self.ports.clock), Rc::downgrade(session));
        let session = Weak::clone(&own);
        let pings = async move {
            loop {
                clock.sleep(PING_MS).await;
                match session.upgrade() {
                    Some(session) if session.hub().has_listeners() => session.hub().ping(),
                    _ => break,
                }
            }
        };
        let host = Rc::downgrade(self);
        let (work, handle) = abortable(pings);
        *self.pinging.borrow_mut() = Some((own, handle));
        let work = work.map(move |ended| {
            // Ended by itself, not aborted in favour of another.
            if let (Ok(()), Some(host)) = (ended, host.upgrade()) {
                host.pinging.borrow_mut().take();
            }
        });
        self.ports.spawner.spawn(work.boxed_local());
    }

    pub(super) fn stop_pings(&self) {
        if let Some((_, pings)) = self.pinging.borrow_mut().take() {
            pings.abort();
        }
    }

    /// The platform's wake-up: keeps the watchdog going while a turn runs, goes on with a turn that
    /// nobody runs, and does what was put off.
    ///
    /// # Errors
    /// When the store breaks; the platform tries again then.
    pub async fn wake(self: &Rc<Self>) -> Result<(), Problem> {
        self.wake_at.set(Timestamp(0));
        let Some(session) = self.open()? else { return Ok(()) };
        if self.running.borrow().is_some() {
            self.wake_soon();
        }
        if session.state().listed_at.0 == 0 && self.list(&session).await.is_err() {
            // The platform gives an alarm up that fails a few times; this one is to come until it works.
            self.wake_soon();
        }
        self.follow_up(&session);
        let expiry = if session.is_waiting() { self.expire(&session)? } else { None };
        self.beat(&session);
        self.check_in(&session);
        let (now, idle) = (self.now(), self.running.borrow().is_none());
        if !idle && now < self.purge_at.get() {
            // Looking at all that may expire at each round of the watchdog would cost more than the turn.
            return Ok(());
        }
        let answers = idempotency::purge(&session, now)?;
        // As above: a store that is down for long must not cost us the alarm.
        let artifacts = self.artifacts(&session).purge().await.unwrap_or(Some(now.plus(WATCHDOG_MS)));
        let next = answers.into_iter().chain(artifacts).chain(expiry).min();
        self.purge_at.set(next.unwrap_or(now.plus(PURGE_MS)).min(now.plus(PURGE_MS)));
        if let Some(at) = next.filter(|_| idle) {
            self.wake_after(at.since(now).max(RETRY_MS));
        }
        Ok(())
    }

    /// Asks to be woken soon: to see whether a turn still runs, or to do what could not be done now.
    pub fn wake_soon(&self) {
        self.wake_after(WATCHDOG_MS);
    }

    /// Sees to it that first answers kept under an Idempotency-Key are removed in time.
    pub fn wake_for_purge(&self) {
        if self.wake_at.get() <= self.now() {
            self.wake_soon();
        }
    }

    /// Sees to it that what waits for a person is declined when its time is over.
    pub(super) fn wake_for_expiry(&self, session: &Session) {
        let pending = session.pending().unwrap_or_default();
        if let Some(at) = pending.iter().map(|pending| pending.expires_at).min() {
            self.wake_after(at.since(self.now()).max(RETRY_MS));
        }
    }

    /// Writes the session's line in the list of sessions.
    ///
    /// # Errors
    /// When the directory or the store breaks.
    pub async fn list(&self, session: &Session) -> Result<(), Problem> {
        let entry = {
            let state = session.state();
            SessionEntry {
                tenant: state.meta.tenant.clone(),
                id: state.meta.id.clone(),
                user: state.meta.user.clone(),
                agent: state.meta.agent.clone(),
                title: state.meta.title.clone(),
                created_at: state.meta.created_at,
                updated_at: state.meta.updated_at,
                parent: state.meta.parent.as_ref().map(|parent| parent.session.clone()),
            }
        };
        let told = self.ports.directory.put_session(&entry).await;
        if !self.session.borrow().as_ref().is_some_and(|own| std::ptr::eq(own.as_ref(), session)) {
            // Erased or opened anew meanwhile: this copy must not be written any more.
            if !self.ports.store.exists()? {
                let erased = self.ports.directory.delete_session(&entry.tenant, &entry.id).await;
                erased.map_err(directory_down)?;
            }
            return Ok(());
        }
        // Zero is what a wake-up looks for: it tells what could not be told now.
        let listed_at = if told.is_ok() { self.now() } else { Timestamp(0) };
        session.commit(self.now(), |draft| draft.state.listed_at = listed_at)?;
        told.map_err(directory_down)
    }

    pub(super) fn list_later(self: &Rc<Self>, session: &Rc<Session>) {
        let (host, session) = (Rc::clone(self), Rc::clone(session));
        self.spawn(async move {
            if host.list(&session).await.is_err() {
                host.wake_soon();
            }
        });
    }

    /// Sees to it that a wake-up comes after `ms` at the latest. One that comes sooner is left alone:
    /// it may be for something else, and setting an alarm is a write.
    pub(super) fn wake_after(&self, ms: u64) {
        let (now, due) = (self.now(), self.wake_at.get());
        if due <= now || due > now.plus(ms) {
            self.wake_at.set(now.plus(ms));
            self.ports.spawner.wake_after(ms);
        }
    }
}
