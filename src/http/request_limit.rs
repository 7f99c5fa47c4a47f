//! The limit of a tenant's requests. The gateway takes requests from the tenant's ledger in blocks, so that most requests
//! need no call. It is the only limit that does not fail closed: a request that costs money is also admitted by the
//! session.

use super::gateway::Gateway;
use crate::types::{Principal, Problem, Reached, RequestBlock, TimedLimit};
use serde_json::json;

/// The share of the limit that is taken at once, as a divisor. An isolate may leave up to this share unused.
const BLOCKS_PER_MINUTE: u32 = 20;
/// Maximum size of a block.
const MAX_BLOCK: u32 = 100;

/// Counts a request of a tenant.
///
/// # Errors
/// `rate_limited` if the tenant has reached its limit.
pub async fn count(gateway: &Gateway, caller: &Principal) -> Result<(), Problem> {
    let limits = &caller.policy.limits;
    let Some(limit) = limits.requests_per_min.or(gateway.config.limits.requests_per_min) else {
        return Ok(());
    };
    let (tenant, now) = (&caller.tenant, gateway.clock.now());
    let refused = |resets_at| {
        let reached = Reached { limit: TimedLimit::RequestsPerMin, resets_at };
        Problem::over_limit(reached, gateway.clock.now())
    };
    if let Some(taken) = gateway.requests.take(tenant, now) {
        return taken.map_err(refused);
    }
    let wanted = (limit / BLOCKS_PER_MINUTE).clamp(1, MAX_BLOCK);
    match gateway.ledger.take_requests(tenant, wanted, limit).await {
        Ok(block) => {
            let left = RequestBlock { granted: block.granted.saturating_sub(1), ..block };
            if block.granted != 1 {
                gateway.requests.add(tenant, left, now);
            }
            if block.granted == 0 { Err(refused(block.ends_at)) } else { Ok(()) }
        }
        Err(error) => {
            gateway.log.error(
                &json!({ "event": "requests.not_counted", "tenant": tenant, "cause": error.to_string() }),
            );
            Ok(())
        }
    }
}
