//! The pace at which requests over a limit of their tenant are refused.
//!
//! A client that ignores `retry-after` repeats a request as soon as it is refused. 500 refused requests that arrive
//! together take long enough to be noticed by other tenants. So the gateway holds a response for some seconds if its
//! tenant was refused many times. While a client waits, it sends nothing.

use crate::types::expiring::Expiring;
use crate::types::{TenantId, Timestamp};
use std::time::Duration;

/// The time between two refusals of a tenant.
const APART: Duration = Duration::from_millis(20);
/// The time whose refusals may be sent at once, so that a client with a few requests in parallel waits for none.
const BURST: Duration = Duration::from_secs(1);
/// How long a response is held at most. Further requests are refused at once, because each that is held takes memory.
const LONGEST: Duration = Duration::from_secs(10);
/// Maximum number of tenants.
const MAX_TENANTS: usize = 1_000;

/// When the next refusal of each tenant is due.
pub struct RefusalPace(Expiring<Timestamp>);

impl Default for RefusalPace {
    fn default() -> Self {
        Self(Expiring::new(MAX_TENANTS))
    }
}

impl RefusalPace {
    /// Returns how long a refusal of a tenant has to be held.
    pub(super) fn delay(&self, tenant: &TenantId, now: Timestamp) -> Duration {
        let due = self.0.get(tenant, now).unwrap_or(now);
        let delay = due.since(now).saturating_sub(BURST);
        if delay >= LONGEST {
            return Duration::ZERO;
        }
        self.0.put(tenant.to_string(), due + APART, due + APART, now);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    /// Returns the delays of refusals at a time, in milliseconds.
    fn delays(pace: &RefusalPace, tenant: &str, count: usize, now: u64) -> Vec<u128> {
        (0..count).map(|_| pace.delay(&tenant.into(), Timestamp(now)).as_millis()).collect()
    }

    #[test]
    fn refusals_after_a_burst_are_apart() {
        let pace = RefusalPace::default();
        let first = delays(&pace, "acme", 54, 0);
        assert!(first[..51].iter().all(|delay| *delay == 0));
        assert_eq!(first[51..], [20, 40, 60]);
        assert_eq!(delays(&pace, "other", 1, 0), [0]);
        assert_eq!(delays(&pace, "acme", 2, 70), [10, 30]);
        assert_eq!(delays(&pace, "acme", 1, 10_000), [0], "after a pause");
    }

    #[test]
    fn the_number_of_refusals_that_are_held_is_bounded() {
        let pace = RefusalPace::default();
        let all = delays(&pace, "acme", 1_000, 0);
        assert_eq!(all[549..552], [9_980, 0, 0]);
        assert_eq!(all.iter().filter(|delay| **delay > 0).count(), 499);
        assert_eq!(delays(&pace, "acme", 2, 20), [9_980, 0], "a place is free");
    }
}
