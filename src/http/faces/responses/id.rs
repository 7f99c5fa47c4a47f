//! The ids of responses. A turn has one response for each part between two waits, so that the results of a client's
//! tools belong to the response that follows.

use crate::types::{Problem, SessionId, TurnId};
use std::fmt;

/// The id of a response: `resp_TURN_PART.SESSION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResponseId {
    pub turn: TurnId,
    /// Number of times that the turn has waited before.
    pub part: u32,
    pub session: SessionId,
}

impl fmt::Display for ResponseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "resp_{}_{}.{}", self.turn, self.part, self.session)
    }
}

impl ResponseId {
    /// Reads an id.
    ///
    /// # Errors
    /// `not_found` for a text that is not an id of a response.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let parsed = || {
            // A turn's id has no dot; a session's may have some.
            let (own, session) = text.strip_prefix("resp_")?.split_once('.')?;
            let (turn, part) = own.rsplit_once('_')?;
            Some(Self { turn: turn.into(), part: part.parse().ok()?, session: SessionId::parse(session)? })
        };
        parsed().ok_or_else(|| Problem::not_found("response"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let id = ResponseId { turn: "trn_1".into(), part: 12, session: "a.b_c".into() };
        assert_eq!(id.to_string(), "resp_trn_1_12.a.b_c");
        assert_eq!(ResponseId::parse("resp_trn_1_12.a.b_c"), Ok(id));
        for text in ["", "resp_trn.s", "resp_trn_1_x.s", "trn_1_0.s", "resp_trn_1_0"] {
            assert!(ResponseId::parse(text).is_err(), "{text}");
        }
    }
}
