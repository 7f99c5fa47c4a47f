//! Describes the routes of MCP.

use crate::http::openapi::{ErrorForm, Foreign, Operation, POSTS};
use crate::types::ErrorCode::{
    ForbiddenOrigin, Internal, InvalidRequest, MethodNotAllowed, NotFound, RateLimited, Unauthenticated,
    Unavailable,
};
use serde_json::json;

pub(in crate::http) fn operations() -> Vec<Operation> {
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
    ]
}
