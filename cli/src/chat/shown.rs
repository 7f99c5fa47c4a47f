//! How the call that waits for the user is shown.

use crate::waits::Wait;
use std::time::{Duration, Instant};

/// Time for which a call is shown before keys decide it: those pressed earlier were meant for something else.
pub(super) const READING: Duration = Duration::from_millis(500);

/// The first call that waits, as it is shown.
pub(super) struct Shown {
    /// Its session and its id.
    call: (String, String),
    since: Instant,
    /// Whether it has been shown long enough.
    pub(super) is_read: bool,
    /// Lines above the shown ones.
    pub(super) above: usize,
    /// Lines below the shown ones.
    pub(super) below: usize,
}

impl Shown {
    /// Continues to show a call, or begins with another one.
    pub(super) fn of(first: Option<&Wait>, old: Option<Self>, now: Instant) -> Option<Self> {
        let first = first?;
        let call = (first.session.clone(), first.call.call_id.clone());
        match old {
            Some(old) if old.call == call => Some(Self { is_read: now >= old.since + READING, ..old }),
            _ => Some(Self { call, since: now, is_read: false, above: 0, below: 0 }),
        }
    }
}
