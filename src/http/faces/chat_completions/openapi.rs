//! Describes the route of chat completions.

use crate::http::openapi::{ErrorForm, Foreign, Operation, POSTS};
use serde_json::json;

pub(in crate::http) fn operations() -> Vec<Operation> {
    vec![
        Operation::post(
            "/v1/chat/completions",
            "createChatCompletion",
            "Runs a turn with OpenAI's chat completions.",
        )
        .header("X-Session-Id", "The session. Without it, the messages are all that the agent knows.")
        .body::<Foreign>(json!({ "model": "default", "messages": [{ "role": "user", "content": "Hello" }] }))
        .returns::<Foreign>(200, "The completion, or its chunks with `stream`.")
        .or_stream()
        .errors_as(ErrorForm::OpenAi)
        .fails(POSTS),
    ]
}
