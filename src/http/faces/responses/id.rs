//! The ids of responses. A turn has one response for each part between two waits, so that the results of a client's
//! tools belong to the response that follows, and one for each decision after which the turn still waits.

use crate::types::{Problem, SessionId, TurnId};
use std::fmt;

/// The id of a response: `resp_TURN_PART.SESSION`, or `resp_TURN_PART-RESOLVED.SESSION` if the turn still waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResponseId {
    pub turn: TurnId,
    /// Number of times that the turn has waited before.
    pub part: u32,
    /// Number of the calls of the last wait that were decided or answered, if others still waited; otherwise 0.
    pub resolved: usize,
    pub session: SessionId,
}

impl fmt::Display for ResponseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { turn, part, resolved, session } = self;
        match resolved {
            0 => write!(f, "resp_{turn}_{part}.{session}"),
            resolved => write!(f, "resp_{turn}_{part}-{resolved}.{session}"),
        }
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
            let (part, resolved) = match part.split_once('-') {
                Some((part, resolved)) => (part, resolved.parse().ok().filter(|resolved| *resolved > 0)?),
                None => (part, 0),
            };
            let (part, session) = (part.parse().ok()?, SessionId::parse(session)?);
            Some(Self { turn: turn.into(), part, resolved, session })
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
        for (resolved, text) in [(0, "resp_trn_1_12.a.b_c"), (3, "resp_trn_1_12-3.a.b_c")] {
            let id = ResponseId { turn: "trn_1".into(), part: 12, resolved, session: "a.b_c".into() };
            assert_eq!(id.to_string(), text);
            assert_eq!(ResponseId::parse(text), Ok(id));
        }
        for text in ["", "resp_trn.s", "resp_trn_1_x.s", "resp_trn_1_1-0.s", "trn_1_0.s", "resp_trn_1_0"] {
            assert!(ResponseId::parse(text).is_err(), "{text}");
        }
    }
}
