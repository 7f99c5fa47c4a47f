//! The page in a real browser, against the real Worker: runs `web/test` with Node.

use crate::{clients::run_against, support::Server};
use serde_json::json;

#[test]
fn in_chromium() {
    run_against(
        &Server::start(json!({"SUBAGENTS": "[]", "BACKGROUND_TASKS": "on"})),
        "web",
        "test/page.test.mjs",
    );
}

#[test]
fn the_reference_in_chromium() {
    run_against(&Server::start(json!({})), "web", "test/docs.test.mjs");
}
