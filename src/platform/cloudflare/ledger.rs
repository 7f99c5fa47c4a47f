//! The objects of a tenant, beside those of its sessions: the ledger, and, as another object of the same class, the inbox. Their
//! logic is in `ledger` and `inbox`.

#![allow(missing_docs, reason = "the platform's macros generate undocumented items")]

use super::{
    inbox::{self, InboxMessage},
    messages::{self, json_of, send},
    runtime::{ConsoleLog, WorkerClock},
    sql::ObjectDatabase,
};
use crate::inbox::TenantInbox;
use crate::ledger::TenantLedger;
use crate::platform::sql::SqlSessionStore;
use crate::ports::{Clock, Ledger, LedgerError, Log, SessionStore, StoreError, ledger::LedgerResult};
use crate::types::{Admission, Admitted, Day, Receipt, Report, RequestBlock, TenantId, UsagePage, UsageRow};
use async_trait::async_trait;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;
use std::{cell::OnceCell, panic::AssertUnwindSafe, rc::Rc};
use worker::{DurableObject, Env, ObjectNamespace, Request, Response, Result, State, durable_object};

/// A message to an object of a tenant. Only this Worker can reach the objects.
#[derive(Deserialize)]
#[serde(untagged)]
enum Message {
    Ledger(LedgerMessage),
    Inbox { inbox: InboxMessage },
}

/// A message to a ledger.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LedgerMessage {
    Admit(Admission),
    Report(Report),
    Charge(Vec<UsageRow>),
    TakeRequests { wanted: u32, limit: u32 },
    Usage { from: Day, to: Day, after: Option<String> },
    Erase,
}

/// The Durable Object.
#[durable_object]
pub struct TenantObject {
    inner: AssertUnwindSafe<Inner>,
}

struct Inner {
    store: Rc<dyn SessionStore>,
    /// The ledger, once it is open.
    ledger: OnceCell<TenantLedger>,
    inbox: TenantInbox,
    clock: Rc<dyn Clock>,
}

impl DurableObject for TenantObject {
    fn new(state: State, _env: Env) -> Self {
        let store: Rc<dyn SessionStore> = Rc::new(SqlSessionStore::new(ObjectDatabase(state.storage())));
        let inbox = TenantInbox::new(Rc::clone(&store));
        let inner = Inner { store, ledger: OnceCell::new(), inbox, clock: Rc::new(WorkerClock) };
        Self { inner: AssertUnwindSafe(inner) }
    }

    async fn fetch(&self, mut request: Request) -> Result<Response> {
        let Inner { inbox, clock, .. } = &*self.inner;
        let handled = match messages::of_json(&request.text().await?)? {
            Message::Inbox { inbox: message } => inbox::handle(inbox, message, clock.as_ref()).await,
            // No await: messages must not interleave.
            Message::Ledger(message) => self.inner.handle(message),
        };
        match handled {
            Ok(json) => Response::ok(json),
            Err(error) => {
                ConsoleLog.error(&json!({ "event": "tenant.failed", "cause": error.to_string() }));
                Response::error(error.to_string(), 500)
            }
        }
    }
}

impl Inner {
    fn ledger(&self) -> std::result::Result<&TenantLedger, StoreError> {
        if let Some(ledger) = self.ledger.get() {
            return Ok(ledger);
        }
        let ledger = TenantLedger::open(Rc::clone(&self.store))?;
        Ok(self.ledger.get_or_init(|| ledger))
    }

    /// Handles a message to the ledger, and returns the response as JSON.
    fn handle(&self, message: LedgerMessage) -> std::result::Result<String, StoreError> {
        let (ledger, now) = (self.ledger()?, self.clock.now());
        match message {
            LedgerMessage::Admit(admission) => json_of(&ledger.admit(&admission, now)?),
            LedgerMessage::Report(report) => json_of(&ledger.report(&report, now)?),
            LedgerMessage::Charge(rows) => json_of(&ledger.charge(&rows, now)?),
            LedgerMessage::TakeRequests { wanted, limit } => {
                json_of(&ledger.take_requests(wanted, limit, now)?)
            }
            LedgerMessage::Usage { from, to, after } => json_of(&ledger.usage(from, to, after.as_deref())?),
            LedgerMessage::Erase => json_of(&ledger.erase()?),
        }
    }
}

/// The ledger objects. An object's name is its tenant.
pub struct LedgerObjects(pub ObjectNamespace);

impl LedgerObjects {
    async fn send<T: DeserializeOwned>(&self, tenant: &TenantId, message: &LedgerMessage) -> LedgerResult<T> {
        send(&self.0, tenant, message).await.map_err(LedgerError)
    }
}

#[async_trait(?Send)]
impl Ledger for LedgerObjects {
    async fn admit(&self, tenant: &TenantId, admission: &Admission) -> LedgerResult<Admitted> {
        self.send(tenant, &LedgerMessage::Admit(admission.clone())).await
    }

    async fn report(&self, tenant: &TenantId, report: &Report) -> LedgerResult<Receipt> {
        self.send(tenant, &LedgerMessage::Report(report.clone())).await
    }

    async fn charge(&self, tenant: &TenantId, rows: &[UsageRow]) -> LedgerResult<()> {
        self.send(tenant, &LedgerMessage::Charge(rows.to_vec())).await
    }

    async fn take_requests(&self, tenant: &TenantId, wanted: u32, limit: u32) -> LedgerResult<RequestBlock> {
        self.send(tenant, &LedgerMessage::TakeRequests { wanted, limit }).await
    }

    async fn usage(
        &self,
        tenant: &TenantId,
        from: Day,
        to: Day,
        after: Option<&str>,
    ) -> LedgerResult<UsagePage> {
        self.send(tenant, &LedgerMessage::Usage { from, to, after: after.map(str::to_owned) }).await
    }

    async fn erase(&self, tenant: &TenantId) -> LedgerResult<()> {
        self.send(tenant, &LedgerMessage::Erase).await
    }
}
