//! What the descriptions of other protocols have in common, and the pages of consent. Each face describes its own routes.

use super::operation::{Operation, SSE};
use super::schemas::Schemas;
use super::shapes::Foreign;
use crate::http::faces;
use crate::types::ErrorCode;
use crate::types::ErrorCode::{
    AlreadyDecided, Internal, NotFound, NotWaiting, QueueFull, QuotaExceeded, RateLimited, SessionBusy,
    StaleArgsHash, StalePlan, SubagentSession, Unauthenticated, Unavailable,
};
use serde_json::{Value, json};

/// The problems of a request that posts a message.
pub(in crate::http) const POSTS: &[ErrorCode] = &[
    SessionBusy,
    SubagentSession,
    QueueFull,
    QuotaExceeded,
    NotWaiting,
    AlreadyDecided,
    StaleArgsHash,
    StalePlan,
];

pub(super) fn operations() -> Vec<Operation> {
    let mut all = faces::operations();
    all.extend(consent());
    all
}

fn consent() -> [Operation; 2] {
    [
        Operation::get(
            "/client-metadata.json",
            "getClientMetadata",
            "The metadata of the deployment as a client of OAuth.",
        )
        .text("Authorization servers read it when a user gives consent at a server of MCP.")
        .returns::<Foreign>(200, "The metadata.")
        .fails(&[NotFound, Internal]),
        Operation::get(
            "/v1/oauth/callback",
            "showConsentCode",
            "Where an authorization server sends the browser of a user who was asked for consent.",
        )
        .text("The page shows a code. The call that waits for the consent continues when it gets this code as its answer.")
        .query("state", "The state of the request for consent, which is valid once.")
        .query("code", "The code; absent if the user has refused.")
        .query("iss", "The authorization server.")
        .returns_bytes(200, "The code.", "text/plain")
        .returns_bytes(400, "The user is not connected; the text says why.", "text/plain")
        .fails(&[Unauthenticated, RateLimited, Internal, Unavailable]),
    ]
}

/// Describes a WebSocket.
pub(in crate::http) fn socket(path: &'static str, id: &'static str, text: &'static str) -> Operation {
    Operation::get(path, id, text)
        .header("Upgrade", "`websocket`.")
        .returns_nothing(101, "The WebSocket is open.")
}

/// Returns the schema of an event of a stream.
fn event(_: &mut Schemas) -> Value {
    json!({ "type": "object", "properties": { "data": { "type": "string" } }, "required": ["data"] })
}

impl Operation {
    /// Adds a response that is a stream of another protocol.
    pub(in crate::http) fn streams(self, text: &'static str) -> Self {
        self.returns_as(200, text, SSE, event)
    }

    /// Adds a stream to the last response.
    pub(in crate::http) fn or_stream(self) -> Self {
        self.or(SSE, event)
    }
}
