//! What clients observe: what they sent, and what they received.

use super::caller::Caller;
use edge_harness::types::Cursor;
use serde_json::Value;

/// The fate of a posted message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was accepted, as this turn if the client received its id.
    Accepted(Option<String>),
    Refused,
    /// The connection was lost.
    Unknown,
}

/// The observations of the clients of one session.
#[derive(Default)]
pub struct Witness {
    /// The turn's index in the scenario, whether it was posted with an idempotency key, and its fate.
    pub posts: Vec<(usize, bool, Fate)>,
    /// The decisions and answers that people sent.
    pub submissions: Vec<Submission>,
    /// The claims that were granted.
    pub claims: Vec<Claimed>,
    /// Turns whose complete response was received, with the response.
    pub answers: Vec<(String, Value)>,
    /// Streamed turns.
    pub streams: Vec<Streamed>,
    /// The events that the follower of the session has received since its start.
    pub followed: Vec<Event>,
    /// Number of records in the log when the follower reconnected for the last time.
    pub known: usize,
    pub dequeued: Vec<String>,
    pub titles: Vec<String>,
    /// The patches of permissions that were sent.
    pub patches: Vec<Patch>,
    /// Whether the erasure was confirmed.
    pub erased: bool,
}

/// The stream of a turn as received, until the turn ended or waited.
pub struct Streamed {
    pub turn: String,
    pub events: Vec<Event>,
    /// Whether the stream reached its end.
    pub complete: bool,
    /// Whether the stream started at the start of the turn.
    pub whole: bool,
}

/// One event.
#[derive(Clone, Debug)]
pub struct Event {
    pub id: Option<Cursor>,
    pub name: String,
    pub data: String,
}

/// A decision or answer that a person sent, and the response.
#[derive(Clone, Debug)]
pub struct Submission {
    pub call_id: String,
    /// Whether it is an answer instead of a decision.
    pub answers: bool,
    /// Whether the call waits for a client that runs the tool.
    pub external: bool,
    pub body: Value,
    /// Whether it must be rejected, because it is invalid or for other arguments.
    pub wrong: bool,
    pub caller: Caller,
    /// When it was sent, and when the response arrived or the connection was lost.
    pub at: (u64, u64),
    /// The status of the response, unless the connection was lost.
    pub status: Option<u16>,
}

impl Submission {
    pub fn declines(&self) -> bool {
        self.body["decision"] == "decline"
    }
}

/// A claim that was granted.
#[derive(Clone, Debug)]
pub struct Claimed {
    pub call_id: String,
    pub runner: &'static str,
    /// When it was sent, and when the response arrived.
    pub at: (u64, u64),
    /// When it ends.
    pub until: u64,
}

/// A patch of a session's permissions that was sent, and the response.
pub struct Patch {
    pub body: Value,
    pub caller: Caller,
    /// The status of the response, unless the connection was lost.
    pub status: Option<u16>,
    /// The permissions in the response.
    pub permissions: Value,
}

/// Returns whether an event with this name ends its turn.
pub fn is_end(name: &str) -> bool {
    matches!(name, "turn.completed" | "turn.failed" | "turn.canceled")
}

/// Returns whether an event with this name means that its turn waits.
pub fn waits(name: &str) -> bool {
    name == "turn.waiting"
}
