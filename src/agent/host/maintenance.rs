//! Keeps the list of sessions up to date and removes what has expired.

use super::{SessionHost, directory_down};
use crate::ports::directory::SessionEntry;
use crate::session::{Session, artifacts::ArtifactError, idempotency, kernel::Job};
use crate::types::{Problem, Timestamp};
use std::rc::Rc;

impl SessionHost {
    /// Waits until the update of the session's entry in the list, if one has begun, has ended. An update that fails
    /// is repeated in the background.
    pub async fn listed(&self) {
        self.finished(&Job::List).await;
    }

    /// Writes the session's entry in the list of sessions.
    pub(super) async fn list(&self, session: &Session) -> Result<(), Problem> {
        let entry = {
            let state = session.state();
            SessionEntry {
                tenant: state.meta.tenant.clone(),
                id: state.meta.id.clone(),
                user: state.meta.user.clone(),
                agent: state.meta.agent.clone(),
                title: state.meta.title.clone(),
                created_at: state.meta.created_at,
                updated_at: state.meta.updated_at,
                parent: state.meta.parent.as_ref().map(|parent| parent.session.clone()),
            }
        };
        let written = self.ports.directory.put_session(&entry).await;
        if !self.serves(session) {
            // The session was erased, or opened anew, during the write.
            if !self.ports.store.exists()? {
                let erased = self.ports.directory.delete_session(&entry.tenant, &entry.id).await;
                erased.map_err(directory_down)?;
            }
            return Ok(());
        }
        written.map_err(directory_down)?;
        // An entry that has changed during the write is written again.
        let current = { session.state().meta.title == entry.title };
        let listed_at = if current { self.now() } else { Timestamp(0) };
        session.commit(self.now(), |draft| draft.state.listed_at = listed_at)?;
        Ok(())
    }

    /// Removes documents and artifacts that have expired, and notes when the next one expires.
    pub(super) async fn purge(&self, session: &Rc<Session>) -> Result<(), ArtifactError> {
        let artifacts = self.artifacts(session);
        artifacts.purge().await?;
        let now = self.now();
        idempotency::purge(session, now)?;
        // Nothing is awaited from here on: what is stored meanwhile counts.
        let next = [idempotency::next_expiry(session)?, artifacts.next_expiry()?].into_iter().flatten().min();
        session.commit(now, |draft| draft.state.purge_at = next)?;
        Ok(())
    }
}
