//! Describes the routes of Responses.

use crate::http::openapi::{ErrorForm, Foreign, JSON, Operation, POSTS, socket};
use crate::types::ErrorCode::AlreadyExists;
use serde_json::json;

pub(in crate::http) fn operations() -> Vec<Operation> {
    let operations = [
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
