//! Keeps event streams alive with comments, and ends those whose credential is no longer valid.

use super::SessionHost;
use crate::session::{Session, hub::Listener};
use crate::types::Timestamp;
use futures::{
    FutureExt,
    future::{AbortHandle, abortable},
};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Interval of the comments and of the checks.
const PING_INTERVAL: Duration = Duration::from_secs(15);

impl SessionHost {
    /// Serves the session's streams while it has listeners. Call this after adding a listener.
    pub fn serve_streams(self: &Rc<Self>, session: &Rc<Session>) {
        let is_served =
            |(of, _): &(Weak<Session>, AbortHandle)| std::ptr::eq(of.as_ptr(), Rc::as_ptr(session));
        if !session.hub().has_listeners() || self.streams.borrow().as_ref().is_some_and(is_served) {
            return;
        }
        self.stop_streams();
        let (clock, own) = (Rc::clone(&self.ports.clock), Rc::downgrade(session));
        let (host, session) = (Rc::downgrade(self), Weak::clone(&own));
        let serving = async move {
            loop {
                clock.sleep(PING_INTERVAL).await;
                let (Some(host), Some(session)) = (host.upgrade(), session.upgrade()) else { break };
                session.hub().ping();
                // A failed check is repeated once before the last result has expired.
                let until = host.now() + PING_INTERVAL;
                for listener in session.hub().listeners_until(until) {
                    if !host.check(&listener, until).await {
                        listener.end();
                    }
                }
                if !session.hub().has_listeners() {
                    break;
                }
            }
        };
        let host = Rc::downgrade(self);
        let (work, handle) = abortable(serving);
        *self.streams.borrow_mut() = Some((own, handle));
        let work = work.map(move |ended| {
            // An aborted loop was replaced; the stored handle belongs to its successor.
            if let (Ok(()), Some(host)) = (ended, host.upgrade()) {
                host.streams.borrow_mut().take();
            }
        });
        self.ports.spawner.spawn(work.boxed_local());
    }

    /// Checks the credential of a stream again. Returns `false` if it is no longer valid, or if it could not be checked
    /// and was last found valid too long ago.
    pub async fn check(&self, listener: &Listener, until: Timestamp) -> bool {
        let caller = listener.caller();
        match self.ports.credentials.renew(&caller, until).await {
            Ok(Some(caller)) => {
                listener.renew(caller);
                true
            }
            Ok(None) => false,
            Err(_) => caller.valid_until > self.now(),
        }
    }

    pub(super) fn stop_streams(&self) {
        if let Some((_, serving)) = self.streams.borrow_mut().take() {
            serving.abort();
        }
    }
}
