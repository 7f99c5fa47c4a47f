//! Runs: jobs of steps.

use super::events;
use super::operation::{Operation, SSE};
use crate::http::page::Page;
use crate::http::session::runs::{NewRun, RunRetry, StepApproval};
use crate::runs::RunView;
use crate::types::ErrorCode::{
    AlreadyDecided, NotWaiting, QuotaExceeded, SessionBusy, StaleArgsHash, TransitionNotAllowed, Unavailable,
};
use serde_json::json;

pub(super) fn operations() -> Vec<Operation> {
    let states =
        json!({ "enum": ["queued", "running", "waiting", "succeeded", "failed", "canceled", "unknown"] });
    vec![
        Operation::post("/v1/runs", "createRun", "Starts a run.")
            .text(
                "A run is a session whose id begins with `run_`: its events, approvals, answers and artifacts have the routes \
                 of sessions, too. It takes no messages.",
            )
            .query("user", "The user, if the body names none.")
            .query("agent", "The agent, if the body names none.")
            .body::<NewRun>(json!({ "agent": "coder", "goal": "Make the tests pass." }))
            .returns::<RunView>(202, "The run is accepted.")
            .with("Location", "The path of the run.")
            .fails(&[TransitionNotAllowed, QuotaExceeded, Unavailable]),
        Operation::get("/v1/runs", "listRuns", "Lists runs, newest first.")
            .text("A page has at most 50 runs. A page of one status can have fewer runs than `limit` although more follow. \
                 A run that cannot be read at the moment has the status `unknown`, and only what the list stores.")
            .query("user", "Only runs of this user.")
            .query("agent", "Only runs of this agent.")
            .query_as("status", "Only runs in this state.", states)
            .list()
            .returns::<Page<RunView>>(200, "A page of runs.")
            .fails(&[Unavailable]),
        Operation::get("/v1/runs/{id}", "getRun", "Returns a run.").returns::<RunView>(200, "The run."),
        Operation::get("/v1/runs/{id}/events", "streamRunEvents", "Streams or returns the events of a run.")
            .text("The same as the events of a session.")
            .query("after", "The id of the last event that you have.")
            .query("until", "`idle`: the stream ends when the run has ended.")
            .query("limit", "Maximum number of records, in NDJSON only.")
            .header("Last-Event-ID", "The id of the last event that you have. Takes precedence.")
            .returns_as(200, "The events.", SSE, events::sent)
            .or("application/x-ndjson", events::record),
        Operation::post("/v1/runs/{id}/steps/{step}/approval", "decideStep", "Approves or declines a step that waits.")
            .body::<StepApproval>(json!({ "decision": "approve" }))
            .returns::<RunView>(200, "The decision is stored, or was before.")
            .fails(&[AlreadyDecided, NotWaiting, StaleArgsHash, QuotaExceeded]),
        Operation::post("/v1/runs/{id}/cancel", "cancelRun", "Cancels a run. One that has ended stays as it is.")
            .returns::<RunView>(200, "The run."),
        Operation::post("/v1/runs/{id}/retry", "retryRun", "Continues a run that has ended.")
            .text("It does the steps again that did not succeed, or a step and those that depend on it.")
            .body::<RunRetry>(json!({ "from": "test" }))
            .optional()
            .returns::<RunView>(202, "The retry is accepted.")
            .fails(&[SessionBusy, QuotaExceeded]),
        Operation::get("/v1/runs/{id}/export", "exportRun", "Returns a run, its events and its files as a zip archive.")
            .returns_bytes(200, "`run.json`, `events.ndjson`, `report.md` and `artifacts/`.", "application/zip")
            .fails(&[Unavailable]),
    ]
}
