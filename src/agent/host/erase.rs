//! Erasing a session: its log, state, artifacts, children, memory and list entry.

use super::{SETTLE_TIMEOUT, SessionHost, children::MESSAGE_TIMEOUT, directory_down};
use crate::agent::CancelToken;
use crate::ports::{
    BlobError, BlobStore, PeerError, StoreError, Unfinished,
    session_store::{Records, Select, StoredRecord},
    within,
};
use crate::session::{
    Session, check_schema, decode,
    kernel::{Input, Job},
    owner, workspace,
};
use crate::types::{BoxError, CallId, ChildTask, Problem, SessionId, SessionMeta, TenantId, Timestamp};
use futures::FutureExt;
use serde_json::Value;
use std::{panic::AssertUnwindSafe, rc::Rc};

impl SessionHost {
    /// Erases the session: log, state, artifacts, children, and its entry in the list.
    ///
    /// # Errors
    /// When a newer version has written the session, or a store fails. Repeating the call erases the rest.
    pub async fn erase(self: &Rc<Self>, tenant: &TenantId, id: &SessionId) -> Result<(), Problem> {
        let _erasing = self.erasure.lock().await;
        self.erase_locked(tenant, id).await
    }

    /// Erases this session, unless it was erased while the job waited for another erasure.
    ///
    /// # Errors
    /// As for [`SessionHost::erase`].
    pub(super) async fn erase_own(self: &Rc<Self>, session: &Session) -> Result<(), Problem> {
        let _erasing = self.erasure.lock().await;
        if !self.serves(session) {
            return Ok(());
        }
        let (tenant, id) = {
            let meta = &session.state().meta;
            (meta.tenant.clone(), meta.id.clone())
        };
        self.erase_locked(&tenant, &id).await
    }

    async fn erase_locked(self: &Rc<Self>, tenant: &TenantId, id: &SessionId) -> Result<(), Problem> {
        // It may have stored things that this version would leave behind.
        check_schema(self.ports.store.as_ref())?;
        self.kernel.borrow_mut().erasing = true;
        let erased = self.erase_all(tenant, id).await;
        self.kernel.borrow_mut().erasing = false;
        if erased.is_err() {
            // The rest of the session still exists, so its background jobs continue.
            self.kernel.borrow_mut().store_failed(self.now());
            self.handle(Input::Changed);
        }
        erased
    }

    async fn erase_all(self: &Rc<Self>, tenant: &TenantId, id: &SessionId) -> Result<(), Problem> {
        let session = self.session.borrow().clone();
        self.unload();
        // First, because these calls can no longer be resolved. The inbox ignores an earlier notice that is still in flight.
        self.leave_inbox(tenant, id).await?;
        self.end_jobs().await.map_err(data_left)?;
        self.shut_intervals_down(session, tenant, id).await;
        self.erase_follow_ups(tenant, id).await.map_err(data_left)?;
        self.report_last(tenant).await?;
        let mut children = self.ports.directory.subagents(tenant, id).await.map_err(directory_down)?;
        // The log includes children that are not in the directory yet.
        children.extend(self.children_in_log(id)?);
        children.sort();
        children.dedup();
        for child in children {
            let erased = self.ports.peers.erase(tenant, &child);
            let erased = within(self.ports.clock.as_ref(), MESSAGE_TIMEOUT, erased).await;
            erased.unwrap_or_else(|cause| Err(PeerError(cause.to_string()))).map_err(child_left)?;
        }
        // Nothing would ever delete bytes written after `delete_prefix`, so running writes must end first.
        let _closed = self.blobs.close();
        self.blobs.settle(SETTLE_TIMEOUT).await.map_err(store_down)?;
        self.blobs.delete_prefix(&format!("{tenant}/sessions/{id}/")).await.map_err(store_down)?;
        self.ports.directory.delete_session(tenant, id).await.map_err(directory_down)?;
        // A request may have opened the session again during an await. No await follows.
        self.unload();
        self.ports.store.erase()?;
        self.kernel.borrow_mut().disarmed();
        self.ports.spawner.let_sleep();
        Ok(())
    }

