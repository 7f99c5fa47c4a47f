//! The ids of the events of a response to a legacy client. An id contains what is necessary to write the rest of the
//! response from the log, so nothing is stored. It permits nothing: the caller may read the turn anyway.

use crate::http::request::{Request, RequestExt};
use crate::types::{ErrorCode, Problem, SessionId, TurnId, json};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// A place in the response to a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// Number of the last record of the turn.
    pub seq: u64,
    /// Bytes of text since that record.
    pub text: usize,
    /// Number of notifications of progress so far.
    pub progress: u64,
}

/// The id of an event.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct EventId {
    #[serde(rename = "s")]
    pub session: SessionId,
    #[serde(rename = "t")]
    pub turn: TurnId,
    /// The id of the request.
    #[serde(rename = "r")]
    pub request: Value,
    #[serde(rename = "p")]
    pub progress_token: Option<Value>,
    #[serde(rename = "at")]
    pub position: Position,
}

impl EventId {
    fn parse(text: &str) -> Option<Self> {
        let id: Self = json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        SessionId::parse(&id.session)?;
        let is_id = |value: &Value| value.is_string() || value.is_number();
        (is_id(&id.request) && id.progress_token.as_ref().is_none_or(is_id)).then_some(id)
    }

    /// Reads the last id that a client has received.
    ///
    /// # Errors
    /// `invalid_request` without an id of this server.
    pub fn of(request: &Request) -> Result<Self, Problem> {
        let invalid =
            || Problem::new(ErrorCode::InvalidRequest, "`last-event-id` is not an id of this server");
        request.header("last-event-id").and_then(Self::parse).ok_or_else(invalid)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let json = serde_json::to_vec(self).map_err(|_| fmt::Error)?;
        f.write_str(&URL_SAFE_NO_PAD.encode(json))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let position = Position { seq: 7, text: 200, progress: 2 };
        let id = |request: Value, session: &str| EventId {
            session: session.into(),
            turn: "trn_1".into(),
            request,
            progress_token: Some(json!("p")),
            position,
        };
        for request in [json!(0), json!("a\nb")] {
            let id = id(request, "a.b");
            assert!(id.to_string().bytes().all(|byte| byte.is_ascii_graphic()));
            assert_eq!(EventId::parse(&id.to_string()), Some(id));
        }
        for invalid in [id(json!({}), "a"), id(json!(1), "a/b")] {
            assert_eq!(EventId::parse(&invalid.to_string()), None);
        }
        assert_eq!((EventId::parse(""), EventId::parse("12"), EventId::parse("e30")), (None, None, None));
    }
}
