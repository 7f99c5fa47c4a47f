//! Records what tenants store on each day. The routes of usage show it.

use super::gateway::Gateway;
use serde_json::json;

/// Runs from cron: records what tenants store, once a day.
pub async fn sweep(gateway: &Gateway) {
    if let Err(error) = gateway.directory.record_storage(gateway.clock.now()).await {
        gateway.log.error(&json!({ "event": "storage.failed", "cause": error.to_string() }));
    }
}
