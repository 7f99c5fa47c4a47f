//! Keeps event streams alive with comments while they have listeners.

use super::SessionHost;
use crate::session::Session;
use futures::{
    FutureExt,
    future::{AbortHandle, abortable},
};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Interval of the comments.
const PING_INTERVAL: Duration = Duration::from_secs(15);

impl SessionHost {
    /// Sends comments to the session's streams while it has listeners. Call this after adding a listener.
    pub fn ping(self: &Rc<Self>, session: &Rc<Session>) {
        let pinged = |(of, _): &(Weak<Session>, AbortHandle)| std::ptr::eq(of.as_ptr(), Rc::as_ptr(session));
        if !session.hub().has_listeners() || self.pings.borrow().as_ref().is_some_and(pinged) {
            return;
        }
        self.stop_pings();
        let (clock, own) = (Rc::clone(&self.ports.clock), Rc::downgrade(session));
        let session = Weak::clone(&own);
        let pings = async move {
            loop {
                clock.sleep(PING_INTERVAL).await;
                match session.upgrade() {
                    Some(session) if session.hub().has_listeners() => session.hub().ping(),
                    _ => break,
                }
            }
        };
        let host = Rc::downgrade(self);
        let (work, handle) = abortable(pings);
        *self.pings.borrow_mut() = Some((own, handle));
        let work = work.map(move |ended| {
            // An aborted loop was replaced; the stored handle belongs to its successor.
            if let (Ok(()), Some(host)) = (ended, host.upgrade()) {
                host.pings.borrow_mut().take();
            }
        });
        self.ports.spawner.spawn(work.boxed_local());
    }

    pub(super) fn stop_pings(&self) {
        if let Some((_, pings)) = self.pings.borrow_mut().take() {
            pings.abort();
        }
    }
}
