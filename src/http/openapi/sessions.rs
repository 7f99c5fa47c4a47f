//! Sessions, turns, artifacts and events.

use super::events;
use super::operation::{Operation, SSE};
use super::shapes::{Aborted, Accepted, Compacted, ListedSession, Ticket, View};
use crate::http::page::Page;
use crate::http::session::{
    decisions::{AnswerBody, ApprovalBody},
    fork::ForkBody,
    message::MessageBody,
    resource::NewSession,
    update::SessionPatch,
};
use crate::http::tickets::NewTicket;
use crate::session::view::{SessionView, TurnAnswer, TurnView};
use crate::types::ErrorCode::{
    AlreadyDecided, AlreadyExists, Gone, InvalidRequest, NotConfigured, NotWaiting, QueueFull, QuotaExceeded,
    RangeNotSatisfiable, SessionBusy, StaleArgsHash, StalePlan, SubagentSession, TransitionNotAllowed,
    Unavailable,
};
use crate::types::{FileRef, Message, TaskView};
use http::Method;
use serde_json::json;

pub(super) fn operations() -> Vec<Operation> {
    let mut all = resources();
    all.extend(turns());
    all.extend(files_and_events());
    all
}

fn resources() -> Vec<Operation> {
    vec![
        Operation::post("/v1/sessions", "createSession", "Creates a session.")
            .text("You need not create a session: posting a message creates a missing one.")
            .query("user", "The user, if the body names none.")
            .query("agent", "The agent, if the body names none.")
            .body::<NewSession>(json!({ "id": "chat-1", "user": "ann", "title": "Greetings" }))
            .optional()
            .returns::<SessionView>(201, "The new session.")
            .with("Location", "The path of the session.")
            .returns::<SessionView>(200, "You already have a session with this id.")
            .fails(&[TransitionNotAllowed, QuotaExceeded]),
        Operation::get("/v1/sessions", "listSessions", "Lists sessions, newest first.")
            .query("user", "Only sessions of this user.")
            .query("agent", "Only sessions of this agent.")
            .list()
            .returns::<Page<ListedSession>>(200, "A page of sessions."),
        Operation::get("/v1/sessions/{id}", "getSession", "Returns a session.")
            .returns::<SessionView>(200, "The session."),
        Operation::new(Method::PATCH, "/v1/sessions/{id}", "updateSession", "Changes a session.")
            .text(
                "`metadata`, `state` and `permissions` are merged key by key (RFC 7396): `null` removes a key. Absent \
                 fields stay as they are.",
            )
            .body::<SessionPatch>(json!({ "title": "Tea", "metadata": { "team": "blue" } }))
            .returns::<SessionView>(200, "The session.")
            .fails(&[SubagentSession, TransitionNotAllowed]),
        Operation::delete("/v1/sessions/{id}", "deleteSession", "Erases a session with its artifacts and indexed turns.")
            .returns_nothing(204, "The session is erased.")
            .fails(&[SubagentSession]),
        Operation::post("/v1/sessions/{id}/fork", "forkSession", "Creates a session that starts as a copy of this one.")
            .body::<ForkBody>(json!({ "at_message": "msg_01a1f8d3ea00738a89419078e53ea6b0" }))
            .optional()
            .returns::<SessionView>(201, "The new session.")
            .with("Location", "The path of the new session.")
            .fails(&[AlreadyExists, QuotaExceeded]),
        Operation::get("/v1/sessions/{id}/messages", "listMessages", "Lists the conversation, oldest first.")
            .list()
            .returns::<Page<Message>>(200, "A page of messages."),
        Operation::get("/v1/sessions/{id}/view", "getView", "Returns everything that a user interface shows.")
            .returns::<View>(200, "The session at one moment."),
    ]
}

fn turns() -> Vec<Operation> {
    let post = |operation: Operation| {
        operation
            .header("Prefer", "`respond-async`: the response is a 202, at once.")
            .text(
                "The response is the turn as JSON, as soon as it ends or has to wait; with `Accept: text/event-stream` the \
                 turn's events until then; with `Prefer: respond-async` a 202 at once. If the turn fails, the status is \
                 also 200. A client that disconnects does not stop the turn.",
            )
            .returns::<TurnAnswer>(200, "The turn, or its events.")
            .or(SSE, events::sent)
            .with("X-Turn-Id", "The turn of the stream.")
            .returns::<Accepted>(202, "The message, decision or answer is stored.")
            .with("Location", "The path of the turn.")
    };
    let message = "The body has `content` or `parts`.";
    vec![
        post(
            Operation::post("/v1/sessions/{id}/messages", "postMessage", "Runs a turn.")
                .text("Creates the session if there is none.")
                .text(message)
                .query("agent", "The agent of a new session.")
                .body::<MessageBody>(json!({ "content": "Hello", "user": "ann" })),
        )
        .fails(&[SessionBusy, SubagentSession, QueueFull, QuotaExceeded]),
        post(
            Operation::post(
                "/v1/sessions/{id}/steer",
                "steerSession",
                "Aborts the turn, clears the queue and runs this message.",
            )
            .text(message)
            .body::<MessageBody>(json!({ "content": "Stop that, and say hello." })),
        )
        .fails(&[SubagentSession, QuotaExceeded]),
        Operation::post("/v1/sessions/{id}/abort", "abortTurn", "Aborts the running or waiting turn.")
            .returns::<Aborted>(200, "What was aborted."),
        Operation::post("/v1/sessions/{id}/compact", "compactSession", "Compacts the conversation now.")
            .returns::<Compacted>(200, "The tokens before and after.")
            .fails(&[SessionBusy, NotConfigured]),
        Operation::delete("/v1/sessions/{id}/queue/{item}", "removeQueuedMessage", "Removes a queued message.")
            .returns_nothing(204, "The message is removed."),
        Operation::get("/v1/sessions/{id}/turns/{turn}", "getTurn", "Returns a turn.")
            .returns::<TurnView>(200, "The turn."),
        Operation::get("/v1/sessions/{id}/tasks", "listTasks", "Lists the background tasks, oldest first.")
            .returns::<Page<TaskView>>(200, "The tasks, without their replies."),
        Operation::get("/v1/sessions/{id}/tasks/{task}", "getTask", "Returns a background task.")
            .returns::<TaskView>(200, "The task."),
        Operation::post("/v1/sessions/{id}/tasks/{task}/cancel", "cancelTask", "Cancels a background task.")
            .text("The task ends when its subagent has confirmed this. One that has ended stays as it is.")
            .returns::<TaskView>(200, "The task."),
        post(
            Operation::post(
                "/v1/sessions/{id}/approvals/{call_id}",
                "decideCall",
                "Decides on a call that waits for permission.",
            )
            .text("A call with `\"by\": \"approver\"` can only be approved with the scopes `chat` and `approve`.")
            .body::<ApprovalBody>(json!({ "decision": "approve" })),
        )
        .fails(&[AlreadyDecided, NotWaiting, StaleArgsHash, QuotaExceeded]),
        post(
            Operation::post(
                "/v1/sessions/{id}/answers/{call_id}",
                "answerCall",
                "Answers a call that waits for an answer.",
            )
            .text("The body has `answer` or `error`.")
            .body::<AnswerBody>(json!({ "answer": "red" })),
        )
        .fails(&[AlreadyDecided, NotWaiting, StaleArgsHash, StalePlan, QuotaExceeded]),
    ]
}

