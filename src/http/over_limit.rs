//! Refuses requests over a limit of their tenant, at the pace of `refusal_pace`.

use super::gateway::Gateway;
use crate::types::{Problem, Reached, TenantId, Timestamp};

/// Refuses a request of a tenant that has reached a limit and should try again at `retry_at`.
pub(super) async fn refuse(
    gateway: &Gateway,
    tenant: &TenantId,
    reached: Reached,
    retry_at: Timestamp,
) -> Problem {
    hold(gateway, tenant).await;
    let now = gateway.clock.now();
    Problem::over_limit(reached, now).retry_at(retry_at, now)
}

/// Waits until the next refusal of a tenant may be sent.
pub async fn hold(gateway: &Gateway, tenant: &TenantId) {
    let delay = gateway.refusal_pace.delay(tenant, gateway.clock.now());
    if !delay.is_zero() {
        gateway.clock.sleep(delay).await;
    }
}
