//! Requests of clients in a session. None enters while the session is erased.

use super::SessionHost;
use std::{cell::Cell, rc::Rc};

/// A request of a client that is in flight in a session.
pub struct InFlight(Rc<Cell<usize>>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.update(|count| count - 1);
    }
}

impl SessionHost {
    /// Waits while the session is erased. What a request starts in such a session would be lost.
    pub async fn await_erasure(&self) {
        drop(self.erasure.lock().await);
    }

    /// Counts a request as in flight, until the result is dropped.
    pub fn count_in_flight(&self) -> InFlight {
        self.in_flight.update(|count| count + 1);
        InFlight(Rc::clone(&self.in_flight))
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.get()
    }
}
