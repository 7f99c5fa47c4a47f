//! Erasing a session: everything that was kept of it, wherever.

use super::{SETTLE_MS, SessionHost, broken, directory_down};
use crate::fault::{self, Fault};
use crate::ports::BlobStore;
use crate::session::parked;
use crate::types::{Problem, Timestamp};
use std::rc::Rc;

impl SessionHost {
    /// Erases the session: log, state, large objects and its line in the list.
    ///
    /// # Errors
    /// When a store breaks. What is left is erased by trying again.
    pub async fn erase(self: &Rc<Self>, tenant: &str, id: &str) -> Result<(), Problem> {
        self.erasing.set(true);
        let erased = self.erase_all(tenant, id).await;
        self.erasing.set(false);
        if erased.is_err() {
            // Whoever came meanwhile goes on with what is left.
            self.wake_soon();
        }
        erased
    }

    async fn erase_all(self: &Rc<Self>, tenant: &str, id: &str) -> Result<(), Problem> {
        let session = self.session.borrow().clone();
        self.let_go();
        self.shut_down(session, tenant, id).await.map_err(memory_down)?;
        self.undo_follow_ups(tenant, id).await.map_err(memory_down)?;
        // The directory may not have heard of all of them yet, and knows those that came late.
        let sent_out = parked::errands(self.ports.store.as_ref()).map_err(broken)?.into_iter();
        let mut left: Vec<String> = sent_out.map(|errand| errand.session).collect();
        left.extend(self.ports.directory.subagents(tenant, id).await.map_err(directory_down)?);
        left.sort();
        left.dedup();
        for child in left.into_iter().filter(|_| !fault::active(Fault::LeaveSubagents)) {
            self.ports.peers.erase(tenant, &child).await.map_err(subagent_left)?;
        }
        // What is being written when the bytes are removed would stay for ever.
        let _closed = self.blobs.close();
        self.blobs.settle(SETTLE_MS).await.map_err(store_down)?;
        self.blobs.delete_prefix(&format!("{tenant}/sessions/{id}/")).await.map_err(store_down)?;
        self.ports.directory.delete_session(tenant, id).await.map_err(directory_down)?;
        // Whoever came meanwhile has read the session again. Nothing comes between this and the end.
        self.let_go();
        self.ports.store.erase().map_err(broken)?;
        self.wake_at.set(Timestamp(0));
        self.ports.spawner.let_sleep();
        Ok(())
    }

    /// Forgets the session: its turn, its listeners and what is in memory of it.
    fn let_go(&self) {
        if let Some((_, handle)) = self.running.borrow_mut().take() {
            handle.abort();
        }
        self.stop_pings();
        self.sent_out.take();
        self.reporting.take();
        let session = self.session.borrow_mut().take();
        match (session, &self.ports.broadcast) {
            (Some(session), _) => {
                session.hub().close();
                session.retire();
            }
            (None, Some(broadcast)) => broadcast.close(),
            (None, None) => {}
        }
    }
}

fn store_down(cause: String) -> Problem {
    Problem::unavailable("the object store does not answer; try again", cause)
}

fn subagent_left(cause: String) -> Problem {
    Problem::unavailable("the session of a subagent cannot be erased now; try again", cause)
}

fn memory_down(cause: String) -> Problem {
    Problem::unavailable("what was kept of the session cannot be removed now; try again", cause)
}
