//! The memory of the readers that are behind, bounded in total: the sessions of an isolate share 128 MB.

use bytes::Bytes;
use futures::channel::mpsc::UnboundedReceiver;
use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
};

/// Unread bytes above which a reader counts toward the total.
pub(super) const LARGE: usize = 64 << 10;

/// Maximum number of unread bytes of all these readers.
const MAX_TOTAL: usize = 24 << 20;

/// The unread bytes of a reader that was dropped for the others. More than any reader may have.
const DROPPED: usize = usize::MAX;

/// What was sent to a reader. Only its stream owns it, so that the memory is freed when the reader leaves.
pub(super) type Queue = RefCell<UnboundedReceiver<Bytes>>;

/// A reader that is behind.
pub(super) struct Backlog {
    /// Number of unread bytes.
    pub bytes: Rc<Cell<usize>>,
    pub queue: Weak<Queue>,
}

impl Backlog {
    /// Returns whether the reader was dropped for the others.
    pub fn is_dropped(&self) -> bool {
        self.bytes.get() == DROPPED
    }
}

thread_local! {
    /// The readers that are behind, of all sessions. An isolate has one thread.
    static BEHIND: RefCell<Vec<Backlog>> = const { RefCell::new(Vec::new()) };
}

/// Counts a reader that is behind. If all of them exceed the total, the one with the most unread bytes loses them, and is
/// dropped with the next frame.
pub(super) fn count(backlog: &Backlog) {
    if backlog.is_dropped() {
        return;
    }
    BEHIND.with_borrow_mut(|behind| {
        behind.retain(|other| {
            other.bytes.get() > LARGE && !other.is_dropped() && other.queue.strong_count() > 0
        });
        if !behind.iter().any(|other| Rc::ptr_eq(&other.bytes, &backlog.bytes)) {
            behind.push(Backlog { bytes: Rc::clone(&backlog.bytes), queue: Weak::clone(&backlog.queue) });
        }
        if behind.iter().map(|other| other.bytes.get()).sum::<usize>() <= MAX_TOTAL {
            return;
        }
        let Some(slowest) = behind.iter().max_by_key(|other| other.bytes.get()) else { return };
        if let Some(queue) = slowest.queue.upgrade() {
            while queue.borrow_mut().try_recv().is_ok() {}
        }
        slowest.bytes.set(DROPPED);
    });
}
