//! The ledgers of the tenants, as an object reaches them. Observes that no limit is exceeded without an excuse.

use super::World;
use crate::disk::Disk;
use async_trait::async_trait;
use edge_harness::ports::{Ledger, LedgerError, ledger::LedgerResult};
use edge_harness::types::{
    Admission, Admitted, Day, Receipt, Report, RequestBlock, TenantId, Timestamp, UsagePage, UsageRow,
    session::Account,
};
use serde_json::Value;
use std::rc::{Rc, Weak};

/// The ledgers, as the object at `place` reaches them.
pub struct Accounts {
    pub world: Weak<World>,
    pub place: usize,
}

impl Accounts {
    fn world(&self) -> LedgerResult<Rc<World>> {
        self.world.upgrade().ok_or_else(|| LedgerError("the world has ended".into()))
    }

    /// Performs a call, and checks that it takes no slot over the limit.
    async fn watched<T>(
        &self,
        tenant: &TenantId,
        call: impl AsyncFnOnce(Rc<World>) -> LedgerResult<T>,
        is_excused: impl FnOnce(&World, usize, usize) -> bool,
    ) -> LedgerResult<T> {
        let world = self.world()?;
        let held = |world: &World| world.accounts.slots(tenant, Timestamp(world.sched.now()));
        let Some(limit) = world.limits().concurrent_turns else { return call(world).await };
        // What the session had done when it sent the message.
        let sent_at = world.node(self.place).disk.log.borrow().len();
        self.travel(&world).await;
        let before = held(&world);
        let done = call(Rc::clone(&world)).await;
        let after = held(&world);
        if after > before && after > limit as usize && !is_excused(&world, self.place, sent_at) {
            let name = &world.node(self.place).disk.name;
            world.ledger.find(13, format!("{name} takes slot {after} of {limit}"));
        }
        self.travel(&world).await;
        done
    }

    /// Waits while a message is on its way. Its sender may be evicted in the meantime. The messages of an object take equally
    /// long, because the platform delivers them in order.
    async fn travel(&self, world: &World) {
        if !world.ledger.scenario.quiet {
            world.sched.sleep([0, 3, 40, 1][self.place % 4]).await;
        }
    }
}

#[async_trait(?Send)]
impl Ledger for Accounts {
    async fn admit(&self, tenant: &TenantId, admission: &Admission) -> LedgerResult<Admitted> {
        let admit = async |world: Rc<World>| world.accounts.admit(tenant, admission).await;
        self.watched(tenant, admit, |_, _, _| false).await
    }

    async fn report(&self, tenant: &TenantId, report: &Report) -> LedgerResult<Receipt> {
        let send = async |world: Rc<World>| world.accounts.report(tenant, report).await;
        self.watched(tenant, send, may_exceed).await
    }

    async fn charge(&self, tenant: &TenantId, rows: &[UsageRow]) -> LedgerResult<()> {
        self.world()?.accounts.charge(tenant, rows).await
    }

    async fn take_requests(&self, tenant: &TenantId, wanted: u32, limit: u32) -> LedgerResult<RequestBlock> {
        self.world()?.accounts.take_requests(tenant, wanted, limit).await
    }

    async fn usage(
        &self,
        tenant: &TenantId,
        from: Day,
        to: Day,
        after: Option<&str>,
    ) -> LedgerResult<UsagePage> {
        self.world()?.accounts.usage(tenant, from, to, after).await
    }

    async fn erase(&self, tenant: &TenantId) -> LedgerResult<()> {
        self.world()?.accounts.erase(tenant).await
    }
}

/// Returns whether the session runs for a reason for which no request could be refused, or did when its log had this many
/// records.
fn may_exceed(world: &World, place: usize, sent_at: usize) -> bool {
    let node = world.node(place);
    let until = serde_json::from_value::<Timestamp>(node.document("state/account")["slot_until"].take());
    let has_lapsed = until.is_ok_and(|until| until != Account::UNCONFIRMED && until.0 <= world.sched.now());
    let children = world.nodes().into_iter().filter(|child| {
        let is_own = child.parent().is_some_and(|parent| parent.session == node.session);
        is_own && child.tenant == node.tenant
    });
    let ends_by_itself = |kind: &str, value: &Value| kind == "turn.canceled" || value["reason"] == "expired";
    let all = records(&node.disk);
    has_lapsed
        || starts_unasked(&all)
        || starts_unasked(all.get(..sent_at).unwrap_or_default())
        || children
            .into_iter()
            .any(|child| records(&child.disk).iter().any(|(kind, own)| ends_by_itself(kind, own)))
}

/// Returns whether the newest reason to run is that a call expired, a subagent ended, or a turn was canceled. A queued message
/// starts for the reason of the turn before it.
fn starts_unasked(records: &[(String, Value)]) -> bool {
    let is_queued =
        |turn: &Value| records.iter().any(|(kind, own)| kind == "turn.queued" && own["turn"] == *turn);
    let reason =
        |(at, (kind, value)): (usize, &(String, Value))| match (kind.as_str(), value["reason"].as_str()) {
            ("turn.canceled", _) | ("turn.resumed", Some("expired" | "subagent")) => Some(true),
            ("turn.resumed", Some("decided" | "answered")) => Some(false),
            ("turn.waiting", _) if !delegates(records.get(..at).unwrap_or_default()) => Some(false),
            ("turn.started", _) if !is_queued(&value["turn"]) => Some(false),
            // A turn that was resumed for another reason, such as a restart, did not wait before.
            _ => None,
        };
    records.iter().enumerate().rev().find_map(reason).unwrap_or_default()
}

/// Returns whether a turn that waits after these records waits for a subagent, so that it keeps its slot.
fn delegates(records: &[(String, Value)]) -> bool {
    let of_step = records.iter().rev().take_while(|(kind, _)| kind != "usage.updated");
    of_step.into_iter().any(|(kind, _)| kind == "subagent.started")
}

fn records(disk: &Disk) -> Vec<(String, Value)> {
    let log = disk.log.borrow();
    let record = |json: &str| serde_json::from_str::<Value>(json).unwrap_or_default();
    log.iter().map(|written| (written.record.kind.clone(), record(&written.record.json))).collect()
}
