//! Errors of JSON-RPC 2.0 and of the protocol, with their HTTP status.

use super::version::{LEGACY, MODERN};
use crate::http::response::{self, Response};
use crate::types::{ErrorCode, Problem};
use http::StatusCode;
use serde_json::{Value, json};

/// An error of the protocol.
#[derive(Debug)]
pub(super) struct Fault {
    pub status: StatusCode,
    pub code: i32,
    message: String,
    data: Option<Value>,
}

impl Fault {
    fn new(status: StatusCode, code: i32, message: &str) -> Self {
        Self { status, code, message: message.to_owned(), data: None }
    }

    pub fn parse_error(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, -32700, message)
    }

    pub fn invalid_request(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, -32600, message)
    }

    /// A modern client also gets the status 404.
    pub fn unknown_method(method: &str, is_modern: bool) -> Self {
        let status = if is_modern { StatusCode::NOT_FOUND } else { StatusCode::OK };
        Self::new(status, -32601, &format!("unknown method {method:?}"))
    }

    /// The parameters do not fit the method.
    pub fn invalid_params(message: &str) -> Self {
        Self::new(StatusCode::OK, -32602, message)
    }

    /// The description that each modern request has of its client is malformed.
    pub fn invalid_envelope(message: &str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, ..Self::invalid_params(message) }
    }

    pub fn unknown_resource(uri: &str, is_modern: bool) -> Self {
        let code = if is_modern { -32602 } else { -32002 };
        Self { data: Some(json!({ "uri": uri })), ..Self::new(StatusCode::OK, code, "resource not found") }
    }

    /// A legacy client then initializes again.
    pub fn unknown_session(message: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, -32001, message)
    }

    pub fn header_mismatch(message: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, -32020, message)
    }

    /// The request needs capabilities that its client has not declared.
    pub fn missing_capability(required: &Value) -> Self {
        let message = format!("the client must declare the capability {required}");
        let data = json!({"requiredCapabilities": required});
        Self { data: Some(data), ..Self::new(StatusCode::BAD_REQUEST, -32021, &message) }
    }

    pub fn unsupported_version(requested: &str) -> Self {
        let message = format!("unsupported protocol version {requested:?}; legacy: {}", LEGACY.join(", "));
        let data = json!({"supported": [MODERN], "requested": requested});
        Self { data: Some(data), ..Self::new(StatusCode::BAD_REQUEST, -32022, &message) }
    }

    /// Returns the message for the request with this id.
    pub fn body(&self, id: Option<&Value>) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        let mut body = json!({"jsonrpc": "2.0", "error": error});
        if let Some(id) = id {
            body["id"] = id.clone();
        }
        body
    }

    /// Builds the response to the message with this id.
    pub fn respond(&self, id: Option<&Value>) -> Response {
        response::bytes(self.status, "application/json", self.body(id).to_string())
    }

    /// Returns the error for a problem of the HTTP API.
    pub fn of(problem: &Problem, request_id: Option<&str>) -> Self {
        let status = StatusCode::from_u16(problem.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let code = match problem.code {
            ErrorCode::MalformedJson => -32700,
            ErrorCode::ValidationFailed => -32602,
            _ if status.is_server_error() => -32603,
            _ => -32600,
        };
        // The detail of an internal error is for the log.
        let message =
            if problem.code == ErrorCode::Internal { problem.code.title() } else { &problem.detail };
        let mut data = json!({"code": problem.code.as_str()});
        if let Some(id) = request_id {
            data["request_id"] = id.into();
        }
        Self { data: Some(data), ..Self::new(status, code, message) }
    }
}
