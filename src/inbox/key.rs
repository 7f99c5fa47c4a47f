//! The keys of the inbox's documents. Their spelling is stored and must never change.

use crate::types::{
    AgentId, CallId, InboxCall, InboxFilter, InboxKind, RemovedCall, SessionId, Timestamp, UserId,
};
use serde::Deserialize;
use serde::de::value::{Error, StrDeserializer};
use sha2::{Digest as _, Sha256};

/// The numbers of changes.
pub const NUMBERS: &str = "numbers";
/// The start of the keys of sessions without calls.
const QUIET: &str = "quiet/";

/// What the inbox knows of a session. The key outlives the session by a day, and so has only a hash of its id.
pub fn session(session: &SessionId) -> String {
    let hash = Sha256::digest(session.as_str());
    hash.iter().take(16).fold("session/".to_owned(), |key, byte| key + &format!("{byte:02x}"))
}

/// A session without calls, by the time of its last notice. `own` is the key of what the inbox knows of it.
pub fn quiet(sent_at: Timestamp, own: &str) -> String {
    format!("{QUIET}{:016x}/{own}", sent_at.0)
}

/// The range of sessions without calls whose last notice is older.
pub fn quiet_before(at: Timestamp) -> (String, String) {
    (QUIET.to_owned(), format!("{QUIET}{:016x}", at.0))
}

/// Parses a key of [`quiet`].
pub fn parse_quiet(key: &str) -> Option<(Timestamp, String)> {
    let (sent_at, own) = key.strip_prefix(QUIET)?.split_once('/')?;
    Some((Timestamp(u64::from_str_radix(sent_at, 16).ok()?), own.to_owned()))
}

/// A folder of entries, in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folder {
    /// The calls, by their last change.
    Calls,
    /// The removals of calls.
    Removals,
}

impl Folder {
    fn name(self) -> &'static str {
        match self {
            Self::Calls => "call",
            Self::Removals => "gone",
        }
    }

    /// Returns the range of keys from a number.
    pub fn range(self, from: u64) -> (String, String) {
        // `0` follows `/`.
        (format!("{}/{from:016x}", self.name()), format!("{}0", self.name()))
    }
}

/// The part of an entry's key by which entries are selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryKey {
    kind: InboxKind,
    agent: AgentId,
    user: UserId,
    session: SessionId,
    /// Last, because providers may choose ids that contain a slash.
    call: CallId,
}

impl EntryKey {
    /// Returns the key of a call.
    pub fn new(call: &InboxCall) -> Self {
        Self {
            kind: call.call.kind,
            agent: call.agent.clone(),
            user: call.user.clone(),
            session: call.session.clone(),
            call: call.call.call_id.clone(),
        }
    }

    /// Returns whether a key in [`Folder::Calls`] is that of this call.
    pub fn is_of(key: &str, call: &InboxCall) -> bool {
        Self::parse(key).is_some_and(|(_, entry)| entry == Self::new(call))
    }

    /// Returns the key of the document with this number.
    pub fn at(&self, folder: Folder, number: u64) -> String {
        let Self { kind, agent, user, session, call } = self;
        format!("{}/{number:016x}/{}/{agent}/{user}/{session}/{call}", folder.name(), kind.name())
    }

    /// Parses the key of a document.
    pub fn parse(key: &str) -> Option<(u64, Self)> {
        let mut parts = key.splitn(7, '/').skip(1);
        let number = u64::from_str_radix(parts.next()?, 16).ok()?;
        let kind = InboxKind::deserialize(StrDeserializer::<Error>::new(parts.next()?)).ok()?;
        let (agent, user, session) = (parts.next()?.into(), parts.next()?.into(), parts.next()?.into());
        Some((number, Self { kind, agent, user, session, call: parts.next()?.into() }))
    }

    /// Returns whether a filter selects the call.
    pub fn fits(&self, filter: &InboxFilter) -> bool {
        let InboxFilter { user, agent, session, kind, call } = filter;
        user.as_ref().is_none_or(|user| *user == self.user)
            && agent.as_ref().is_none_or(|agent| *agent == self.agent)
            && session.as_ref().is_none_or(|session| *session == self.session)
            && kind.is_none_or(|kind| kind == self.kind)
            && call.as_ref().is_none_or(|call| *call == self.call)
    }

    /// Returns the call as removed.
    pub fn removed(self) -> RemovedCall {
        let Self { kind, agent, user, session, call } = self;
        RemovedCall { run: session.as_run(), session, user, agent, call_id: call, kind }
    }
}
