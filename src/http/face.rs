//! A protocol besides the native one; see [`faces`](super::faces).

use super::pattern::Params;
use super::request::Request;
use super::response::Response;
use crate::types::{Problem, SessionId};

/// Writes a problem as the response to the request with this id.
pub type WriteProblem = fn(&Problem, &str) -> Response;

/// A protocol besides the native one.
pub struct Face {
    /// Reads what a request concerns.
    pub target: fn(&Request, &Params) -> Result<Target, Problem>,
    /// Writes a problem.
    pub problem: WriteProblem,
}

/// What a request of a face concerns.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The session; `None` for a new one.
    pub session: Option<SessionId>,
    /// The agent, if the request names one.
    pub agent: Option<String>,
    /// The user, if the request names one.
    pub user: Option<String>,
    /// Whether the request concerns a turn that has begun, and starts none.
    pub controls: bool,
}

impl Target {
    /// Returns the target of a request that concerns a turn of this session, and starts none.
    pub fn controlling(session: SessionId) -> Self {
        Self { session: Some(session), controls: true, ..Self::default() }
    }
}
