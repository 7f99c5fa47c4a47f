//! The consent of a user at another server.

use super::UserId;
use serde::Serialize;

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

/// What the browser of the user shows after that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsentPage {
    /// The code that the user enters in the session that has asked for consent.
    Confirm {
        /// The code.
        code: String,
        /// The user of the session.
        user: UserId,
        /// The URL of the server.
        server: String,
    },
    /// Why the user is not connected. Continues a sentence whose subject is the server.
    Refused(String),
}

/// A user who is connected with a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConsentGiven {
    /// The user.
    pub user: UserId,
    /// The URL of the server.
    pub server: String,
}
