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

/// What was sent to a reader. Only its stream owns it, so that the memory is freed when the reader leaves.
pub(super) type Queue = RefCell<UnboundedReceiver<Bytes>>;

/// What a reader has not read yet.
pub(super) struct Backlog {
    /// Number of unread bytes.
    pub bytes: Cell<usize>,
    queue: Weak<Queue>,
    is_dropped: Cell<bool>,
}

impl Backlog {
    /// Creates the empty backlog of a reader.
    pub fn new(queue: &Rc<Queue>) -> Self {
        Self { bytes: Cell::new(0), queue: Rc::downgrade(queue), is_dropped: Cell::new(false) }
    }

    /// Returns whether the reader was dropped for the others.
    pub fn is_dropped(&self) -> bool {
        self.is_dropped.get()
    }

    /// Returns whether the reader holds memory that counts toward the total.
    fn counts(&self) -> bool {
        self.bytes.get() > LARGE && !self.is_dropped() && self.queue.strong_count() > 0
    }

    /// Frees what the reader has not read.
    fn drop_unread(&self) {
        if let Some(queue) = self.queue.upgrade() {
            while queue.borrow_mut().try_recv().is_ok() {}
        }
        self.bytes.set(0);
        self.is_dropped.set(true);
    }
}

thread_local! {
    /// The readers that are behind, of all sessions. An isolate has one thread.
    static BEHIND: RefCell<Vec<Weak<Backlog>>> = const { RefCell::new(Vec::new()) };
}

/// Counts a reader that is behind. If all of them exceed the total, the one with the most unread bytes loses them, and is
/// dropped with the next frame.
pub(super) fn count(backlog: &Rc<Backlog>) {
    BEHIND.with_borrow_mut(|behind| {
        behind.retain(|other| other.upgrade().is_some_and(|other| other.counts()));
        if backlog.counts() && !behind.iter().any(|other| std::ptr::eq(other.as_ptr(), Rc::as_ptr(backlog))) {
            behind.push(Rc::downgrade(backlog));
        }
        let readers = || behind.iter().filter_map(Weak::upgrade);
        if readers().map(|other| other.bytes.get()).sum::<usize>() > MAX_TOTAL
            && let Some(slowest) = readers().max_by_key(|other| other.bytes.get())
        {
            slowest.drop_unread();
        }
    });
}
