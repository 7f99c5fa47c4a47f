//! 13: the ledger of a tenant has the usage that the logs of its sessions have, and no slot is held at the end. 18: the
//! audit trail of a tenant has the decisions that the logs have, each once.

use super::{View, view::Entry};
use crate::world::{Node, World};
use edge_harness::ledger::ADMISSION_LEASE;
use edge_harness::ports::{Directory as _, Ledger as _};
use edge_harness::types::{AuditId, AuditQuery, Day, TenantId, Timestamp, UsageTotals};
use futures::executor::block_on;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The types of records that a session reports.
const REPORTED: [&str; 4] = ["turn.completed", "turn.failed", "turn.canceled", "usage.other"];

/// Returns whether a session has reported everything in its log.
pub fn has_reported(node: &Node) -> bool {
    let log = node.disk.log.borrow();
    let last = log
        .iter()
        .rev()
        .map(|written| &written.record)
        .find(|record| REPORTED.contains(&record.kind.as_str()));
    let documents = node.disk.documents.borrow();
    // Records without documents are those of a fork that could not be stored.
    let (Some(last), false) = (last, documents.is_empty()) else { return true };
    let account =
        documents.get("state/account").and_then(|json| serde_json::from_str::<serde_json::Value>(json).ok());
    account.is_some_and(|account| {
        account["reported"].as_u64() >= Some(last.seq) && account["unaudited"].is_null()
    })
}

/// What a record counts: turns, steps, and tokens.
type Counts = (u64, u64, u64);

pub fn check(world: &World, views: &[(Rc<Node>, View)]) {
    world.accounts.down.set(false);
    world.accounts.unanswered.set(0);
    let mut tenants: BTreeMap<&TenantId, (Counts, bool)> = BTreeMap::new();
    let mut decided: BTreeMap<&TenantId, BTreeSet<AuditId>> = BTreeMap::new();
    // The copied records of a fork are reported by its origin.
    let mut seen = BTreeSet::new();
    let is_fork =
        |view: &View| view.entries.first().is_some_and(|entry| entry.value["forked_from"].is_string());
    let (forks, origins): (Vec<_>, Vec<_>) = views.iter().partition(|(_, view)| is_fork(view));
    for (node, view) in origins.into_iter().chain(forks) {
        let (sums, has_erased) = tenants.entry(&node.tenant).or_default();
        *has_erased |= world.witnesses.borrow()[node.place].erased;
        let is_child = node.parent().is_some();
        // A record of a fork that is older than the fork, or as old and also in the origin.
        let created = view.entries.first().and_then(|entry| entry.value["at"].as_str());
        let from = view.entries.first().and_then(|entry| entry.value["forked_from"].as_str());
        let origin =
            views.iter().find(|(other, _)| other.tenant == node.tenant && Some(&*other.session) == from);
        let is_copied = |entry: &Entry| {
            let at = entry.value["at"].as_str();
            // Nothing is known of an erased origin.
            let is_of_origin = || {
                origin.is_none_or(|(_, origin)| {
                    origin.entries.is_empty() || origin.entries.iter().any(|own| own.json == entry.json)
                })
            };
            from.is_some() && (at < created || at == created && is_of_origin())
        };
        for entry in view.entries.iter().filter(|entry| {
            let is_new = seen.insert((&node.tenant, &entry.turn, entry.seq, &entry.json));
            is_new || !is_fork(view)
        }) {
            let number = |value: &serde_json::Value| value.as_u64().unwrap_or_default();
            match entry.kind.as_str() {
                "usage.updated" if entry.value["model"].is_string() => {
                    sums.2 += number(&entry.value["step"]["total_tokens"]);
                }
                "usage.other" => sums.2 += number(&entry.value["usage"]["total_tokens"]),
                "turn.completed" | "turn.failed" | "turn.canceled" if entry.value["budget"].is_object() => {
                    sums.0 += u64::from(!is_child);
                    sums.1 += number(&entry.value["steps"]);
                }
                "approval.decided" if entry.value["by"].is_object() && !is_copied(entry) => {
                    let at = entry.value["at"].as_str().and_then(Timestamp::parse).unwrap_or_default();
                    let id = AuditId::of_record(at, &node.session, entry.seq);
                    decided.entry(&node.tenant).or_default().insert(id);
                }
                _ => {}
            }
        }
    }
    let now = Timestamp(world.sched.now());
    for (tenant, (logged, has_erased)) in tenants {
        let mut used = UsageTotals::default();
        let days = (Day::of(now).earlier(3), Day::of(now));
        let page = block_on(world.accounts.usage(tenant, days.0, days.1, None)).unwrap_or_default();
        page.rows.into_iter().for_each(|row| used += row.totals);
        let counted = (used.turns, used.steps, used.tokens.total_tokens);
        // The usage of an erased session stays, but its log does not.
        let fits = match has_erased {
            true => counted.0 >= logged.0 && counted.1 >= logged.1 && counted.2 >= logged.2,
            false => counted == logged,
        };
        if !fits {
            world.ledger.find(13, format!("{tenant} has used {counted:?}, but its logs have {logged:?}"));
        }
        // An admission whose turn was not stored ends with its lease.
        let slots = world.accounts.slots(tenant, now + ADMISSION_LEASE);
        if slots > 0 {
            world.ledger.find(13, format!("{tenant} holds {slots} slots without a turn"));
        }
        let logged = decided.remove(tenant).unwrap_or_default();
        let query = AuditQuery { limit: usize::MAX, ..AuditQuery::default() };
        let rows = block_on(world.directory.audit(tenant, &query)).unwrap_or_default();
        let rows: BTreeSet<AuditId> = rows.into_iter().map(|row| row.id).collect();
        if !rows.is_superset(&logged) || (!has_erased && rows != logged) {
            world
                .ledger
                .find(18, format!("{tenant} has decisions {logged:?}, but its audit trail has {rows:?}"));
        }
    }
}
