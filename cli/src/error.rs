//! Errors, and the exit codes that scripts rely on.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{io, process::ExitCode, time::Duration};

/// The result of a command.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An argument is wrong.
    #[error("{0}")]
    Usage(String),
    /// The server refused the request.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// There was no response, or it broke off.
    #[error("no connection to {host}: {cause}")]
    Connection {
        /// Host and port.
        host: String,
        /// The innermost reason.
        cause: String,
    },
    /// The server sent something that is not in its contract.
    #[error("unexpected response: {0}")]
    Response(String),
    /// The turn waits for a decision or an answer.
    #[error("the turn waits for a decision or an answer")]
    Waiting,
    /// The turn failed or was canceled; it has been reported already.
    #[error("the turn has no reply")]
    NoReply,
    /// The user left with Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Reading input or writing output failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A command did only a part of its work, which it has reported.
    #[error("{0}")]
    Incomplete(String),
}

impl Error {
    /// Returns the error for an object that is not in a list of the server.
    pub fn not_found(detail: &str) -> Self {
        Self::Refused(Box::new(Problem { status: 404, detail: detail.to_owned(), ..Problem::default() }))
    }

    /// Returns the exit code, which `--help` and docs/agentctl.md describe.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Usage(_) => 2,
            Self::Refused(problem) => match problem.status {
                404 | 410 => 4,
                400..=499 => 3,
                _ => 1,
            },
            Self::Waiting => 5,
            Self::Interrupted => 130,
            _ => 1,
        })
    }

    /// Returns the error for `--json`: the server's problem, or only a message.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Refused(problem) => json!({ "error": problem }),
            other => json!({ "error": { "detail": other.to_string() } }),
        }
    }

    /// Returns whether the same request may succeed a moment later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connection { .. } => true,
            Self::Refused(problem) => {
                problem.code == "idempotency_in_progress"
                    || matches!(problem.status, 502..=504) && problem.code != "newer_session"
            }
            _ => false,
        }
    }

    /// Returns whether a program that has time may repeat the request until it succeeds, if it may take effect twice.
    pub fn may_pass(&self) -> bool {
        let is_limited = matches!(self, Self::Refused(problem) if problem.status == 429);
        self.is_transient() || self.is_failure_of_server() || is_limited
    }

    /// Returns whether the server, or a proxy before it, has failed. Only a request that changes nothing may be repeated.
    pub fn is_failure_of_server(&self) -> bool {
        matches!(self, Self::Refused(problem) if matches!(problem.status, 500 | 520..=530))
    }

    /// Returns the minimum time after which the server accepts a repeated request.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(problem) => problem.retry_after,
            _ => None,
        }
    }

    /// Returns whether the server has no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(problem) if problem.status == 404)
    }
}

/// The server's explanation of an error: `application/problem+json`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Problem {
    /// HTTP status.
    pub status: u16,
    /// Stable code, such as `not_found`.
    pub code: String,
    /// What is wrong in general.
    pub title: String,
    /// What is wrong here, and what to do.
    pub detail: String,
    /// Identifies the request in the server's log.
    pub request_id: Option<String>,
    /// The wrong fields.
    pub errors: Vec<FieldError>,
    /// The header `retry-after`.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
    /// Whether an earlier attempt of the same request may have succeeded.
    #[serde(skip)]
    pub is_repeated: bool,
}

/// One wrong field of a request.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct FieldError {
    /// JSON pointer to the field.
    pub pointer: String,
    /// What is wrong with it.
    pub detail: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let detail = if self.detail.is_empty() { &self.title } else { &self.detail };
        write!(f, "{detail}")?;
        if !self.code.is_empty() {
            write!(f, " ({})", self.code)?;
        }
        for FieldError { pointer, detail } in &self.errors {
            write!(f, "\n  {pointer}: {detail}")?;
        }
        Ok(())
    }
}

/// Adds the name of a file to an error.
pub trait InFile<T> {
    /// Names the file.
    fn in_file(self, path: impl AsRef<std::path::Path>) -> Result<T>;
}

impl<T> InFile<T> for io::Result<T> {
    fn in_file(self, path: impl AsRef<std::path::Path>) -> Result<T> {
        self.map_err(|source| Error::File { path: path.as_ref().display().to_string(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, code: &str) -> Error {
        Error::Refused(Box::new(Problem { status, code: code.into(), ..Problem::default() }))
    }

    #[test]
    fn each_kind_of_error_has_its_exit_code() {
        let codes = [
            (Error::Usage(String::new()), 2),
            (refused(401, "unauthenticated"), 3),
            (refused(409, "session_busy"), 3),
            (refused(429, "rate_limited"), 3),
            (refused(404, "not_found"), 4),
            (refused(410, "gone"), 4),
            (refused(503, "unavailable"), 1),
            (Error::NoReply, 1),
            (Error::Waiting, 5),
        ];
        for (error, code) in codes {
            assert_eq!(error.exit_code(), ExitCode::from(code), "{error:?}");
        }
    }

    #[test]
    fn only_failures_that_may_pass_are_transient() {
        assert!(refused(503, "unavailable").is_transient());
        assert!(refused(409, "idempotency_in_progress").is_transient());
        assert!(!refused(503, "newer_session").is_transient());
        assert!(!refused(429, "quota_exceeded").is_transient());
    }
}
