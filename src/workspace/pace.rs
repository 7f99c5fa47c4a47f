//! Limits the work of searches, and divides it into slices.
//!
//! A search cannot measure its time: the platform's clock does not advance while code runs. It counts its work
//! instead, in units of the time in which it examines a byte, which is a few nanoseconds.

use crate::ports::{Clock, filesystem::MAX_FILE};
use std::{cell::Cell, rc::Rc, time::Duration};

/// Work after which a search lets other tasks run, a few milliseconds.
const SLICE: u64 = 1 << 19;
/// Maximum work of one search on the server. It suffices to examine [`SearchLimits::bytes`] with most patterns.
pub const MAX_WORK: u64 = 1 << 25;
/// Maximum work of all searches of a turn on the server.
pub const MAX_TURN_WORK: u64 = 4 * MAX_WORK;

/// The limits of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchLimits {
    /// Number of paths to examine.
    pub listed: usize,
    /// Number of files to read.
    pub files: usize,
    /// Number of bytes to read.
    pub bytes: u64,
    /// Number of bytes of the largest file that is read.
    pub file: u64,
    /// Work of one search.
    pub work: u64,
    /// Work of all searches of a turn.
    pub turn_work: u64,
}

impl SearchLimits {
    /// The limits on the server, where searches of many sessions share a thread.
    pub const SERVER: Self = Self {
        listed: 5_000,
        files: 500,
        bytes: 8 << 20,
        file: MAX_FILE as u64,
        work: MAX_WORK,
        turn_work: MAX_TURN_WORK,
    };
}

/// A limit of work was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkExceeded {
    /// The limit of the search.
    #[error("at its work limit; narrow it or use a simpler pattern")]
    Search,
    /// The limit of the turn.
    #[error("at the work limit for all searches of this turn; continue in the next turn")]
    Turn,
}

/// The work of one search.
pub struct Pace {
    clock: Rc<dyn Clock>,
    /// Work that the search may still do.
    pub(super) left: u64,
    /// Work since the last pause.
    since_pause: u64,
    /// Work that the searches of the turn have done.
    of_turn: Rc<Cell<u64>>,
    pub(super) limits: SearchLimits,
}

impl Pace {
    /// Starts counting for one search on the server. `of_turn` counts the work of all searches of the turn.
    pub fn new(clock: Rc<dyn Clock>, of_turn: Rc<Cell<u64>>) -> Self {
        Self::limited(clock, of_turn, SearchLimits::SERVER)
    }

    /// Starts counting for one search with these limits.
    pub fn limited(clock: Rc<dyn Clock>, of_turn: Rc<Cell<u64>>, limits: SearchLimits) -> Self {
        Self { clock, left: limits.work, since_pause: 0, of_turn, limits }
    }

    /// Counts work, which has been done or is about to be done, and pauses at the end of a slice.
    ///
    /// During a pause, the isolate handles other requests, aborts, and timers. A search does not check for
    /// cancellation or its deadline: both cancel the token of the call, and `ToolContext::unless_canceled`
    /// then drops the search, which can only happen while it pauses.
    ///
    /// # Errors
    /// The work exceeds a limit.
    pub async fn spend(&mut self, work: u64) -> Result<(), WorkExceeded> {
        let of_turn = self.of_turn.get().saturating_add(work);
        if of_turn > self.limits.turn_work {
            return Err(WorkExceeded::Turn);
        }
        self.left = self.left.checked_sub(work).ok_or(WorkExceeded::Search)?;
        self.of_turn.set(of_turn);
        self.since_pause += work;
        if self.since_pause >= SLICE {
            self.since_pause = 0;
            self.clock.sleep(Duration::ZERO).await;
        }
        Ok(())
    }
}
