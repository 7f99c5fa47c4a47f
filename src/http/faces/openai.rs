//! What the protocols of OpenAI have in common: errors, models as names of agents, and tools of the client.

pub(super) mod messages;

use crate::agent::external_tool::Declared;
use crate::http::response::{self, Response, ResponseExt};
use crate::types::{Category, Effect, ErrorCode, GeneratedId, Problem, SessionId, TurnError};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A tool of the client.
#[derive(Deserialize)]
pub(super) struct Function {
    name: String,
    description: Option<String>,
    parameters: Option<Map<String, Value>>,
    category: Option<Category>,
}

impl From<Function> for Declared {
    fn from(function: Function) -> Self {
        let Function { name, description, parameters, category } = function;
        Self {
            name,
            description: description.unwrap_or_default(),
            parameters: parameters.unwrap_or_default(),
            category: category.unwrap_or_default(),
            effect: Effect::default(),
            idempotent: false,
        }
    }
}

/// Splits the `model` of a request into an agent and a model: `provider/model` is a model of the default agent, any
/// other name is an agent.
pub(super) fn agent_and_model(name: &str) -> (Option<&str>, Option<&str>) {
    if name.contains('/') { (None, Some(name)) } else { (Some(name), None) }
}

/// Returns the temporary session with whose id the id of a call ends. Ids of other servers may have dots, too, such as
/// `functions.look:0`.
pub(super) fn session_of_call(id: &str) -> Option<SessionId> {
    let (_, session) = id.rsplit_once('.')?;
    SessionId::parse(session).filter(|session| session.starts_with(SessionId::PREFIX))
}

/// Writes an error as OpenAI's clients read it: they ignore everything but `error`.
pub fn problem(problem: &Problem, request_id: &str) -> Response {
    let status = match problem.code.status() {
        422 => StatusCode::BAD_REQUEST,
        status => StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
    };
    let code = match problem.code {
        ErrorCode::Unauthenticated => "invalid_api_key",
        ErrorCode::UnknownAgent => "model_not_found",
        ErrorCode::RateLimited => "rate_limit_exceeded",
        ErrorCode::QuotaExceeded => "insufficient_quota",
        code => code.as_str(),
    };
    let first = problem.errors.first();
    let param = first.map(|error| error.pointer.trim_matches(['/', '?']).replace('/', "."));
    let message =
        first.map_or_else(|| problem.detail.clone(), |error| format!("{}: {}", error.pointer, error.detail));
    let body = error(status, &message, param.as_deref(), code);
    let response = response::problem_as(problem, request_id, status, &body);
    // The clients repeat a request after these statuses, although a repetition cannot succeed.
    let is_final = match problem.code {
        ErrorCode::QuotaExceeded => true,
        // The first request with this key still runs. Later, the repetition gets its response.
        ErrorCode::IdempotencyInProgress => false,
        _ => status == StatusCode::CONFLICT,
    };
    if is_final || problem.started_turn { not_repeated(response) } else { response }
}

/// Marks a response so that the clients do not repeat the request.
fn not_repeated(response: Response) -> Response {
    response.with("x-should-retry", "false")
}

/// A turn that failed.
pub(super) struct FailedTurn {
    status: StatusCode,
    body: Value,
}

impl FailedTurn {
    pub fn new(failure: Option<&TurnError>) -> Self {
        let code = failure.map_or("internal", |error| error.code.as_str());
        let message = failure.map_or("the turn failed", |error| error.message.as_str());
        let status = match failure {
            Some(error) if error.retryable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, body: error(status, message, None, code) }
    }

    /// Returns the error as an event of a stream.
    pub fn event(&self) -> &Value {
        &self.body
    }

    /// Returns the error as the whole response.
    ///
    /// # Errors
    /// See [`response::json`].
    pub fn response(&self) -> Result<Response, Problem> {
        response::json(self.status, &self.body).map(not_repeated)
    }
}

fn error(status: StatusCode, message: &str, param: Option<&str>, code: &str) -> Value {
    let kind = match status.as_u16() {
        429 => "rate_limit_error",
        403 => "permission_error",
        400..500 => "invalid_request_error",
        _ => "server_error",
    };
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}
