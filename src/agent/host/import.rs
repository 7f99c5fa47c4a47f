//! Creates a session from a snapshot of another session: a fork or a child. Artifacts remain in the original;
//! the copy's messages refer to them, but only the original can read them.
//!
//! A log is copied page by page. The sender passes all pages but the last to [`SessionHost::copy`], which stores
//! records without a session. [`SessionHost::import`] receives the last page and creates the session.

use super::{SessionHost, children::MESSAGE_TIMEOUT, copied::Copied};
use crate::ports::{
    Batch, PeerError, StoreError,
    session_store::{Page, Records, Select},
    within,
};
use crate::session::{self, OpenError, Session, decode_record, discard_copy};
use crate::types::{
    EventKind, Imported, Problem, Record, SessionId, Snapshot, SnapshotMeta,
    session::{Account, SCHEMA},
};
use std::{rc::Rc, time::Duration};

/// How long the records of an unfinished copy are kept.
const COPY_TIMEOUT: Duration = Duration::from_mins(10);

impl SessionHost {
    /// Creates the session `to` of the same tenant from a snapshot and the records of `session` up to sequence
    /// number `until`. Repeating it is safe.
    ///
    /// # Errors
    /// When `session` was erased, or the other session cannot be reached or its store fails.
    pub async fn export(
        &self,
        session: &Session,
        until: u64,
        to: &SessionId,
        snapshot: Snapshot,
    ) -> Result<Imported, PeerError> {
        let (tenant, clock) = (snapshot.meta.meta.tenant.clone(), self.ports.clock.as_ref());
        let before = Some(until.saturating_add(1));
        let mut after = 0;
        loop {
            if session.is_retired() {
                return Err(PeerError("the session was closed while it was copied".into()));
            }
            let page = page_of(session, Select { after, before, ..Select::default() });
            let (records, more) = page.map_err(|error| PeerError(error.to_string()))?;
            after = records.last().map_or(until, |last| last.seq);
            let snapshot = Snapshot { records: Some(records), ..snapshot.clone() };
            if !more {
                let imported = self.ports.peers.import(&tenant, to, snapshot);
                return within(clock, MESSAGE_TIMEOUT, imported)
                    .await
                    .map_err(|e| PeerError(e.to_string()))?;
            }
            let copied = self.ports.peers.copy(&tenant, to, snapshot);
            within(clock, MESSAGE_TIMEOUT, copied).await.map_err(|e| PeerError(e.to_string()))??;
        }
    }

    /// Stores records of a session that [`SessionHost::import`] will create. Records that are already stored are
    /// ignored.
    ///
    /// # Errors
    /// When the snapshot has a newer version, an earlier page is missing, or the store fails.
    pub fn copy(self: &Rc<Self>, snapshot: &Snapshot) -> Result<(), Problem> {
        check_version(snapshot)?;
        // `import` responds that the session exists or was canceled.
        if self.open()?.is_none() && !self.is_canceled()? {
            self.store_copied(snapshot)?;
            self.ports.spawner.wake_after(COPY_TIMEOUT);
        }
        Ok(())
    }

    /// Creates this object's session from a snapshot. An existing session is not replaced; an existing child
    /// applies the rules of the snapshot.
    ///
    /// # Errors
    /// When the snapshot or the session has a newer version, another session has this id, or a store fails.
    pub async fn import(self: &Rc<Self>, snapshot: Snapshot) -> Result<Imported, Problem> {
        self.create_from(snapshot).await.map(|(imported, _)| imported)
    }

    /// Like [`SessionHost::import`]. Also returns whether it has created the session.
    ///
    /// # Errors
    /// As for [`SessionHost::import`].
    pub async fn create_from(self: &Rc<Self>, snapshot: Snapshot) -> Result<(Imported, bool), Problem> {
        check_version(&snapshot)?;
        self.await_erasure().await?;
        if self.open()?.is_none() {
            let meta = &snapshot.meta.meta;
            self.load_copied_agent(&meta.tenant, &meta.user, meta.agent_ref()).await?;
            self.await_erasure().await?;
        }
        let is_child = snapshot.task.is_some();
        if is_child && self.is_canceled()? {
            // A further task finds no conversation to continue.
            let is_new = snapshot.records.is_some();
            return Ok((if is_new { Imported::Canceled } else { Imported::Missing }, false));
        }
        let (session, is_new) = match self.recover()? {
            Some(session) => {
                if session.state().meta.user != snapshot.meta.meta.user
                    || session.forked_from()? != snapshot.forked_from
                {
                    return Ok((Imported::Taken, false));
                }
                if is_child && !self.follow_parent(&session, snapshot)? {
                    return Ok((Imported::Canceled, false));
                }
                (session, false)
            }
            None if snapshot.records.is_none() => return Ok((Imported::Missing, false)),
            None => {
                self.store_copied(&snapshot)?;
                // Replaced when the session is stored. If it cannot be stored, the alarm deletes the records.
                self.ports.spawner.wake_after(COPY_TIMEOUT);
                let session = self.make(snapshot)?;
                self.await_list_update().await;
                (session, true)
            }
        };
        let view = session.view().and_then(|view| session::encode(&view))?;
        Ok((Imported::Session(view), is_new))
    }

