//! The id under which protocols with tasks know a turn.

use crate::types::{Problem, SessionId, TurnId};
use std::fmt;

/// The id of a task: `TURN.SESSION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskId {
    pub turn: TurnId,
    pub session: SessionId,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.turn, self.session)
    }
}

impl TaskId {
    /// Reads an id.
    ///
    /// # Errors
    /// `not_found` for a text that is not an id of a task.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        // A turn's id has no dot; a session's may have some.
        let parsed = text.split_once('.').and_then(|(turn, session)| {
            Some(Self { turn: turn.into(), session: SessionId::parse(session)? })
        });
        parsed.ok_or_else(|| Problem::not_found("task"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let id = TaskId { turn: "trn_1".into(), session: "a.b".into() };
        assert_eq!(id.to_string(), "trn_1.a.b");
        assert_eq!(TaskId::parse("trn_1.a.b"), Ok(id));
        assert!(TaskId::parse("trn_1").is_err() && TaskId::parse("trn_1./").is_err());
    }
}
