//! Whether a deployment can serve requests: its settings, its databases and its object store.

use super::gateway::{Gateway, GatewayCall};
use super::response::{self, Response};
use crate::ports::within;
use crate::types::{ErrorCode, Problem, session::SCHEMA};
use http::StatusCode;
use serde_json::json;
use std::time::Duration;

/// How long a check may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// `GET /readyz`. A malformed setting is named without its value, because this route is public.
pub(super) async fn ready(call: &GatewayCall<'_>) -> Result<Response, Problem> {
    let gateway = call.gateway;
    let malformed: Vec<_> = gateway.config.malformed.iter().map(ToString::to_string).collect();
    if !malformed.is_empty() {
        return Err(Problem::new(ErrorCode::NotConfigured, malformed.join("\n")));
    }
    let now = gateway.clock.now();
    let result = match gateway.readiness.get(now) {
        Some(result) => result,
        None => {
            let result = check(gateway).await;
            gateway.readiness.put(result.clone(), now);
            result
        }
    };
    result?;
    let version = env!("CARGO_PKG_VERSION");
    response::json(StatusCode::OK, &json!({ "status": "ok", "version": version, "schema": SCHEMA }))
}

async fn check(gateway: &Gateway) -> Result<(), Problem> {
    let checked = within(&*gateway.clock, TIMEOUT, check_stores(gateway)).await;
    checked.unwrap_or_else(|unfinished| {
        Err(Problem::unavailable("a database or the object store does not respond", unfinished.to_string()))
    })
}

async fn check_stores(gateway: &Gateway) -> Result<(), Problem> {
    let databases = gateway.directory.check().await;
    databases.map_err(|error| {
        let detail = "a database cannot be read, or lacks the newest migration; see the log";
        Problem::unavailable(detail, error.to_string())
    })?;
    gateway.files.check().await.map_err(|error| {
        Problem::unavailable("the object store cannot be read; see the log", error.to_string())
    })
}
