//! The inboxes of tenants in memory.

use super::MemorySessionStore;
use crate::inbox::TenantInbox;
use crate::ports::{Clock, Inbox, InboxError, StoreError, inbox::InboxResult};
use crate::types::{InboxCall, InboxChanges, InboxFilter, InboxNotice, InboxPosition, TenantId, Timestamp};
use async_trait::async_trait;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

/// The inboxes of tenants. Calls are counted, and can be made to fail.
pub struct InMemoryInbox {
    clock: Rc<dyn Clock>,
    inboxes: RefCell<BTreeMap<TenantId, Rc<TenantInbox>>>,
    /// Whether all calls fail.
    pub down: Cell<bool>,
    /// Number of notices so far.
    pub notices: Cell<u32>,
    /// The next notices whose response is lost: they arrive, and the call fails.
    pub unanswered: Cell<u32>,
}

impl InMemoryInbox {
    /// Creates empty inboxes.
    pub fn new(clock: Rc<dyn Clock>) -> Self {
        Self {
            clock,
            inboxes: RefCell::default(),
            down: Cell::default(),
            notices: Cell::default(),
            unanswered: Cell::default(),
        }
    }

    fn of(&self, tenant: &TenantId) -> InboxResult<Rc<TenantInbox>> {
        if self.down.get() {
            return Err(InboxError("switched off".into()));
        }
        let new = || Rc::new(TenantInbox::new(Rc::<MemorySessionStore>::default()));
        Ok(Rc::clone(self.inboxes.borrow_mut().entry(tenant.clone()).or_insert_with(new)))
    }
}

fn failed(error: StoreError) -> InboxError {
    InboxError(error.to_string())
}

#[async_trait(?Send)]
impl Inbox for InMemoryInbox {
    async fn notify(&self, tenant: &TenantId, notice: &InboxNotice) -> InboxResult<Option<Timestamp>> {
        self.notices.set(self.notices.get() + 1);
        let newest = self.of(tenant)?.notify(notice, self.clock.now()).map_err(failed)?;
        if self.unanswered.get() > 0 {
            self.unanswered.set(self.unanswered.get() - 1);
            return Err(InboxError("the response was lost".into()));
        }
        Ok(newest)
    }

    async fn list(
        &self,
        tenant: &TenantId,
        filter: &InboxFilter,
        after: u64,
        limit: usize,
    ) -> InboxResult<Vec<(u64, InboxCall)>> {
        self.of(tenant)?.list(filter, after, limit).map_err(failed)
    }

    async fn changes(
        &self,
        tenant: &TenantId,
        filter: &InboxFilter,
        position: InboxPosition,
        wait: Duration,
    ) -> InboxResult<InboxChanges> {
        let inbox = self.of(tenant)?;
        inbox.await_changes(filter, position, wait, self.clock.as_ref()).await.map_err(failed)
    }

    async fn erase(&self, tenant: &TenantId) -> InboxResult<()> {
        self.of(tenant)?.erase().map_err(failed)
    }
}
