//! The handshake of a legacy client, which its `Mcp-Session-Id` consists of, so nothing is stored: the session in which
//! its calls run unless they name another one, and what the client has said in `initialize`.

pub(super) use crate::mcp::protocol::SESSION_HEADER as HEADER;
use crate::standard::DEFAULT_AGENT;
use crate::types::{AgentId, GeneratedId, SessionId};
use serde_json::json;
use std::fmt;

/// Ends the id of a client that can show forms to its user. A session's id cannot contain it.
const ELICITS: &str = "+forms";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Handshake {
    session: SessionId,
    /// Whether the client can show forms to its user.
    pub elicits: bool,
}

impl Handshake {
    pub fn new(session: SessionId, elicits: bool) -> Self {
        Self { session, elicits }
    }

    /// Reads an id; `None` for a text that is not one.
    pub fn parse(id: &str) -> Option<Self> {
        let (session, elicits) = id.strip_suffix(ELICITS).map_or((id, false), |session| (session, true));
        Some(Self { session: SessionId::parse(session)?, elicits })
    }

    /// Returns the session of calls that ask the default agent.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Returns the session of calls that ask this agent. A session has one agent.
    pub fn session_with(&self, agent: &AgentId) -> SessionId {
        if &**agent == DEFAULT_AGENT {
            return self.session.clone();
        }
        SessionId::derive(&json!(["mcp", self.session, agent]).to_string())
    }
}

impl fmt::Display for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.session, if self.elicits { ELICITS } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn ids_are_read_as_they_are_written() {
        for elicits in [true, false] {
            let own = Handshake::new("ses_1".into(), elicits);
            assert_eq!(Handshake::parse(&own.to_string()), Some(own));
        }
        assert_eq!(Handshake::parse("a+b"), None);
        let own = Handshake::new("ses_1".into(), false);
        assert_eq!(own.session_with(&"default".into()).as_str(), "ses_1");
        assert_ne!(own.session_with(&"other".into()), own.session_with(&"third".into()));
    }
}
