//! Keeps the list of sessions up to date and removes what has expired.

use super::{SessionHost, directory_down};
use crate::ports::{StoreError, directory::SessionEntry};
use crate::session::{
    Session,
    artifacts::ArtifactError,
    idempotency,
    kernel::{self, Job},
};
use crate::types::{Problem, SessionStatus, Timestamp};
use std::rc::Rc;

impl SessionHost {
    /// Waits for a running update of the session's list entry. A failed update is retried in the background.
    pub async fn await_list_update(&self) {
        self.await_job(&Job::List).await;
    }

    /// Writes the session's entry in the list of sessions.
    pub(super) async fn update_list_entry(&self, session: &Session) -> Result<(), Problem> {
        let entry = list_entry(session, self.now())?;
        if entry.running && !session.state().background.listed_running {
            // Before the write, whose response may be lost: the end of the turn must replace what it has written.
            session.commit(self.now(), |draft| draft.set_listed(Timestamp(0), true))?;
        }
        let written = self.ports.directory.put_session(&entry).await;
        if !self.serves(session) {
            // The session was erased or reopened during the write.
            if !self.ports.store.exists()? {
                let erased = self.ports.directory.delete_session(&entry.tenant, &entry.id).await;
                erased.map_err(directory_down)?;
            }
            return Ok(());
        }
        written.map_err(directory_down)?;
        // What changed during the write is written again.
        let now = list_entry(session, self.now())?;
        let is_current = (now.title, now.pending, now.running) == (entry.title, entry.pending, entry.running);
        let listed_at = if is_current { self.now() } else { Timestamp(0) };
        session.commit(self.now(), |draft| draft.set_listed(listed_at, entry.running))?;
        Ok(())
    }

    /// Deletes expired documents and artifacts, and stores when the next one expires.
    pub(super) async fn purge(&self, session: &Rc<Session>) -> Result<(), ArtifactError> {
        let artifacts = self.artifacts(session);
        artifacts.purge().await?;
        let now = self.now();
        idempotency::purge(session, now)?;
        // Read after the last await, so that no new expiry is missed.
        let next = [idempotency::next_expiry(session)?, artifacts.next_expiry()?].into_iter().flatten().min();
        session.commit(now, |draft| draft.set_purge_at(next))?;
        Ok(())
    }
}

/// Returns the entry of a session in the list of sessions at `now`.
fn list_entry(session: &Session, now: Timestamp) -> Result<SessionEntry, StoreError> {
    let is_waiting = session.state().status() == SessionStatus::Waiting;
    let pending = if is_waiting { session.pending()?.len() } else { 0 };
    let state = session.state();
    Ok(SessionEntry {
        tenant: state.meta.tenant.clone(),
        id: state.meta.id.clone(),
        user: state.meta.user.clone(),
        agent: state.meta.agent.clone(),
        title: state.meta.title.clone(),
        created_at: state.meta.created_at,
        updated_at: state.activity.totals.updated_at,
        pending: u32::try_from(pending).unwrap_or(u32::MAX),
        running: kernel::runs_long_from(&state).is_some_and(|at| now >= at),
        parent: state.meta.parent.as_ref().map(|parent| parent.session.clone()),
    })
}