    /// Returns the children spawned by this session, from its log. A fork's log also names children of the
    /// original.
    fn children_in_log(&self, id: &SessionId) -> Result<Vec<SessionId>, StoreError> {
        let select = Select { kinds: &["subagent.started"], ..Select::default() };
        let spawned = |stored: StoredRecord| {
            let record: Value = decode(&stored.json).ok()?;
            let (turn, call_id) = (stored.turn?, CallId::from(record["call_id"].as_str()?));
            let session = SessionId::from(record["session"].as_str()?);
            (ChildTask::session_of(id, &turn, &call_id) == session).then_some(session)
        };
        let records = Records::new(self.ports.store.as_ref(), select);
        records.filter_map(|stored| stored.map(spawned).transpose()).collect()
    }

    /// Cancels the jobs that write outside this object and waits for them, so that none writes after the
    /// erasure. Other jobs write through the session, which is retired.
    async fn end_jobs(&self) -> Result<(), Unfinished> {
        let jobs: Vec<_> = {
            let jobs = self.jobs.borrow();
            let outside =
                jobs.iter().filter(|(job, _)| matches!(job, Job::FollowUps | Job::Tick(_) | Job::Report));
            outside.map(|(_, running)| (running.work.clone(), running.cancel.clone())).collect()
        };
        jobs.iter().for_each(|(_, cancel)| cancel.cancel());
        for work in jobs.iter().filter_map(|(work, _)| work.upgrade()) {
            within(self.ports.clock.as_ref(), SETTLE_TIMEOUT, work).await?;
        }
        Ok(())
    }

    /// Calls each interval's `shutdown`. Failures do not stop the erasure.
    async fn shut_intervals_down(&self, session: Option<Rc<Session>>, tenant: &TenantId, id: &SessionId) {
        let owner = owner(self.ports.store.as_ref()).ok().flatten().filter(|owner| owner.tenant == *tenant);
        let Some(owner) = owner else { return };
        let session =
            session.unwrap_or_else(|| self.blank(SessionMeta::new(id.clone(), owner, Timestamp(0))));
        session.retire();
        let over = CancelToken::default();
        over.cancel();
        for interval in &self.agent().intervals {
            let cx = self.tick_context(&session, interval.as_ref(), &over);
            let ended = AssertUnwindSafe(interval.shutdown(&cx)).catch_unwind();
            let _ = within(self.ports.clock.as_ref(), SETTLE_TIMEOUT, ended).await;
        }
    }

    /// Deletes the data that follow-ups stored for this session in other stores.
    async fn erase_follow_ups(&self, tenant: &TenantId, id: &SessionId) -> Result<(), BoxError> {
        // Without a readable owner, no follow-up has run, or the session was erased before.
        let workspace = workspace(self.ports.store.as_ref()).ok().flatten();
        let Some(workspace) = workspace.filter(|own| own.owner.tenant == *tenant) else { return Ok(()) };
        for follow_up in &self.agent().follow_ups {
            follow_up.erase(&workspace, id).await?;
        }
        Ok(())
    }

    /// Drops the session from memory: its turn, its listeners, its volatile state.
    fn unload(&self) {
        if let Some((_, handle)) = self.turn.borrow_mut().take() {
            handle.abort();
        }
        self.stop_streams();
        self.kernel.borrow_mut().forget();
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

fn store_down(cause: BlobError) -> Problem {
    Problem::unavailable("the object store is unavailable; try again", cause)
}

fn child_left(cause: PeerError) -> Problem {
    Problem::unavailable("the session of a subagent cannot be erased now; try again", cause)
}

fn data_left(cause: impl ToString) -> Problem {
    Problem::unavailable("the data of the session in other stores cannot be erased now; try again", cause)
}
