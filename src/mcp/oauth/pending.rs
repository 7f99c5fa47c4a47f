//! A request for consent as it is stored until the user has confirmed it.

use super::client::Grant;
use crate::types::Timestamp;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A request that waits for the user.
#[derive(Serialize, Deserialize)]
pub(super) struct Request {
    pub verifier: String,
    pub redirect_uri: String,
    /// Whether the authorization server must name itself when it sends the user back.
    pub must_name_itself: bool,
    /// The URL of the server.
    pub server: String,
    pub grant: Grant,
    /// What the authorization server has sent back.
    pub parked: Option<Parked>,
}

/// The code of an authorization server that waits for the user.
#[derive(Serialize, Deserialize)]
pub(super) struct Parked {
    pub code: String,
    pub confirmation: String,
    /// Until when the user can confirm it.
    pub until: Timestamp,
}

/// Returns the hash of a secret, as PKCE writes it. A request is stored under the hash of its state, so that the store does
/// not have the state.
pub(super) fn hash(secret: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(secret))
}
