//! The calls of subagents as calls of the session that waits for them: their ids are `CHILD/CALL`, so that a client decides
//! them like all others.

use crate::http::disposition::RESERVED;
use crate::http::session::call::Call;
use crate::ports::{PeerRequest, PeerResponse};
use crate::session::Session;
use crate::types::{
    ErrorCode, FieldError, Pending, Problem, Reached, SessionId, StorageQuota, TimedLimit, Timestamp,
    WaitKind, json,
};
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
    let theirs: Vec<Pending> = json::from_value(call.payload["pending"].clone()).ok()?;
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
            Some(PeerResponse { status: 200..300, .. }) => Ok(true),
            Some(response) => Err(problem_of(&response)),
        }
    }
}

/// Reads the problem that the session of a subagent has responded with.
fn problem_of(response: &PeerResponse) -> Problem {
    #[derive(Deserialize)]
    struct Written {
        code: ErrorCode,
        detail: String,
        #[serde(default)]
        errors: Vec<FieldError>,
        #[serde(flatten)]
        limit: Option<Limit>,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Limit {
        Timed { limit: TimedLimit, resets_at: Timestamp },
        Stored { limit: StorageQuota },
    }
    let Written { code, detail, errors, limit } = match json::from_slice(&response.body) {
        Ok(written) => written,
        Err(error) => {
            return Problem::internal(format!("the response of a subagent's session: {error}"));
        }
    };
    let problem = Problem { errors, retry_after_s: response.retry_after_s, ..Problem::new(code, detail) };
    match limit {
        None => problem,
        Some(Limit::Stored { limit }) => Problem { quota: Some(limit), ..problem },
        Some(Limit::Timed { limit, resets_at }) => {
            // Running turns hold the rest of a daily limit if a retry may succeed before it resets.
            let held = code == ErrorCode::RateLimited && limit.is_daily();
            Problem { reached: Some(Box::new(Reached { limit, resets_at, held })), ..problem }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use pretty_assertions::assert_eq;
    use std::time::Duration;

    #[test]
    fn ids_of_subagents_calls_are_read_as_they_are_written() {
        let parsed = |id| ChildCall::parse(id).map(|found| (found.child.to_string(), found.call));
        assert_eq!(parsed("ses_1/call/a"), Some(("ses_1".to_owned(), "call/a")));
        assert_eq!((parsed("call_1"), parsed("/call"), parsed("a b/call")), (None, None, None));
    }

    #[test]
    fn a_problem_is_read_as_it_is_written() {
        let now = Timestamp(1_795_176_000_000);
        let over = |limit, held| {
            let resets_at = now + Duration::from_secs(90);
            Problem::over_limit(Reached { limit, resets_at, held }, now)
        };
        for problem in [
            Problem::field("/answer", "not an option"),
            Problem::rate_limited("too many", now + Duration::from_secs(5), now),
            Problem::over_quota(StorageQuota::Sessions),
            over(TimedLimit::ConcurrentTurns, false),
            over(TimedLimit::CostUsdPerDay, true),
            over(TimedLimit::TokensPerDay, false),
        ] {
            let (status, retry_after_s) = (problem.code.status(), problem.retry_after_s);
            let body = problem.to_json("req_1").into();
            assert_eq!(problem_of(&PeerResponse { status, retry_after_s, body }), problem);
        }
        let body = Bytes::from_static(b"?");
        let malformed = problem_of(&PeerResponse { status: 500, retry_after_s: None, body });
        assert_eq!(malformed.code, ErrorCode::Internal);
    }
}
