//! The Worker: entry points, as small as the tools around them need.
#![allow(missing_docs)]

use std::panic::AssertUnwindSafe;
use worker::*;

#[event(fetch)]
async fn fetch(request: Request, env: Env, _context: Context) -> Result<Response> {
    match request.path().as_str() {
        "/healthz" => Response::from_json(&serde_json::json!({"status": "ok"})),
        _ => env.durable_object("SESSION")?.get_by_name("only")?.fetch_with_request(request).await,
    }
}

#[event(scheduled)]
async fn scheduled(event: ScheduledEvent, _env: Env, _context: ScheduleContext) {
    console_log!("scheduled: {}", event.cron());
}

/// One session.
#[durable_object]
pub struct SessionObject {
    state: AssertUnwindSafe<State>,
}

impl DurableObject for SessionObject {
    fn new(state: State, _env: Env) -> Self {
        Self { state: AssertUnwindSafe(state) }
    }

    /// Counts its requests, so that a test can see that storage outlives the process.
    async fn fetch(&self, _request: Request) -> Result<Response> {
        let storage = self.state.storage();
        let count = storage.get::<u32>("count").await?.unwrap_or(0) + 1;
        storage.put("count", count).await?;
        Response::from_json(&serde_json::json!({"count": count}))
    }
}
