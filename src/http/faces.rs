//! Faces: other protocols over the same sessions. A face reads a request into a native message, and writes the records
//! of the turn as frames of its protocol. It stores nothing and runs nothing itself.
//!
//! To add one, write a file with a [`Face`], a handler and a [`Projection`](crate::session::hub::Projection), and add a
//! line for each of its routes to the route table.

pub mod chat_completions;
pub(super) mod openai;
mod text;
mod transcript;

use super::request::Request;
use super::response::{self, Response};
use super::{route::WriteProblem, routes};
use crate::types::{Problem, SessionId};

/// A protocol besides the native one.
pub struct Face {
    /// Reads what a request concerns.
    pub target: fn(&Request) -> Result<Target, Problem>,
    /// Writes an error.
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
}

/// Writes an error in the format of the request's route.
pub fn problem<B>(request: &http::Request<B>, problem: &Problem, request_id: &str) -> Response {
    let found = routes::find(request.method(), request.uri().path());
    found.map_or(response::problem as WriteProblem, |found| found.route.write_problem)(problem, request_id)
}
