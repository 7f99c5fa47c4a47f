//! The routes of other protocols. Their own documentation describes the bodies.

use super::operation::{ErrorForm, JSON, Operation, SSE};
use super::schemas::Schemas;
use super::shapes::{Aborted, Foreign};
use crate::types::ErrorCode;
use crate::types::ErrorCode::{
    AlreadyDecided, AlreadyExists, NotWaiting, QueueFull, QuotaExceeded, SessionBusy, StaleArgsHash,
    StalePlan, SubagentSession,
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
        socket("/api/chat", "openChatSocket", "Opens a WebSocket of the AI SDK."),
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
        socket("/v1/responses", "openResponsesSocket", "Opens a WebSocket of OpenAI's Responses."),
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
    operations.into_iter().map(|operation| Operation { error_form: ErrorForm::OpenAi, ..operation }).collect()
}

fn a2a() -> Vec<Operation> {
    let message = json!({ "messageId": "m1", "role": "ROLE_USER", "parts": [{ "text": "Hello" }] });
    let example =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": { "message": message } });
    let methods = |path, id, text| Operation {
        error_form: ErrorForm::JsonRpc,
        ..Operation::post(path, id, text)
            .header("A2A-Version", "The version of the protocol: `1.0`.")
            .body::<Foreign>(example.clone())
            .returns::<Foreign>(200, "The result or the error of the method, or a stream of results.")
            .or_stream()
    };
    vec![
        Operation::get(
            "/.well-known/agent-card.json",
            "getAgentCard",
            "The card of the default agent, for A2A.",
        )
        .returns::<Foreign>(200, "The card.")
        .returns_nothing(304, "The card has not changed."),
        Operation::get(
            "/a2a/{agent}/.well-known/agent-card.json",
            "getCardOfAgent",
            "The card of an agent, for A2A.",
        )
        .returns::<Foreign>(200, "The card.")
        .returns_nothing(304, "The card has not changed."),
        methods("/a2a", "callA2a", "The methods of A2A, for the default agent."),
        methods("/a2a/{agent}", "callA2aOfAgent", "The methods of A2A, for an agent."),
    ]
}

fn mcp() -> Vec<Operation> {
    let example = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let metadata = |path, id| {
        Operation::get(path, id, "The identity provider of a tenant, for clients of MCP (RFC 9728).")
            .query("tenant", "The tenant, unless the deployment has only one.")
            .returns::<Foreign>(200, "The metadata.")
            .fails(&[ErrorCode::NotFound])
    };
    let root = "/.well-known/oauth-protected-resource";
    vec![
        Operation {
            error_form: ErrorForm::JsonRpc,
            ..Operation::post("/mcp", "callMcp", "A message of the Model Context Protocol.")
                .body::<Foreign>(example)
                .returns::<Foreign>(200, "The response, or a stream of messages.")
                .or_stream()
                .returns_nothing(202, "The notification is accepted.")
        },
        metadata(root, "getProtectedResource"),
        metadata("/.well-known/oauth-protected-resource/mcp", "getProtectedResourceOfMcp"),
    ]
}

fn socket(path: &'static str, id: &'static str, text: &'static str) -> Operation {
    Operation::get(path, id, text)
        .text("Each of its requests has credentials: its own, or those of the handshake.")
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
