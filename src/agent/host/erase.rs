//! Erasing a session: everything that was kept of it, wherever.

use super::{SETTLE_MS, SessionHost, directory_down};
use crate::fault::{self, Fault};
use crate::ports::{BlobStore, StoreError, session_store::Select};
use crate::session::decode;
use crate::types::{Errand, Problem, TenantId, Timestamp};
use serde_json::Value;
use std::rc::Rc;

impl SessionHost {
    /// Erases the session: log, state, large objects and its line in the list.
    ///
    /// # Errors
    /// When a store breaks. What is left is erased by trying again.
    pub async fn erase(self: &Rc<Self>, tenant: &TenantId, id: &str) -> Result<(), Problem> {
        self.erasing.set(true);
        let erased = self.erase_all(tenant, id).await;
        self.erasing.set(false);
        if erased.is_err() {
            // Whoever came meanwhile goes on with what is left.
            self.wake_soon();
        }
        erased
    }

    async fn erase_all(self: &Rc<Self>, tenant: &TenantId, id: &str) -> Result<(), Problem> {
        let session = self.session.borrow().clone();
        self.let_go();
        self.shut_down(session, tenant, id).await.map_err(memory_down)?;
        self.undo_follow_ups(tenant, id).await.map_err(memory_down)?;
        let mut subagents = self.ports.directory.subagents(tenant, id).await.map_err(directory_down)?;
        // Also those that the directory has not heard of yet.
        subagents.extend(self.sent_out_by(id)?);
        subagents.sort();
        subagents.dedup();
        for subagent in subagents.into_iter().filter(|_| !fault::active(Fault::LeaveSubagents)) {
            self.ports.peers.erase(tenant, &subagent).await.map_err(subagent_left)?;
        }
        // What is being written when the bytes are removed would stay for ever.
        let _closed = self.blobs.close();
        self.blobs.settle(SETTLE_MS).await.map_err(store_down)?;
        self.blobs.delete_prefix(&format!("{tenant}/sessions/{id}/")).await.map_err(store_down)?;
        self.ports.directory.delete_session(tenant, id).await.map_err(directory_down)?;
        // Whoever came meanwhile has read the session again. Nothing comes between this and the end.
        self.let_go();
        self.ports.store.erase()?;
        self.wake_at.set(Timestamp(0));
        self.ports.spawner.let_sleep();
        Ok(())
    }

    /// The sessions of the subagents that the log tells of. A copy's tells of the original's, too.
    fn sent_out_by(&self, id: &str) -> Result<Vec<String>, StoreError> {
        let select = Select { kinds: &["subagent.started"], limit: usize::MAX, ..Select::default() };
        let told = self.ports.store.read(select)?.into_iter().filter_map(|stored| {
            let record: Value = decode(&stored.json).ok()?;
            let (turn, call_id) = (stored.turn?, record["call_id"].as_str()?);
            let session = record["session"].as_str()?.to_owned();
            (Errand::session(id, &turn, call_id) == session).then_some(session)
        });
        Ok(told.collect())
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
