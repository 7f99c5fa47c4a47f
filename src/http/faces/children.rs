//! The calls of subagents as calls of the session that waits for them: their ids are `CHILD/CALL`, so that a client decides
//! them like all others.

use crate::http::disposition::RESERVED;
use crate::http::session::call::Call;
use crate::ports::PeerRequest;
use crate::session::Session;
use crate::types::{ErrorCode, FieldError, Pending, Problem, SessionId, WaitKind};
use percent_encoding::utf8_percent_encode;
use serde::Deserialize;
use serde_json::Value;

/// Returns the calls that wait for a person or client: in place of a call that waits for a subagent, the calls of the
/// subagent.
pub(super) fn flattened(pending: &[Pending]) -> Vec<Pending> {
    pending.iter().flat_map(|call| calls_of(call).unwrap_or_else(|| vec![call.clone()])).collect()
}

/// Returns the calls of the subagent that a call waits for; `None` for any other call.
fn calls_of(call: &Pending) -> Option<Vec<Pending>> {
    let child = call.payload["session"].as_str().filter(|_| call.kind == WaitKind::Subagent)?;
    let theirs: Vec<Pending> = serde_json::from_value(call.payload["pending"].clone()).ok()?;
    let own = |their: Pending| Pending {
        call_id: format!("{child}/{}", their.call_id).into(),
        turn: call.turn.clone(),
        ..their
    };
    Some(theirs.into_iter().map(own).collect())
}

/// A call of a subagent for which the current turn waits.
pub(super) struct ChildCall<'a> {
    child: SessionId,
    call: &'a str,
}

impl<'a> ChildCall<'a> {
    /// Reads an id; `None` for the id of another call.
    pub fn parse(id: &'a str) -> Option<Self> {
        let (child, call) = id.split_once('/')?;
        Some(Self { child: SessionId::parse(child)?, call })
    }

    /// Returns whether the subagent waits for it.
    pub fn is_among(&self, pending: &[Pending]) -> bool {
        let id = format!("{}/{}", self.child, self.call);
        flattened(pending).iter().any(|call| *call.call_id == *id)
    }

    /// Sends it what the client says: the body of a native request to `approvals` or `answers`. Returns whether a call of
    /// the current turn waits for such a subagent.
    ///
    /// # Errors
    /// As for the same request to the session of the subagent; `unavailable` if that cannot be reached.
    pub async fn post(
        &self,
        call: &Call<'_>,
        session: &Session,
        route: &str,
        body: &Value,
    ) -> Result<bool, Problem> {
        let request = PeerRequest {
            principal: call.principal.clone(),
            id: call.request_id.clone(),
            path: format!("/{route}/{}", utf8_percent_encode(self.call, RESERVED)),
            body: body.to_string(),
        };
        match call.host.post_to_child(session, &self.child, &self.call.into(), request).await? {
            None => Ok(false),
            Some((200..300, _)) => Ok(true),
            Some((_, body)) => Err(problem_of(&body)),
        }
    }
}

/// Reads the problem that the session of a subagent has responded with.
fn problem_of(body: &[u8]) -> Problem {
    #[derive(Deserialize)]
    struct Written {
        code: ErrorCode,
        detail: String,
        #[serde(default)]
        errors: Vec<FieldError>,
    }
    match serde_json::from_slice(body) {
        Ok(Written { code, detail, errors }) => Problem { errors, ..Problem::new(code, detail) },
        Err(error) => Problem::internal(format!("the response of a subagent's session: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn ids_of_subagents_calls_are_read_as_they_are_written() {
        let parsed = |id| ChildCall::parse(id).map(|found| (found.child.to_string(), found.call));
        assert_eq!(parsed("ses_1/call/a"), Some(("ses_1".to_owned(), "call/a")));
        assert_eq!((parsed("call_1"), parsed("/call"), parsed("a b/call")), (None, None, None));
    }

    #[test]
    fn a_problem_is_read_as_it_is_written() {
        let problem = Problem::field("/answer", "not an option");
        assert_eq!(problem_of(problem.to_json("req_1").as_bytes()), problem);
        assert_eq!(problem_of(b"?").code, ErrorCode::Internal);
    }
}
