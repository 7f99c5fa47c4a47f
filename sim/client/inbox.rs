//! A reader of a tenant's inbox, which is away now and then, and compares the list with the disks of the sessions.

use crate::{
    dice::Dice,
    inbox_reader::{InboxReader, Waiting},
    world::{LONGEST_TRAVEL_MS, Node, World},
};
use edge_harness::ports::Inbox as _;
use edge_harness::types::{InboxFilter, InboxKind, InboxPosition, SessionId, TenantId, Timestamp, WaitKind};
use futures::executor::block_on;
use serde_json::Value;
use std::{collections::BTreeSet, rc::Rc, time::Duration};

/// How long a session may take to notify the inbox, in milliseconds. A notice may wait for the response to the one before, so both
/// may travel for the longest time.
const NOTICE_MS: u64 = 2 * LONGEST_TRAVEL_MS + 20_000;
/// How long it may take after an eviction, a refused write, or a lost notice.
const TROUBLE_MS: u64 = 180_000;

/// Starts a reader for each tenant.
pub fn start(world: &Rc<World>) {
    let sessions = &world.ledger.scenario.sessions;
    let tenants: BTreeSet<TenantId> = sessions.iter().map(|session| session.tenant.clone()).collect();
    for tenant in tenants {
        let (own, dice) = (Rc::clone(world), world.notices.borrow_mut().fork());
        world.sched.spawn(None, Box::pin(async move { read(&own, &tenant, dice).await }));
    }
}

async fn read(world: &Rc<World>, tenant: &TenantId, mut dice: Dice) {
    let (filter, mut position) = (InboxFilter::default(), InboxPosition::Start);
    while !world.closing.get() {
        let wait = Duration::from_millis(dice.within(100, 4_000));
        let Ok(changes) = world.inbox.changes(tenant, &filter, position, wait).await else {
            position = with_reader(world, tenant, |reader| reader.next);
            world.sched.sleep(500).await;
            continue;
        };
        position = with_reader(world, tenant, |reader| {
            reader.receive(changes);
            reader.next
        });
        let away = match dice.below(20) {
            0 => Some((InboxPosition::Start, dice.below(3_000))),
            1..=5 => Some((position, dice.below(9_000))),
            _ => None,
        };
        compare(world, tenant);
        if let Some((place, ms)) = away {
            position = place;
            world.sched.sleep(ms).await;
        }
    }
}

fn with_reader<T>(world: &World, tenant: &TenantId, work: impl FnOnce(&mut InboxReader) -> T) -> T {
    work(world.inbox_readers.borrow_mut().entry(tenant.clone()).or_default())
}

/// Returns the calls in the inbox.
fn listed(world: &World, tenant: &TenantId) -> BTreeSet<Waiting> {
    let found = block_on(world.inbox.list(tenant, &InboxFilter::default(), 0, usize::MAX));
    let of = |(_, own): (u64, edge_harness::types::InboxCall)| {
        (own.session, own.call.call_id.to_string(), own.call.kind.name())
    };
    found.unwrap_or_default().into_iter().map(of).collect()
}

/// Returns the calls of a session that wait, according to its disk, with the time since when.
fn open(node: &Node) -> Vec<(Waiting, u64)> {
    let turn = node.document("state/activity")["turn"]["id"].take();
    let documents = node.disk.documents.borrow();
    let suspensions =
        documents.iter().filter(|(key, _)| key.starts_with("approval/") || key.starts_with("answer/"));
    let open = suspensions.filter_map(|(_, json)| {
        let suspension: Value = serde_json::from_str(json).ok()?;
        let pending = &suspension["pending"];
        let is_open = pending["turn"] == turn && suspension["resolved"].is_null();
        let since: Timestamp = serde_json::from_value(pending["asked_at"].clone()).ok()?;
        let call = pending["call_id"].as_str()?.to_owned();
        let kind: WaitKind = serde_json::from_value(pending["kind"].clone()).ok()?;
        let kind = kind_of(&node.session, &call, kind)?;
        is_open.then(|| ((node.session.clone(), call, kind.name()), since.0))
    });
    open.collect()
}

/// Returns as what the inbox must list a call; `None` if it must not.
fn kind_of(session: &SessionId, call: &str, kind: WaitKind) -> Option<InboxKind> {
    let is_of_step = session.is_run() && (call.contains(".step.") || call.contains(".drawing."));
    match InboxKind::of(kind)? {
        InboxKind::Approval if is_of_step => Some(InboxKind::Step),
        kind => Some(kind),
    }
}

/// 21: a call that waits is in the inbox, soon after it was suspended, and no other call for long.
fn compare(world: &World, tenant: &TenantId) {
    let (now, in_inbox) = (world.sched.now(), listed(world, tenant));
    let mut waits = BTreeSet::new();
    for node in world.nodes().iter().filter(|node| node.tenant == *tenant) {
        let disturbed =
            node.crashed_at.get().max(node.disk.refused_at.get()).max(world.inbox_trouble_at.get());
        let latest = |since: u64| match disturbed {
            0 => since + NOTICE_MS,
            disturbed => since.max(disturbed) + TROUBLE_MS,
        };
        for (call, since) in open(node) {
            if !in_inbox.contains(&call) && now > latest(since) {
                world.ledger.find(21, format!("{call:?} waits and is not in the inbox"));
            }
            waits.insert(call);
        }
        let changed_at = node.disk.log.borrow().last().map_or(0, |written| written.at);
        for call in in_inbox.iter().filter(|(session, ..)| *session == node.session) {
            if !waits.contains(call) && now > latest(changed_at) {
                world.ledger.find(21, format!("{call:?} is in the inbox and does not wait"));
            }
        }
    }
}

/// Returns whether the inbox has acknowledged that no call of the session waits.
pub fn has_left(node: &Node) -> bool {
    let mark = node.document("state/background")["inbox"].take();
    let is_empty = mark["calls"].as_array().is_none_or(Vec::is_empty);
    mark.is_null() || (is_empty && mark["uncertain"] != true)
}

/// 21: at the end no call waits, so the inbox is empty. A reader that returns learns this.
pub fn check(world: &World) {
    // The end may have come during an outage.
    world.inbox.down.set(false);
    for (tenant, reader) in world.inbox_readers.borrow_mut().iter_mut() {
        let left = listed(world, tenant);
        if !left.is_empty() {
            world.ledger.find(21, format!("{left:?} stay in the inbox of {tenant}"));
        }
        loop {
            let position = reader.next;
            let filter = InboxFilter::default();
            let read = block_on(world.inbox.changes(tenant, &filter, position, Duration::ZERO));
            let Ok(changes) = read else { break };
            let more = changes.more;
            reader.receive(changes);
            if !more {
                break;
            }
        }
        if reader.calls != left {
            world.ledger.find(21, format!("a reader of {tenant} has {:?} and not {left:?}", reader.calls));
        }
    }
}
