//! Erases deleted tenants. Each request and each sweep erases a bounded number of sessions, because each
//! erasure wakes an object.

use super::auth_cache::CREDENTIAL_TTL;
use super::gateway::Gateway;
use super::placement::SHARD_TTL;
use crate::types::{Problem, SessionId, TenantId, Timestamp};
use serde_json::json;
use std::time::Duration;

/// Maximum number of sessions that one request or one sweep erases.
const ERASED_AT_ONCE: usize = 40;
/// Maximum number of deleted tenants that one sweep processes.
const DELETED_AT_ONCE: usize = 10;
/// Returns the minimum time before the id of a deleted tenant can be used again. By then every isolate's cache
/// has dropped the tenant's keys and shard: a cached key could open the next tenant with that id.
fn id_held() -> Duration {
    CREDENTIAL_TTL.max(SHARD_TTL) * 2
}

/// Erases as much of a newly deleted tenant as one request may.
pub(super) async fn begin(gateway: &Gateway, tenant: &TenantId) {
    let mut budget = ERASED_AT_ONCE;
    // The tenant is marked as deleted, so the sweep does what fails here.
    let sessions = erase_sessions(gateway, tenant, &mut budget).await;
    for done in [sessions, erase_files(gateway, tenant).await] {
        if let Err(error) = done {
            gateway
                .log
                .error(&json!({ "event": "erasure.failed", "tenant": tenant, "cause": error.to_string() }));
        }
    }
}

/// Runs from cron: continues the erasure of deleted tenants, and removes expired rows and objects that no
/// file refers to. Bounded; returns whether another sweep should follow at once.
///
/// # Errors
/// When the directory or the file store fails.
pub async fn sweep(gateway: &Gateway) -> Result<bool, Problem> {
    let now = gateway.clock.now();
    let mut budget = ERASED_AT_ONCE;
    let mut more = false;
    for (tenant, since) in gateway.directory.deleted_tenants(DELETED_AT_ONCE).await? {
        match erase(gateway, &tenant, now.since(since) >= id_held(), &mut budget).await {
            Ok(left) => more |= left,
            // One failed shard must not block the tenants of the others.
            Err(error) => gateway
                .log
                .error(&json!({ "event": "erasure.failed", "tenant": tenant, "cause": error.to_string() })),
        }
    }
    let (collected, expired) = (gateway.files.collect(now).await, gateway.directory.expire(now).await);
    Ok(collected? || expired? || more || budget == 0)
}

/// Erases the data of a deleted tenant, and the tenant itself if `last`. Returns whether files are left.
async fn erase(
    gateway: &Gateway,
    tenant: &TenantId,
    last: bool,
    budget: &mut usize,
) -> Result<bool, Problem> {
    let no_sessions = erase_sessions(gateway, tenant, budget).await?;
    // After the sessions, because a running session may still write files.
    let no_files = erase_files(gateway, tenant).await?;
    if no_sessions {
        // After the sessions, whose last reports it counts.
        gateway.ledger.erase(tenant).await?;
    }
    if no_sessions && no_files && last {
        gateway.directory.purge_tenant(tenant).await?;
    }
    Ok(!no_files)
}

/// Erases up to `budget` sessions of a tenant; returns whether none is left. A session that cannot be erased
/// is left for the next sweep.
async fn erase_sessions(gateway: &Gateway, tenant: &TenantId, budget: &mut usize) -> Result<bool, Problem> {
    let mut is_empty = true;
    let mut before: Option<(Timestamp, SessionId)> = None;
    loop {
        let after = before.as_ref().map(|(at, id)| (*at, id));
        // One more than may be erased: if it is found, some are left.
        let page = gateway.directory.sessions(tenant, None, None, after, *budget + 1, true).await?;
        let is_last = page.len() <= *budget;
        for entry in page.into_iter().take(*budget) {
            *budget -= 1;
            match gateway.eraser.erase(tenant, &entry.id).await {
                Ok(()) => gateway.directory.delete_session(tenant, &entry.id).await?,
                Err(error) => {
                    is_empty = false;
                    gateway.log.error(&json!({
                        "event": "erasure.session_failed", "tenant": tenant, "session": entry.id, "cause": error.to_string(),
                    }));
                }
            }
            before = Some((entry.created_at, entry.id));
        }
        if is_last {
            return Ok(is_empty);
        }
        if *budget == 0 {
            return Ok(false);
        }
    }
}

/// Erases memories and files of a tenant; returns whether none is left.
async fn erase_files(gateway: &Gateway, tenant: &TenantId) -> Result<bool, Problem> {
    Ok(gateway.memories.erase(tenant, None).await? && gateway.files.erase(tenant).await?)
}