    /// Stores the records of a snapshot. The copy has its own first record; all others keep their numbers and times.
    fn store_copied(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        let store = self.ports.store.as_ref();
        let mut last = if store.exists()? { store.last_seq()? } else { 0 };
        let mut batch = Batch::default();
        for record in snapshot.records.iter().flatten() {
            if record.seq <= last {
                continue;
            }
            last += 1;
            if record.seq != last {
                return Err(StoreError(format!("record {last} of the copied log is missing")));
            }
            batch.append.push(match &record.kind {
                EventKind::SessionCreated { .. } => {
                    let kind = session::first_record(&snapshot.meta.meta, snapshot.forked_from.clone());
                    session::encoded(&Record { at: self.now(), kind, ..record.clone() })?
                }
                _ => session::stored(record, session::encoded(record)?)?,
            });
        }
        if batch.append.is_empty() { Ok(()) } else { store.commit(batch) }
    }

    /// Creates the session on the copied log. A child is stored together with the start of its task, so that no
    /// child exists whose task has not started.
    fn make(self: &Rc<Self>, snapshot: Snapshot) -> Result<Rc<Session>, Problem> {
        let Snapshot { meta: SnapshotMeta { meta, totals }, forked_from, tenant_policy, task, .. } = snapshot;
        let ruled_at = totals.updated_at;
        let task =
            task.and_then(|(task, options)| self.task_turn(&meta, &tenant_policy.limits, task, options));
        let mut copied = Copied::default();
        let store = self.ports.store.as_ref();
        if store.exists()? {
            for stored in Records::new(store, Select::default()) {
                copied.fold(decode_record(&stored?.json)?);
            }
        }
        let session = match copied.last_seq {
            0 => self.blank(meta),
            _ => {
                let (store, state) = (Rc::clone(&self.ports.store), self.blank_state(meta));
                let context = copied.context.clone();
                Rc::new(Session::over_log(store, state, context, self.config.context, self.hub())?)
            }
        };
        session.commit(self.now(), |draft| {
            if copied.last_seq == 0 {
                draft.created(forked_from);
            }
            draft.set_tenant_policy(tenant_policy);
            draft.set_ruled_at(ruled_at);
            draft.set_totals(totals);
            // The original session reports the usage of the copied turns.
            draft.set_account(Account { reported: copied.last_seq, ..Account::default() });
            // Follow-ups for the copied turns run in the original session.
            for follow_up in self.agent().follow_ups() {
                draft.follow_up_mut(follow_up.name()).seen = copied.last_seq;
            }
            copied.draft(draft)?;
            if let Some((turn, message)) = task {
                draft.start_turn(turn, message);
            }
            Ok::<_, StoreError>(())
        })??;
        self.adopt_new(&session);
        Ok(session)
    }

    /// Deletes the records of a copy that was not completed in time. Called by the alarm.
    pub(super) fn expire_copy(&self) -> Result<(), StoreError> {
        discard_copy(self.ports.store.as_ref())
    }
}

fn check_version(snapshot: &Snapshot) -> Result<(), OpenError> {
    if snapshot.schema > SCHEMA { Err(OpenError::Newer(snapshot.schema)) } else { Ok(()) }
}

/// Reads a page of records as they are stored, and returns whether more follow.
fn page_of(session: &Session, select: Select<'_>) -> Result<(Vec<Record>, bool), StoreError> {
    let Page { records, more } = session.store().read(select)?;
    let records: Result<_, _> = records.iter().map(|stored| decode_record(&stored.json)).collect();
    Ok((records?, more))
}
