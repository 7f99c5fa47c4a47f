//! The inbox objects: one per tenant, of the same class as the ledger. Their logic is in `inbox`.

use super::messages::{json_of, send};
use crate::inbox::TenantInbox;
use crate::ports::{Clock, Inbox, InboxError, StoreError, inbox::InboxResult};
use crate::types::{
    InboxCall, InboxChanges, InboxFilter, InboxNotice, InboxPosition, TenantId, Timestamp, time::millis,
};
use async_trait::async_trait;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::time::Duration;
use worker::ObjectNamespace;

/// A message to an inbox.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InboxMessage {
    Notify(InboxNotice),
    List { filter: InboxFilter, after: u64, limit: usize },
    Changes { filter: InboxFilter, position: InboxPosition, wait_ms: u64 },
    Erase,
}

/// A message to an inbox, as the object of the tenant reads it.
#[derive(Serialize)]
struct Addressed {
    inbox: InboxMessage,
}

/// Handles a message, and returns the response as JSON.
///
/// # Errors
/// If the store fails.
pub async fn handle(
    inbox: &TenantInbox,
    message: InboxMessage,
    clock: &dyn Clock,
) -> Result<String, StoreError> {
    match message {
        InboxMessage::Notify(notice) => json_of(&inbox.notify(&notice, clock.now())?),
        InboxMessage::List { filter, after, limit } => json_of(&inbox.list(&filter, after, limit)?),
        InboxMessage::Changes { filter, position, wait_ms } => {
            let wait = Duration::from_millis(wait_ms);
            json_of(&inbox.await_changes(&filter, position, wait, clock).await?)
        }
        InboxMessage::Erase => json_of(&inbox.erase()?),
    }
}

/// The inbox objects.
pub struct InboxObjects(pub ObjectNamespace);

impl InboxObjects {
    /// The ids of tenants contain no slash, so the name is not that of a ledger.
    async fn send<T: DeserializeOwned>(&self, tenant: &TenantId, message: InboxMessage) -> InboxResult<T> {
        let name = format!("{tenant}/inbox");
        send(&self.0, &name, &Addressed { inbox: message }).await.map_err(InboxError)
    }
}

#[async_trait(?Send)]
impl Inbox for InboxObjects {
    async fn notify(&self, tenant: &TenantId, notice: &InboxNotice) -> InboxResult<Option<Timestamp>> {
        self.send(tenant, InboxMessage::Notify(notice.clone())).await
    }

    async fn list(
        &self,
        tenant: &TenantId,
        filter: &InboxFilter,
        after: u64,
        limit: usize,
    ) -> InboxResult<Vec<(u64, InboxCall)>> {
        self.send(tenant, InboxMessage::List { filter: filter.clone(), after, limit }).await
    }

    async fn changes(
        &self,
        tenant: &TenantId,
        filter: &InboxFilter,
        position: InboxPosition,
        wait: Duration,
    ) -> InboxResult<InboxChanges> {
        let message = InboxMessage::Changes { filter: filter.clone(), position, wait_ms: millis(wait) };
        self.send(tenant, message).await
    }

    async fn erase(&self, tenant: &TenantId) -> InboxResult<()> {
        self.send(tenant, InboxMessage::Erase).await
    }
}