fn files_and_events() -> Vec<Operation> {
    let cursor = "The id of the last event that you have, such as `12` or `12.340`.";
    vec![
        Operation::post("/v1/sessions/{id}/attachments", "uploadAttachment", "Stores a file for messages of the session.")
            .text("The body is the file, or a form whose first file counts.")
            .query("name", "The name of the file.")
            .header("Content-Disposition", "May have the name of the file, too.")
            .bytes_body("*/*")
            .body_as("multipart/form-data", |_| {
                let file = json!({ "type": "string", "contentMediaType": "application/octet-stream" });
                json!({ "type": "object", "properties": { "file": file }, "required": ["file"] })
            })
            .returns::<FileRef>(201, "The stored file.")
            .with("Location", "The path of the artifact.")
            .fails(&[QuotaExceeded]),
        Operation::get("/v1/sessions/{id}/artifacts/{ref}", "downloadArtifact", "Returns an artifact or attachment.")
            .header("Range", "The part of the bytes, such as `bytes=0-99`.")
            .header("If-Range", "The range counts only for the artifact with this etag.")
            .header("If-None-Match", "The etag of what you have.")
            .returns_bytes(200, "The bytes.", "*/*")
            .with("ETag", "The etag.")
            .returns_bytes(206, "The bytes of the range.", "*/*")
            .with("Content-Range", "The range.")
            .returns_nothing(304, "You have it.")
            .fails(&[Gone, RangeNotSatisfiable]),
        Operation::get("/v1/sessions/{id}/export", "exportSession", "Returns a session, its events and its artifacts as a zip archive.")
            .returns_bytes(200, "`session.json`, `events.ndjson` and `artifacts/`.", "application/zip")
            .fails(&[Unavailable]),
        Operation::get("/v1/sessions/{id}/events", "streamEvents", "Streams the events of a session, or lists them.")
            .text(
                "With `Accept: application/x-ndjson`, the response has the stored events as lines of JSON, and ends. Otherwise \
                 it is a stream of Server-Sent Events: all stored events after the cursor, then new ones as they happen.",
            )
            .header("Last-Event-ID", "As `after`, which it overrides. Browsers send it when they reconnect.")
            .query("after", cursor)
            .query_as("until", "`idle`: the stream ends as soon as no turn runs or waits.", json!({ "enum": ["idle"] }))
            .query(
                "turn",
                "The stream has only the events of this turn, until it ends or waits; with `until=idle`, until it ends.",
            )
            .query_as(
                "subagents",
                "`true`: the stream also has the events of subagents that work, as `subagent.event`.",
                json!({ "type": "boolean" }),
            )
            .query_as("limit", "Maximum number of lines of NDJSON.", json!({ "type": "integer", "minimum": 1 }))
            .returns_as(200, "The events.", SSE, events::sent)
            .or("application/x-ndjson", events::record),
        Operation::get("/v1/sessions/{id}/ws", "openWebSocket", "Opens a WebSocket.")
            .text(
                "It sends the same events as text frames, and accepts the frames `{\"type\": \"message\"}` and `{\"type\": \
                 \"steer\"}` with the fields of a message, and `{\"type\": \"abort\"}`.",
            )
            .header("Upgrade", "`websocket`.")
            .header("Last-Event-ID", "As `after`, which it overrides.")
            .query("after", cursor)
            .returns_nothing(101, "The WebSocket is open.")
            .fails(&[InvalidRequest]),
        Operation::post("/v1/tickets", "createTicket", "Creates a ticket, with which a browser opens the streams of a session.")
            .text("The ticket is valid for five minutes. Append it to the URL as `?ticket=`.")
            .query("user", "The user, if the body names none.")
            .body::<NewTicket>(json!({ "session": "chat-1" }))
            .returns::<Ticket>(201, "The ticket.")
            .fails(&[NotConfigured]),
    ]
}
