//! Describes the route of AG-UI.

use crate::http::openapi::{Foreign, Operation, POSTS};
use serde_json::json;

pub(in crate::http) fn operations() -> Vec<Operation> {
    let input = json!({
        "threadId": "chat-1", "runId": "run-1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{ "id": "m1", "role": "user", "content": "Hello" }],
    });
    vec![
        Operation::post("/ag-ui", "runAgent", "Runs an agent with AG-UI.")
            .body::<Foreign>(input)
            .streams("The events of the run.")
            .fails(POSTS),
    ]
}
