//! Responses of JSON-RPC 2.0, with their HTTP status.

use super::fault::Fault;
use super::message::Asked;
use crate::http::response::{self, Response};
use crate::types::{Problem, RequestId};
use http::StatusCode;
use serde_json::{Value, json};

/// The field of `_meta` that identifies the server.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// Why a request has no result.
pub(super) enum Failure {
    Fault(Fault),
    Problem(Problem),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl<E: Into<Problem>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Problem(error.into())
    }
}

/// Writes a problem of a request whose id is not known.
pub fn problem(problem: &Problem, request_id: &str) -> Response {
    problem_of(problem, request_id, None)
}

/// Writes a problem of the request with this id.
pub(super) fn problem_of(problem: &Problem, request_id: &str, id: Option<&Value>) -> Response {
    let fault = Fault::of(problem, Some(request_id));
    response::problem_as(problem, request_id, fault.status, &fault.body(id))
}

/// Builds the response to a request, with the result or why it has none.
///
/// # Errors
/// A problem of the server, which its caller logs.
pub(super) fn respond(
    asked: &Asked,
    request_id: &RequestId,
    outcome: Result<Value, Failure>,
) -> Result<Response, Problem> {
    match outcome {
        Ok(value) => response::json(StatusCode::OK, &result(asked, value)),
        Err(Failure::Fault(fault)) => Ok(fault.respond(Some(&asked.id))),
        Err(Failure::Problem(problem)) if problem.code.status() >= 500 => Err(problem),
        Err(Failure::Problem(problem)) => Ok(problem_of(&problem, request_id, Some(&asked.id))),
    }
}

/// Returns the message with the result of a request.
pub(super) fn result(asked: &Asked, value: Value) -> Value {
    completed(&asked.id, asked.is_modern(), value)
}

/// Returns the message with the result of the request with this id. A modern client expects more fields.
pub(super) fn completed(id: &Value, is_modern: bool, mut result: Value) -> Value {
    if is_modern {
        if result.get("resultType").is_none() {
            result["resultType"] = "complete".into();
        }
        result["_meta"] = json!({SERVER_INFO: server_info()});
    }
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// Adds how long a modern client may cache a result. It differs between callers.
pub(super) fn cached(asked: &Asked, ttl_ms: u64, mut result: Value) -> Value {
    if asked.is_modern() {
        result["ttlMs"] = ttl_ms.into();
        result["cacheScope"] = "private".into();
    }
    result
}

/// Returns the name and version of the server.
pub(super) fn server_info() -> Value {
    json!({"name": "edge-harness", "title": "edge-harness", "version": env!("CARGO_PKG_VERSION")})
}
