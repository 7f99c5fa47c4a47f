//! The ledgers of tenants in memory.

use super::MemorySessionStore;
use crate::ledger::TenantLedger;
use crate::ports::{Clock, Ledger, LedgerError, ledger::LedgerResult};
use crate::types::{
    Admission, Admitted, Day, Receipt, Report, RequestBlock, TenantId, Timestamp, UsagePage, UsageRow,
};
use async_trait::async_trait;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};

/// The ledgers of tenants. Calls are counted, and can be made to fail.
pub struct InMemoryLedger {
    clock: Rc<dyn Clock>,
    stores: RefCell<BTreeMap<TenantId, Rc<MemorySessionStore>>>,
    /// Whether all calls fail.
    pub down: Cell<bool>,
    /// Number of calls so far.
    pub calls: Cell<u32>,
    /// The next calls whose response is lost: the call is performed and fails.
    pub unanswered: Cell<u32>,
}

impl InMemoryLedger {
    /// Creates empty ledgers.
    pub fn new(clock: Rc<dyn Clock>) -> Self {
        Self {
            clock,
            stores: RefCell::default(),
            down: Cell::default(),
            calls: Cell::default(),
            unanswered: Cell::default(),
        }
    }

    /// Returns whether the ledger of a tenant has stored nothing.
    pub fn is_empty(&self, tenant: &TenantId) -> bool {
        use crate::ports::SessionStore;
        self.stores.borrow().get(tenant).is_none_or(|store| !store.exists().unwrap_or_default())
    }

    /// Returns how many sessions of a tenant hold a slot that lasts longer than until `at`.
    pub fn slots(&self, tenant: &TenantId, at: Timestamp) -> usize {
        self.call(tenant, |ledger, _| ledger.slots_held(at)).unwrap_or_default()
    }

    fn call<T>(
        &self,
        tenant: &TenantId,
        work: impl FnOnce(TenantLedger, Timestamp) -> Result<T, crate::ports::StoreError>,
    ) -> LedgerResult<T> {
        self.calls.set(self.calls.get() + 1);
        if self.down.get() {
            return Err(LedgerError("switched off".into()));
        }
        let store = Rc::clone(self.stores.borrow_mut().entry(tenant.clone()).or_default());
        let done = TenantLedger::open(store).and_then(|ledger| work(ledger, self.clock.now()));
        if self.unanswered.get() > 0 {
            self.unanswered.set(self.unanswered.get() - 1);
            return Err(LedgerError("the response was lost".into()));
        }
        done.map_err(|error| LedgerError(error.to_string()))
    }
}

#[async_trait(?Send)]
impl Ledger for InMemoryLedger {
    async fn admit(&self, tenant: &TenantId, admission: &Admission) -> LedgerResult<Admitted> {
        self.call(tenant, |ledger, now| ledger.admit(admission, now))
    }

    async fn report(&self, tenant: &TenantId, report: &Report) -> LedgerResult<Receipt> {
        self.call(tenant, |ledger, now| ledger.report(report, now))
    }

    async fn charge(&self, tenant: &TenantId, rows: &[UsageRow]) -> LedgerResult<()> {
        self.call(tenant, |ledger, now| ledger.charge(rows, now))
    }

    async fn take_requests(&self, tenant: &TenantId, wanted: u32, limit: u32) -> LedgerResult<RequestBlock> {
        self.call(tenant, |ledger, now| ledger.take_requests(wanted, limit, now))
    }

    async fn usage(
        &self,
        tenant: &TenantId,
        from: Day,
        to: Day,
        after: Option<&str>,
    ) -> LedgerResult<UsagePage> {
        self.call(tenant, |ledger, _| ledger.usage(from, to, after))
    }

    async fn erase(&self, tenant: &TenantId) -> LedgerResult<()> {
        self.call(tenant, |ledger, _| ledger.erase())
    }
}
