//! Repeats the copying of storage limits to shards. The request that changes the limits copies them, but may fail before
//! it has.

use super::gateway::Gateway;
use crate::ports::directory::DirectoryResult;
use crate::types::time::in_turn;
use serde_json::json;

/// Maximum number of tenants that one run reads, and of those whose limits it copies.
const TENANTS_READ: usize = 100;
const TENANTS_PER_RUN: usize = 5;

/// Runs from cron: copies limits that some shards may not have.
pub async fn sweep(gateway: &Gateway) {
    if let Err(error) = copy_due(gateway).await {
        gateway.log.error(&json!({ "event": "limits.failed", "cause": error.to_string() }));
    }
}

async fn copy_due(gateway: &Gateway) -> DirectoryResult<()> {
    let due = gateway.directory.limits_due(TENANTS_READ).await?;
    let mut result = Ok(());
    for tenant in in_turn(due, TENANTS_PER_RUN, gateway.clock.now()) {
        // A tenant whose shard is down does not block others.
        result = result.and(gateway.directory.copy_limits(&tenant).await);
    }
    result
}
