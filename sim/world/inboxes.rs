//! The inboxes of the tenants, as an object reaches them. A notice that was sent arrives even if its sender is evicted, and
//! may arrive after later ones.

use super::World;
use async_trait::async_trait;
use edge_harness::ports::{Inbox, InboxError, inbox::InboxResult};
use edge_harness::types::{
    InboxCall, InboxChanges, InboxFilter, InboxNotice, InboxPosition, TenantId, Timestamp,
};
use futures::channel::oneshot;
use std::{
    rc::{Rc, Weak},
    time::Duration,
};

/// The longest time that a notice travels, in milliseconds.
pub const LONGEST_TRAVEL_MS: u64 = 25_000;
/// How long a notice travels, in milliseconds. Some are still on their way when their sender is evicted.
const TRAVEL_MS: [u64; 8] = [0, 0, 1, 3, 3, 40, 700, LONGEST_TRAVEL_MS];

/// The inboxes, as an object reaches them.
pub struct Inboxes(pub Weak<World>);

impl Inboxes {
    fn world(&self) -> InboxResult<Rc<World>> {
        self.0.upgrade().ok_or_else(|| InboxError("the world has ended".into()))
    }
}

#[async_trait(?Send)]
impl Inbox for Inboxes {
    async fn notify(&self, tenant: &TenantId, notice: &InboxNotice) -> InboxResult<Option<Timestamp>> {
        let world = self.world()?;
        let ms = match world.ledger.scenario.quiet {
            true => 0,
            false => world.notices.borrow_mut().pick(&TRAVEL_MS),
        };
        let (sender, response) = oneshot::channel();
        let (own, tenant, notice) = (Rc::clone(&world), tenant.clone(), notice.clone());
        let delivery = async move {
            if ms > 0 {
                own.sched.sleep(ms).await;
            }
            own.ledger.say("inbox", || format!("{} has {} calls", notice.session, notice.calls.len()));
            let _ = sender.send(own.inbox.notify(&tenant, &notice).await);
        };
        world.sched.spawn(None, Box::pin(delivery));
        response.await.unwrap_or_else(|_| Err(InboxError("the world has ended".into())))
    }

    async fn list(
        &self,
        tenant: &TenantId,
        filter: &InboxFilter,
        after: u64,
        limit: usize,
    ) -> InboxResult<Vec<(u64, InboxCall)>> {
        self.world()?.inbox.list(tenant, filter, after, limit).await
    }

    async fn changes(
        &self,
        tenant: &TenantId,
        filter: &InboxFilter,
        position: InboxPosition,
        wait: Duration,
    ) -> InboxResult<InboxChanges> {
        self.world()?.inbox.changes(tenant, filter, position, wait).await
    }

    async fn erase(&self, tenant: &TenantId) -> InboxResult<()> {
        self.world()?.inbox.erase(tenant).await
    }
}
