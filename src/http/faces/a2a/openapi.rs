//! Describes the routes of A2A.

use crate::http::openapi::{ErrorForm, Foreign, Operation, POSTS};
use serde_json::json;

pub(in crate::http) fn operations() -> Vec<Operation> {
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
