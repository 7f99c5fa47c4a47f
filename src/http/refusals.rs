//! The daily limits that tenants have reached, as their sessions have learned from the ledgers. While the isolate
//! remembers a refusal, it forwards no message that the ledger would refuse.

use crate::types::expiring::Expiring;
use crate::types::{Quota, Reached, TenantId, TimedLimit, Timestamp};
use std::time::Duration;

/// How long a refusal is remembered. Not for the whole day, because a message that is removed from a queue leaves its turn
/// to another one.
const REMEMBERED: Duration = Duration::from_secs(10);
/// Maximum number of refusals.
const MAX_REFUSALS: usize = 1_000;

/// The refusals of the last seconds, by tenant.
pub struct Refusals(Expiring<(Quota, Reached)>);

impl Default for Refusals {
    fn default() -> Self {
        Self(Expiring::new(MAX_REFUSALS))
    }
}

impl Refusals {
    /// Adds the refusal of a session whose tenant had this quota. Only daily limits that are used up are remembered:
    /// whether a session may start one of the concurrent turns, or has to wait for the cost that others hold, depends on
    /// the session.
    pub fn add(&self, tenant: &TenantId, quota: Quota, reached: Reached, now: Timestamp) {
        let is_daily = match reached.limit {
            TimedLimit::RequestsPerMin | TimedLimit::ConcurrentTurns => false,
            TimedLimit::TurnsPerDay | TimedLimit::TokensPerDay | TimedLimit::CostUsdPerDay => !reached.held,
        };
        if is_daily {
            let end = reached.resets_at.min(now + REMEMBERED);
            self.0.put(tenant.to_string(), (quota, reached), end, now);
        }
    }

    /// Returns the daily limit that a tenant with this quota has reached.
    pub(super) fn find(&self, tenant: &TenantId, quota: Quota, now: Timestamp) -> Option<Reached> {
        self.0.get(tenant, now).filter(|(refused, _)| *refused == quota).map(|(_, reached)| reached)
    }
}
