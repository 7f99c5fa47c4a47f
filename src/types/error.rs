//! Errors as clients see them: RFC 9457 problems with stable codes.

use serde::{Deserialize, Serialize};

/// Every stable code a native route can answer with, its status and its title.
macro_rules! error_codes {
    ($($variant:ident, $code:literal, $status:literal, $title:literal;)*) => {
        /// The stable, snake_case word for what went wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ErrorCode { $(#[doc = $title] $variant,)* }

        impl ErrorCode {
            /// All codes, in the order of the table.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant,)*];

            /// The code as it stands in JSON.
            pub fn as_str(self) -> &'static str { match self { $(Self::$variant => $code,)* } }

            /// The HTTP status.
            pub fn status(self) -> u16 { match self { $(Self::$variant => $status,)* } }

            /// The title: the same words each time.
            pub fn title(self) -> &'static str { match self { $(Self::$variant => $title,)* } }
        }
    };
}

error_codes! {
    MalformedJson, "malformed_json", 400, "The body is not JSON";
    InvalidRequest, "invalid_request", 400, "The request cannot be understood";
    Unauthenticated, "unauthenticated", 401, "Authentication is missing or not valid";
    MissingScope, "missing_scope", 403, "The key does not allow this";
    ForbiddenOrigin, "forbidden_origin", 403, "The page's origin is not allowed";
    NotFound, "not_found", 404, "There is no such thing here";
    MethodNotAllowed, "method_not_allowed", 405, "The route does not know this method";
    NotAcceptable, "not_acceptable", 406, "None of the accepted media types can be made";
    SessionBusy, "session_busy", 409, "A turn is running";
    QueueFull, "queue_full", 429, "Too many messages are waiting";
    IdempotencyInProgress, "idempotency_in_progress", 409, "The first request with this Idempotency-Key is still running";
    MemoryBusy, "memory_busy", 409, "The memory is being consolidated";
    TransitionNotAllowed, "transition_not_allowed", 409, "The mode does not lead there";
    StaleArgsHash, "stale_args_hash", 409, "The call's arguments are others";
    AlreadyDecided, "already_decided", 409, "That was decided before, and otherwise";
    NotWaiting, "not_waiting", 409, "The call does not wait for that";
    SubagentSession, "subagent_session", 409, "The session is a subagent's";
    AlreadyExists, "already_exists", 409, "That already exists";
    Gone, "gone", 410, "That was here and its time is over";
    PreconditionFailed, "precondition_failed", 412, "It is not what the request expects";
    PayloadTooLarge, "payload_too_large", 413, "The body is too large";
    UnsupportedMediaType, "unsupported_media_type", 415, "The content type is not supported";
    RangeNotSatisfiable, "range_not_satisfiable", 416, "There are no such bytes";
    ValidationFailed, "validation_failed", 422, "The body does not fit";
    IdempotencyKeyReused, "idempotency_key_reused", 422, "The Idempotency-Key was used with another body";
    RateLimited, "rate_limited", 429, "Too many requests";
    QuotaExceeded, "quota_exceeded", 429, "The quota is used up";
    NotConfigured, "not_configured", 501, "This deployment is not set up for that";
    Internal, "internal", 500, "Something broke on our side";
    Unavailable, "unavailable", 503, "A part we need does not answer";
}

/// A fault in one field of a body or query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldError {
    /// JSON Pointer (RFC 6901) into the body; `?name` for a query parameter.
    pub pointer: String,
    /// What is wrong and what would fit.
    pub detail: String,
}

/// An error answer: what was wrong, where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}{}", code.as_str(), cause.as_ref().map(|cause| format!(" ({cause})")).unwrap_or_default())]
pub struct Problem {
    /// The stable code; status and title follow from it.
    pub code: ErrorCode,
    /// This occurrence, for people. Never holds a secret.
    pub detail: String,
    /// Faults by field.
    pub errors: Vec<FieldError>,
    /// Seconds after which trying again makes sense (`retry-after`).
    pub retry_after_s: Option<u32>,
    /// Methods that the route knows (`allow`).
    pub allow: Option<String>,
    /// What our log should say beside the detail. Never shown to the caller.
    pub cause: Option<String>,
}

impl Problem {
    /// A problem with a detail and nothing else.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            errors: Vec::new(),
            retry_after_s: None,
            allow: None,
            cause: None,
        }
    }

    /// The answer for everything that is not there or not the caller's: the two look alike.
    pub fn not_found(what: &str) -> Self {
        Self::new(ErrorCode::NotFound, format!("no such {what}"))
    }

    /// A fault in one field.
    pub fn field(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let pointer = pointer.into();
        let mut problem = Self::new(ErrorCode::ValidationFailed, format!("{pointer}: {detail}"));
        problem.errors.push(FieldError { pointer, detail });
        problem
    }

    /// Fields that do not fit.
    pub fn fields(errors: Vec<FieldError>) -> Self {
        let told: Vec<_> =
            errors.iter().map(|field| format!("{}: {}", field.pointer, field.detail)).collect();
        Self { errors, ..Self::new(ErrorCode::ValidationFailed, told.join("; ")) }
    }

    /// Our own fault. The detail goes to the log, never to the caller.
    pub fn internal(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, detail)
    }

    /// Trouble that passes; the cause goes to our log.
    pub fn unavailable(detail: &str, cause: impl Into<String>) -> Self {
        let problem = Self::new(ErrorCode::Unavailable, detail);
        Self { retry_after_s: Some(2), cause: Some(cause.into()), ..problem }
    }

    /// The `application/problem+json` body.
    pub fn to_json(&self, request_id: &str) -> String {
        let mut body = serde_json::json!({
            "type": format!("urn:edge-harness:problem:{}", self.code.as_str()),
            "title": self.code.title(),
            "status": self.code.status(),
            "detail": if self.code == ErrorCode::Internal { "see the log under this request id" } else { &self.detail },
            "code": self.code.as_str(),
            "request_id": request_id,
        });
        if !self.errors.is_empty() {
            body["errors"] = serde_json::json!(self.errors);
        }
        body.to_string()
    }
}
