//! The messages of JSON-RPC 2.0, and the errors of A2A.

use crate::http::body;
use crate::http::request::{Request, RequestExt};
use crate::http::response::{self, Response};
use crate::types::{ErrorCode, Problem, json::from_value};
use http::StatusCode;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// The version of the protocol. A request without a version is of an older one.
pub(super) const VERSION: &str = "1.0";

/// The code of a task that does not exist.
pub(super) const TASK_NOT_FOUND: i32 = -32001;
/// The code of parameters that do not fit.
pub(super) const INVALID_PARAMS: i32 = -32602;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Send,
    Stream,
    Get,
    List,
    Cancel,
    Subscribe,
    CreatePush,
    GetPush,
    ListPush,
    DeletePush,
}

impl Method {
    /// Returns whether it changes nothing.
    pub fn only_reads(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Subscribe | Self::GetPush | Self::ListPush)
    }
}

/// A request.
pub(super) struct Asked {
    pub id: Value,
    pub method: Method,
    name: String,
    params: Value,
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    id: Value,
    method: String,
    #[serde(default)]
    params: Value,
}

impl Asked {
    /// Reads a request.
    ///
    /// # Errors
    /// The response, for a request that the server cannot serve.
    pub fn read(request: &Request) -> Result<Self, Fault> {
        let Envelope { id, method, params } =
            body::json(request).map_err(|problem| Fault::of(problem, Value::Null))?;
        let fault =
            |code, reason, message: String| Fault { id: id.clone(), code, reason, message, cause: None };
        let parameter = request.query("A2A-Version");
        let version = request.header("a2a-version").or(parameter.as_deref()).unwrap_or("0.3");
        if !is_spoken(version) {
            let message = format!("A2A-Version is {version}; this server speaks {VERSION}");
            return Err(fault(-32009, "VERSION_NOT_SUPPORTED", message));
        }
        let name = method;
        let method = match &*name {
            "SendMessage" => Method::Send,
            "SendStreamingMessage" => Method::Stream,
            "GetTask" => Method::Get,
            "ListTasks" => Method::List,
            "CancelTask" => Method::Cancel,
            "SubscribeToTask" => Method::Subscribe,
            "GetExtendedAgentCard" => {
                let message = "the agent has no extended card".to_owned();
                return Err(fault(-32004, "UNSUPPORTED_OPERATION", message));
            }
            "CreateTaskPushNotificationConfig" => Method::CreatePush,
            "GetTaskPushNotificationConfig" => Method::GetPush,
            "ListTaskPushNotificationConfigs" => Method::ListPush,
            "DeleteTaskPushNotificationConfig" => Method::DeletePush,
            _ => return Err(fault(-32601, "METHOD_NOT_FOUND", format!("unknown method {name:?}"))),
        };
        Ok(Self { id, method, name, params })
    }

    /// Reads the parameters.
    ///
    /// # Errors
    /// The response, for parameters that do not fit.
    pub fn params<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        let params = if self.params.is_null() { json!({}) } else { self.params.clone() };
        from_value(params).map_err(|mut error| {
            error.pointer.insert_str(0, "/params");
            Fault::of(Problem::fields(vec![error]), self.id.clone())
        })
    }

    /// Returns the same request with other parameters.
    pub fn with_params(&self, change: impl FnOnce(&mut Value)) -> Value {
        let mut params = if self.params.is_object() { self.params.clone() } else { json!({}) };
        change(&mut params);
        json!({"jsonrpc": "2.0", "id": self.id, "method": self.name, "params": params})
    }

    /// Returns the message with a result.
    pub fn result(&self, result: &Value) -> Value {
        json!({"jsonrpc": "2.0", "id": self.id, "result": result})
    }
}

/// Returns whether a version is the one that the server speaks. A patch number makes no difference.
fn is_spoken(version: &str) -> bool {
    let is_patch = |rest: &str| rest.strip_prefix('.').is_some_and(|patch| patch.parse::<u32>().is_ok());
    version.trim().strip_prefix(VERSION).is_some_and(|rest| rest.is_empty() || is_patch(rest))
}

/// Why a request has no result.
#[derive(Debug)]
pub(super) struct Fault {
    id: Value,
    code: i32,
    reason: &'static str,
    message: String,
    cause: Option<Box<Problem>>,
}

impl Fault {
    /// The fault of the request with this id.
    pub fn of(problem: Problem, id: Value) -> Self {
        let (code, reason) = match problem.code {
            ErrorCode::NotFound => (TASK_NOT_FOUND, "TASK_NOT_FOUND"),
            ErrorCode::NotWaiting | ErrorCode::AlreadyDecided => (-32004, "UNSUPPORTED_OPERATION"),
            ErrorCode::UnsupportedMediaType => (-32005, "CONTENT_TYPE_NOT_SUPPORTED"),
            ErrorCode::MalformedJson => (-32700, "PARSE_ERROR"),
            ErrorCode::ValidationFailed => (INVALID_PARAMS, "INVALID_PARAMS"),
            _ => (-32603, "INTERNAL_ERROR"),
        };
        let message = match problem.errors.first() {
            Some(first) => format!("{}: {}", first.pointer, first.detail),
            // The detail of an internal error is for the log.
            None if problem.code == ErrorCode::Internal => problem.code.title().to_owned(),
            None => problem.detail.clone(),
        };
        Self { id, code, reason, message, cause: Some(Box::new(problem)) }
    }

    /// A fault that A2A defines.
    pub fn new(id: &Value, code: i32, reason: &'static str, message: &str) -> Self {
        Self { id: id.clone(), code, reason, message: message.to_owned(), cause: None }
    }

    /// A task that has ended.
    pub fn over(code: i32, reason: &'static str, id: &Value) -> Self {
        Self::new(id, code, reason, "the task has ended")
    }

    /// Builds the response. An error that concerns the task or the parameters has the status 200, any other the one that
    /// it has over HTTP.
    pub fn respond(self, request_id: &str) -> Response {
        let mut metadata = json!({"requestId": request_id});
        if let Some(problem) = &self.cause {
            metadata["code"] = problem.code.as_str().into();
        }
        let info = json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": self.reason,
            "domain": "a2a-protocol.org", "metadata": metadata,
        });
        let error = json!({"code": self.code, "message": self.message, "data": [info]});
        let body = json!({"jsonrpc": "2.0", "id": self.id, "error": error});
        let Some(problem) = self.cause else {
            return response::bytes(StatusCode::OK, "application/json", body.to_string());
        };
        let status = match self.code {
            -32603 => {
                StatusCode::from_u16(problem.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
            _ => StatusCode::OK,
        };
        response::problem_as(&problem, request_id, status, &body)
    }
}

/// Writes a problem of a request whose id is not known.
pub(super) fn problem(problem: &Problem, request_id: &str) -> Response {
    Fault::of(problem.clone(), Value::Null).respond(request_id)
}
