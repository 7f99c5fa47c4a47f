//! Errors as clients see them: RFC 9457 problems with stable codes; and [`BoxError`].

use super::{Reached, StorageQuota, TimedLimit, Timestamp};
use serde::{Deserialize, Serialize};

/// Any error of work whose failure is only recorded: every error type, `&str` and `String` convert into it. Its
/// message is stored in the session's log, so it must not contain secrets.
pub type BoxError = Box<dyn std::error::Error>;

/// Why a value was refused, worded for the person or model that wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub String);

impl From<String> for Invalid {
    fn from(reason: String) -> Self {
        Self(reason)
    }
}

impl From<Invalid> for String {
    fn from(invalid: Invalid) -> Self {
        invalid.0
    }
}

impl From<&str> for Invalid {
    fn from(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

/// Defines the stable error codes of the native routes, each with its HTTP status and title.
macro_rules! error_codes {
    ($($variant:ident, $code:literal, $status:literal, $title:literal;)*) => {
        /// A stable, snake_case error code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum ErrorCode { $(#[doc = $title] $variant,)* }

        impl ErrorCode {
            /// All codes, in the order of the table.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant,)*];

            /// Returns the code as it appears in JSON.
            pub fn as_str(self) -> &'static str { match self { $(Self::$variant => $code,)* } }

            /// Returns the HTTP status.
            pub fn status(self) -> u16 { match self { $(Self::$variant => $status,)* } }

            /// Returns the title, the same for every occurrence.
            pub fn title(self) -> &'static str { match self { $(Self::$variant => $title,)* } }
        }
    };
}

error_codes! {
    MalformedJson, "malformed_json", 400, "The body is not valid JSON";
    InvalidRequest, "invalid_request", 400, "The request is not valid";
    Unauthenticated, "unauthenticated", 401, "The credentials are missing or not valid";
    MissingScope, "missing_scope", 403, "The credential lacks the required scope";
    ReadOnly, "read_only", 403, "The resource can only be read";
    ForbiddenOrigin, "forbidden_origin", 403, "The page's origin is not allowed";
    NotFound, "not_found", 404, "The resource does not exist";
    UnknownAgent, "unknown_agent", 404, "The deployment has no such agent";
    MethodNotAllowed, "method_not_allowed", 405, "The resource does not support this method";
    SessionBusy, "session_busy", 409, "A turn is running in the session";
    QueueFull, "queue_full", 429, "The session's queue is full";
    IdempotencyInProgress, "idempotency_in_progress", 409, "A request with this Idempotency-Key is still running";
    MemoryBusy, "memory_busy", 409, "The memory is being consolidated";
    TransitionNotAllowed, "transition_not_allowed", 409, "The session cannot switch to this mode";
    StaleArgsHash, "stale_args_hash", 409, "The call's arguments have changed";
    StalePlan, "stale_plan", 409, "The plan has changed";
    AlreadyDecided, "already_decided", 409, "The call has already been decided differently";
    Claimed, "claimed", 409, "Another client works on the call";
    NotWaiting, "not_waiting", 409, "The call is not waiting for this";
    SubagentSession, "subagent_session", 409, "The session belongs to a subagent";
    RunSession, "run_session", 409, "The session belongs to a run";
    AlreadyExists, "already_exists", 409, "The resource already exists";
    AgentGone, "agent_gone", 409, "The agent was deleted";
    AgentRequired, "agent_required", 409, "The agent belongs to the deployment";
    Gone, "gone", 410, "The resource has expired";
    PreconditionFailed, "precondition_failed", 412, "The resource does not match the request's precondition";
    PayloadTooLarge, "payload_too_large", 413, "The body is too large";
    UnsupportedMediaType, "unsupported_media_type", 415, "The content type is not supported";
    RangeNotSatisfiable, "range_not_satisfiable", 416, "The requested range is outside the resource";
    ValidationFailed, "validation_failed", 422, "The request has invalid fields";
    UserMismatch, "user_mismatch", 422, "The credential belongs to another user";
    IdempotencyKeyReused, "idempotency_key_reused", 422, "The Idempotency-Key was used with a different body";
    RateLimited, "rate_limited", 429, "Too many requests";
    QuotaExceeded, "quota_exceeded", 429, "The quota is used up";
    NotConfigured, "not_configured", 501, "This deployment is not configured for the request";
    Internal, "internal", 500, "An internal error occurred";
    NewerSession, "newer_session", 503, "A newer version of the server has written the session";
    Unavailable, "unavailable", 503, "A required service is not available";
}

/// An error in one field of a body or query, or in one place of another JSON value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error, schemars::JsonSchema)]
#[error("{pointer}{}{detail}", if pointer.is_empty() { "" } else { ": " })]
pub struct FieldError {
    /// JSON Pointer (RFC 6901) into the value, empty for the whole; `?name` for a query parameter.
    pub pointer: String,
    /// What is wrong and what is expected.
    pub detail: String,
}

impl FieldError {
    /// Returns the error with a pointer that starts with `at`, the pointer to the value.
    pub fn below(self, at: &str) -> Self {
        Self { pointer: format!("{at}{}", self.pointer), ..self }
    }
}

/// An error response: what is wrong, where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}{}", code.as_str(), cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default())]
pub struct Problem {
    /// The stable code; it determines status and title.
    pub code: ErrorCode,
    /// What is wrong with this request, for people. Never contains a secret.
    pub detail: String,
    /// Errors by field.
    pub errors: Vec<FieldError>,
    /// Seconds after which a retry may succeed (`retry-after`).
    pub retry_after_s: Option<u32>,
    /// The limit of the tenant that the request has reached.
    pub reached: Option<Box<Reached>>,
    /// The storage limit of the tenant that the request would exceed.
    pub quota: Option<StorageQuota>,
    /// Whether the request has started a turn, or may have, and a repetition would start another one. A request that
    /// continues a turn, or has an Idempotency-Key, can be repeated.
    pub started_turn: bool,
    /// Methods that the resource supports (`allow`).
    pub allow: Option<String>,
    /// The cause for the operator's log. Never sent to the caller.
    pub cause: Option<String>,
}

impl Problem {
    /// Creates a problem with a code and a detail only.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            errors: Vec::new(),
            retry_after_s: None,
            reached: None,
            quota: None,
            started_turn: false,
            allow: None,
            cause: None,
        }
    }

