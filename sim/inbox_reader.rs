//! What a reader of a tenant's inbox has received.

use edge_harness::types::{InboxChange, InboxChanges, InboxPosition, SessionId};
use std::collections::BTreeSet;

/// A call that waits.
pub type Waiting = (SessionId, String, &'static str);

/// What a reader has received.
pub struct InboxReader {
    /// The calls that wait.
    pub calls: BTreeSet<Waiting>,
    /// Where it reads next.
    pub next: InboxPosition,
}

impl Default for InboxReader {
    fn default() -> Self {
        Self { calls: BTreeSet::new(), next: InboxPosition::Start }
    }
}

impl InboxReader {
    /// Applies changes.
    pub fn receive(&mut self, changes: InboxChanges) {
        if changes.reset {
            self.calls.clear();
        }
        for (_, change) in changes.changes {
            match change {
                InboxChange::Added(own) => {
                    self.calls.insert((own.session, own.call.call_id.to_string(), own.call.kind.name()))
                }
                InboxChange::Removed(own) => {
                    self.calls.remove(&(own.session, own.call_id.to_string(), own.kind.name()))
                }
            };
        }
        self.next = changes.next;
    }
}
