//! The routes of other protocols. Their own documentation describes the bodies.

use super::operation::{ErrorForm, JSON, Operation, SSE};
use super::schemas::Schemas;
use super::shapes::{Aborted, Foreign};
use crate::types::ErrorCode;
use crate::types::ErrorCode::{
    AlreadyDecided, AlreadyExists, ForbiddenOrigin, Internal, InvalidRequest, MethodNotAllowed, NotFound,
    NotWaiting, QueueFull, QuotaExceeded, RateLimited, SessionBusy, StaleArgsHash, StalePlan,
    SubagentSession, Unauthenticated, Unavailable,
};
use serde_json::{Value, json};

const POSTS: &[ErrorCode] = &[
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
    let mut all = openai();
    all.extend(a2a());
    all.extend(mcp());
    let messages = json!([{ "id": "m1", "role": "user", "parts": [{ "type": "text", "text": "Hello" }] }]);
    let input = json!({
        "threadId": "chat-1", "runId": "run-1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{ "id": "m1", "role": "user", "content": "Hello" }],
    });
    all.extend([
        socket("/api/chat", "openChatSocket", "Opens a WebSocket of the AI SDK.")
            .text("Each request needs credentials: in its frame, or else those of the handshake."),
        Operation::post("/api/chat", "postChat", "The UI message stream of Vercel's AI SDK.")
            .body::<Foreign>(json!({ "id": "chat-1", "messages": messages }))
            .streams("The chunks of the message.")
            .fails(POSTS),
        Operation::get(
            "/api/chat/{id}/stream",
            "resumeChat",
            "The stream of the running turn, from its beginning.",
        )
        .streams("The chunks of the message.")
        .returns_nothing(204, "No turn runs."),
        Operation::post("/api/chat/{id}/stop", "stopChat", "Aborts the running turn.")
            .returns::<Aborted>(200, "What was aborted."),
        Operation::post("/ag-ui", "runAgent", "Runs an agent with AG-UI.")
            .body::<Foreign>(input)
            .streams("The events of the run.")
            .fails(POSTS),
    ]);
    all
}

fn a2a() -> Vec<Operation> {
    let call = |path: &'static str, id: &'static str, text: &'static str| {
        let message = json!({ "messageId": "m1", "role": "ROLE_USER", "parts": [{ "text": "Hello" }] });
        let params = json!({ "message": message });
        Operation::post(path, id, text)
            .header("A2A-Version", "The version of the protocol: `1.0`.")
            .body::<Foreign>(json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params }))
            .returns::<Foreign>(200, "The result or an error, or the events of a stream.")
            .or_stream()
            .errors_as(ErrorForm::JsonRpc)
            .fails(POSTS)
    };
    let card = |path: &'static str, id: &'static str, text: &'static str| {
        Operation::get(path, id, text)
            .header("If-None-Match", "The etag of what you have.")
            .returns::<Foreign>(200, "The card.")
            .with("ETag", "The etag.")
            .returns_nothing(304, "You have it.")
    };
    vec![
        card("/.well-known/agent-card.json", "getAgentCard", "The A2A card of the default agent."),
        card("/a2a/{agent}/.well-known/agent-card.json", "getCardOfAgent", "The A2A card of an agent."),
        call("/a2a", "callA2a", "The methods of A2A, for the default agent."),
        call("/a2a/{agent}", "callA2aOfAgent", "The methods of A2A, for an agent."),
    ]
}

fn mcp() -> Vec<Operation> {
    let metadata = |path: &'static str, id: &'static str, text: &'static str| {
        Operation::get(path, id, text)
            .query("tenant", "The tenant; the only one if absent.")
            .returns::<Foreign>(200, "The metadata.")
            .fails(&[Unauthenticated, RateLimited, Internal, Unavailable])
    };
    let resource = "/.well-known/oauth-protected-resource";
    vec![
        Operation::post("/mcp", "callMcp", "Handles a message of the Model Context Protocol.")
            .text("To ask an agent, the key or token needs the scope `chat`.")
            .body::<Foreign>(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} }))
            .returns::<Foreign>(200, "The result or an error, or the messages of a stream.")
            .or_stream()
            .returns_nothing(202, "The message has no result.")
            .errors_as(ErrorForm::JsonRpc)
            .fails(POSTS)
            .fails(&[ForbiddenOrigin]),
        Operation::get("/mcp", "resumeMcp", "The rest of a stream of `POST /mcp` whose connection was lost.")
            .text("For clients of versions before 2026-07-28. The server sends nothing else with GET.")
            .header("Last-Event-ID", "The last id that the client has received.")
            .header("Mcp-Session-Id", "As in the request whose stream was lost.")
            .streams("The messages that the client has not received.")
            .errors_as(ErrorForm::JsonRpc)
            .fails(&[ForbiddenOrigin, InvalidRequest, MethodNotAllowed, NotFound]),
        metadata(
            resource,
            "getProtectedResource",
            "The metadata of the server as a protected resource (RFC 9728).",
        ),
        metadata(
            "/.well-known/oauth-protected-resource/mcp",
            "getProtectedResourceOfMcp",
            "The metadata of `/mcp` as a protected resource (RFC 9728).",
        ),
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

fn openai() -> Vec<Operation> {
    let operations = [
        Operation::post(
            "/v1/chat/completions",
            "createChatCompletion",
            "Runs a turn with OpenAI's chat completions.",
        )
        .header("X-Session-Id", "The session. Without it, the messages are all that the agent knows.")
        .body::<Foreign>(json!({ "model": "default", "messages": [{ "role": "user", "content": "Hello" }] }))
        .returns::<Foreign>(200, "The completion, or its chunks with `stream`.")
        .or_stream()
        .fails(POSTS),
        socket("/v1/responses", "openResponsesSocket", "Opens a WebSocket of OpenAI's Responses.")
            .text("Each request has the credentials of the handshake."),
        Operation::post("/v1/responses", "createResponse", "Runs a turn with OpenAI's Responses.")
            .body::<Foreign>(json!({ "model": "default", "input": "Hello" }))
            .returns::<Foreign>(200, "The response, or its events with `stream`.")
            .or_stream()
            .fails(POSTS),
        Operation::get("/v1/responses/{response}", "getResponse", "Returns a response.")
            .query_as("stream", "Whether to return its events.", json!({ "type": "boolean" }))
            .query_as(
                "starting_after",
                "Number of the last event that you have.",
                json!({ "type": "integer" }),
            )
            .returns::<Foreign>(200, "The response, or its events with `stream`.")
            .or_stream(),
        Operation::delete("/v1/responses/{response}", "deleteResponse", "Erases the session of a response.")
            .returns_as(200, "The response is deleted.", JSON, |_| json!({ "type": "object" }))
            .fails(&[AlreadyExists]),
        Operation::post(
            "/v1/responses/{response}/cancel",
            "cancelResponse",
            "Aborts the turn of a response.",
        )
        .returns::<Foreign>(200, "The response."),
        Operation::get(
            "/v1/responses/{response}/input_items",
            "listInputItems",
            "Lists the input of a response.",
        )
        .returns::<Foreign>(200, "The items."),
    ];
    operations.into_iter().map(|operation| operation.errors_as(ErrorForm::OpenAi)).collect()
}

fn socket(path: &'static str, id: &'static str, text: &'static str) -> Operation {
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
    fn streams(self, text: &'static str) -> Self {
        self.returns_as(200, text, SSE, event)
    }

    /// Adds a stream to the last response.
    fn or_stream(self) -> Self {
        self.or(SSE, event)
    }
}
