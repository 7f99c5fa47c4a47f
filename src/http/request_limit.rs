//! The limit of a tenant's requests. The gateway takes requests from the tenant's ledger in blocks, so that most requests
//! need no call. It is the only limit that does not fail closed: a request that costs money is also admitted by the
//! session.

use super::gateway::Gateway;
use super::over_limit;
use super::request_blocks::{Refused, Taken};
use crate::types::{Principal, Problem, Reached, TenantId, TimedLimit};
use serde_json::json;
use std::time::Duration;

/// How long a request waits for a block that another request has asked for, before it looks again. The other request
/// cannot wake it: on Cloudflare, a request must not continue in the context of another one.
const WAIT: Duration = Duration::from_millis(10);

/// Counts a request of a tenant.
///
/// # Errors
/// `rate_limited` if the tenant has reached its limit.
pub async fn count(gateway: &Gateway, caller: &Principal) -> Result<(), Problem> {
    let limits = &caller.policy.limits;
    let Some(limit) = limits.requests_per_min.or(gateway.config.limits.requests_per_min) else {
        return Ok(());
    };
    let (tenant, requests) = (&caller.tenant, &gateway.requests);
    let mut waits = 0;
    let asked = loop {
        match requests.take(tenant, limit, waits, gateway.clock.now()) {
            Taken::Granted => return Ok(()),
            Taken::Refused(refused) => return Err(refuse(gateway, tenant, refused).await),
            Taken::Ask(block) => break block,
            Taken::Wait => gateway.clock.sleep(WAIT).await,
        }
        waits += 1;
    };
    match gateway.ledger.take_requests(tenant, asked, limit).await {
        Ok(block) => match requests.add(tenant, limit, asked, block) {
            Ok(()) => Ok(()),
            Err(refused) => Err(refuse(gateway, tenant, refused).await),
        },
        Err(error) => {
            requests.failed(tenant);
            gateway.log.error(
                &json!({ "event": "requests.not_counted", "tenant": tenant, "cause": error.to_string() }),
            );
            Ok(())
        }
    }
}

async fn refuse(gateway: &Gateway, tenant: &TenantId, Refused { resets_at, retry_at }: Refused) -> Problem {
    let reached = Reached { limit: TimedLimit::RequestsPerMin, resets_at, held: false };
    over_limit::refuse(gateway, tenant, reached, retry_at).await
}
