//! The inbox: the calls that wait in all sessions of a caller.

use super::operation::{Operation, SSE};
use crate::http::page::Page;
use crate::http::pending::{NewClaim, RunnerReport};
use crate::types::ErrorCode::{Claimed, NotWaiting, Unavailable};
use crate::types::{InboxCall, Pending, RemovedCall};
use serde_json::json;

pub(super) fn operations() -> Vec<Operation> {
    let kinds = json!({ "enum": ["approval", "step", "question", "plan", "external", "auth"] });
    let filtered = |operation: Operation| {
        operation
            .query("user", "Only sessions of this user.")
            .query("agent", "Only sessions of this agent.")
            .query("session", "Only this session.")
            .query_as(
                "kind",
                "Only calls of this kind. A call of a run's step that needs an approval has the kind `step`.",
                kinds.clone(),
            )
            .fails(&[Unavailable])
    };
    vec![
        filtered(Operation::get("/v1/pending", "listPending", "Lists the calls that wait for a person or a client."))
            .text("In the order in which they began to wait or last changed, oldest first.")
            .list()
            .returns::<Page<InboxCall>>(200, "A page of calls."),
        filtered(Operation::get("/v1/pending/events", "streamPending", "Streams the changes of the list."))
            .text(
                "`pending.added` has a call that waits, or whose claim has changed; `pending.removed` one that no longer \
                 waits. A stream begins with `pending.reset` and all calls that wait, unless it continues after a recent id.",
            )
            .query("after", "The id of the last event that you have.")
            .header("Last-Event-ID", "The id of the last event that you have. Takes precedence.")
            .returns_as(200, "The events.", SSE, |schemas| {
                let (added, removed) = (schemas.written::<InboxCall>(), schemas.written::<RemovedCall>());
                let data = json!({ "anyOf": [added, removed, { "type": "object" }] });
                let data =
                    json!({ "type": "string", "contentMediaType": "application/json", "contentSchema": data });
                let text = json!({ "type": "string" });
                json!({
                    "type": "object", "properties": { "id": text, "event": text, "data": data }, "required": ["data"],
                })
            }),
        Operation::post(
            "/v1/pending/{call_id}/claim",
            "claimCall",
            "Claims the call of an external tool, so that no other client runs it.",
        )
        .text(
            "Claim it again with the same `runner` to extend the lease. While the claim lasts, only this runner can answer. \
             If the lease ends first, the call can be claimed again if its tool is `idempotent`; otherwise its outcome is \
             `unknown`.",
        )
        .query("user", "The user of the session.")
        .query("session", "The session of the call. Needed only if several have a call with this id.")
        .body::<NewClaim>(json!({ "runner": "laptop-7", "lease_s": 60 }))
        .returns::<Pending>(200, "The call, with its claim.")
        .fails(&[Claimed, NotWaiting, Unavailable]),
        Operation::post(
            "/v1/pending/{call_id}/progress",
            "reportProgress",
            "Shows the readers of the session how far a claimed call is.",
        )
        .text(
            "The session streams it as `tool.progress` and does not store it. `output` and `message` have at most 16 KiB each. \
             Send a report every few seconds: each counts as a request.",
        )
        .query("user", "The user of the session.")
        .query("session", "The session of the call. Needed only if several have a call with this id.")
        .body::<RunnerReport>(json!({ "runner": "laptop-7", "output": "compiling…\n" }))
        .returns_nothing(204, "It is shown.")
        .fails(&[Claimed, NotWaiting, Unavailable]),
    ]
}