    /// Creates the response for a resource that does not exist or belongs to another caller, which look the
    /// same.
    pub fn not_found(what: &str) -> Self {
        Self::new(ErrorCode::NotFound, format!("no such {what}"))
    }

    /// Creates a problem with one invalid field.
    pub fn field(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::fields(vec![FieldError { pointer: pointer.into(), detail: detail.into() }])
    }

    /// Creates a problem with several invalid fields.
    pub fn fields(errors: Vec<FieldError>) -> Self {
        let detail: Vec<_> = errors.iter().map(FieldError::to_string).collect();
        Self { errors, ..Self::new(ErrorCode::ValidationFailed, detail.join("; ")) }
    }

    /// Creates an internal error. The detail goes to the log, never to the caller.
    pub fn internal(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, detail)
    }

    /// Creates a temporary error; the cause goes to the log.
    pub fn unavailable(detail: &str, cause: impl ToString) -> Self {
        let problem = Self::new(ErrorCode::Unavailable, detail);
        Self { retry_after_s: Some(2), cause: Some(cause.to_string()), ..problem }
    }

    /// Creates the response to a request that would exceed a storage limit of its tenant.
    pub fn over_quota(quota: StorageQuota) -> Self {
        Self { quota: Some(quota), ..Self::new(ErrorCode::QuotaExceeded, quota.to_string()) }
    }

    /// Creates the response to a request at `now` that has reached a limit of its tenant.
    pub fn over_limit(reached: Reached, now: Timestamp) -> Self {
        let Reached { limit, resets_at, held } = reached;
        let (code, detail) = match limit {
            TimedLimit::RequestsPerMin => (
                ErrorCode::RateLimited,
                format!("the tenant has reached its limit {limit}; try again in the next minute"),
            ),
            TimedLimit::ConcurrentTurns => (
                ErrorCode::RateLimited,
                format!(
                    "the tenant has reached its limit {limit}; try again when one of its turns has ended"
                ),
            ),
            TimedLimit::TurnsPerDay | TimedLimit::TokensPerDay | TimedLimit::CostUsdPerDay if held => (
                ErrorCode::RateLimited,
                format!(
                    "the tenant's running turns hold the rest of its limit {limit}; try again when one of them has ended"
                ),
            ),
            TimedLimit::TurnsPerDay | TimedLimit::TokensPerDay | TimedLimit::CostUsdPerDay => (
                ErrorCode::QuotaExceeded,
                format!(
                    "the tenant has reached its limit {limit}, which resets at {}",
                    resets_at.to_rfc3339()
                ),
            ),
        };
        Self { reached: Some(Box::new(reached)), ..Self::new(code, detail) }.retry_at(resets_at, now)
    }

    /// Creates the response to a request at `now` that has reached a limit of the server until `resets_at`.
    pub fn rate_limited(detail: &str, resets_at: Timestamp, now: Timestamp) -> Self {
        Self::new(ErrorCode::RateLimited, detail).retry_at(resets_at, now)
    }

    /// Sets when a request at `now` should be tried again: a time in whole seconds from now, at least one.
    #[must_use]
    pub fn retry_at(self, at: Timestamp, now: Timestamp) -> Self {
        let seconds = at.since(now).as_millis().div_ceil(1000).max(1);
        Self { retry_after_s: Some(u32::try_from(seconds).unwrap_or(u32::MAX)), ..self }
    }

    /// Returns the `application/problem+json` body.
    pub fn to_json(&self, request_id: &str) -> String {
        let mut body = serde_json::json!({
            "type": format!("urn:edge-harness:problem:{}", self.code.as_str()),
            "title": self.code.title(),
            "status": self.code.status(),
            "detail": if self.code == ErrorCode::Internal { "see the server's log for this request id" } else { &self.detail },
            "code": self.code.as_str(),
            "request_id": request_id,
        });
        if !self.errors.is_empty() {
            body["errors"] = serde_json::json!(self.errors);
        }
        if let Some(reached) = &self.reached {
            body["limit"] = serde_json::json!(reached.limit);
            body["resets_at"] = serde_json::json!(reached.resets_at);
        }
        if let Some(quota) = &self.quota {
            body["limit"] = serde_json::json!(quota);
        }
        body.to_string()
    }
}
