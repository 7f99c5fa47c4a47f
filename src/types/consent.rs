//! The consent of a user at another server.

use super::{CallId, SessionId, TenantId, UserId};

/// What an authorization server sends back with the browser of the user.
#[derive(Clone, Debug, Default)]
pub struct ConsentReply {
    /// The state of the request.
    pub state: String,
    /// The code, if the user has given consent.
    pub code: Option<String>,
    /// The authorization server.
    pub iss: Option<String>,
}

/// A request for consent that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedConsent {
    /// The tenant.
    pub tenant: TenantId,
    /// The user.
    pub user: UserId,
    /// The session of the call that waits.
    pub session: SessionId,
    /// The call that waits.
    pub call: CallId,
    /// Whether there is a token now, or why there is none.
    pub outcome: Result<(), String>,
}
