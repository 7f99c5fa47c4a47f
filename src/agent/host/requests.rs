//! Requests of clients in a session. None enters while the session is erased.

use super::SessionHost;
use crate::ports::within;
use crate::types::Problem;
use std::time::Duration;
use std::{cell::Cell, rc::Rc};

/// How long a request waits for the end of an erasure. One takes longer only if other stores or objects do not respond, or if
/// there are many subagents.
const ERASURE_TIMEOUT: Duration = Duration::from_secs(30);

/// A request of a client that is in flight in a session, and may change it.
pub struct InFlight(Rc<Cell<usize>>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.update(|count| count - 1);
    }
}

impl SessionHost {
    /// Waits until a running erasure of the session has ended. What a request starts in such a session would be lost.
    ///
    /// # Errors
    /// `unavailable` if the erasure takes too long.
    pub async fn await_erasure(&self) -> Result<(), Problem> {
        // Without a timer in almost all cases.
        if self.erasure.try_lock().is_some() {
            return Ok(());
        }
        let end = within(self.ports.clock.as_ref(), ERASURE_TIMEOUT, self.erasure.lock()).await;
        end.map(drop).map_err(|cause| Problem::unavailable("the session is being erased; try again", cause))
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
