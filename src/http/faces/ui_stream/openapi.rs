//! Describes the routes of the AI SDK's UI message stream.

use crate::http::openapi::{Aborted, Foreign, Operation, POSTS, socket};
use serde_json::json;

pub(in crate::http) fn operations() -> Vec<Operation> {
    let messages = json!([{ "id": "m1", "role": "user", "parts": [{ "type": "text", "text": "Hello" }] }]);
    vec![
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
    ]
}
