//! Why a server gave no result.

use super::oauth::Challenge;
use crate::ports::{
    HttpError, directory::DirectoryError, json_messages::JsonMessagesError, outbound::EndpointError,
    secrets::SecretError,
};
use crate::types::Invalid;
use serde_json::Value;
use std::time::Duration;
use thiserror::Error;

/// An error of JSON-RPC.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{code}: {message}")]
pub struct RpcError {
    /// The code.
    pub code: i64,
    /// The server's text.
    pub message: String,
    /// Whether the server says that it supports the modern version.
    pub supports_modern: bool,
}

/// Why a server gave no result. Continues a sentence whose subject is the server.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum McpError {
    /// No response has arrived, or it broke off. The text of the platform may contain the URL, which may contain a secret.
    #[error("cannot be reached, or the connection was lost")]
    Unreachable,
    /// The time limit is over.
    #[error("did not answer within {} s", .0.as_secs())]
    Slow(Duration),
    /// The server wants credentials.
    #[error(
        "refused the credentials with status {0}: store a secret with PUT /v1/secrets/NAME, and set the server's \
         `headers` in the agent's definition, for example {{\"authorization\": \"Bearer ${{secret:NAME}}\"}}"
    )]
    Unauthorized(u16, Challenge),
    /// The user cannot give consent, or has not given it.
    #[error("cannot be connected with the user's account: {0}")]
    Consent(String),
    /// The authorization server failed.
    #[error(
        "cannot be connected at the moment: its authorization server answered with status {0}; try again"
    )]
    Issuer(u16),
    /// The store of consent failed.
    #[error("cannot be asked: the user's consent cannot be read; try again")]
    Store,
    /// A redirect could lead to another host, with the credentials of this one.
    #[error(
        "redirects, which is not followed: set the server's `url` in the agent's definition to the final address"
    )]
    Redirect,
    /// Any other status that is no success.
    #[error("answered with status {status}{}", .error.as_ref().map(|error| format!(" and the error {error}")).unwrap_or_default())]
    Status {
        /// The status.
        status: u16,
        /// The error in the body.
        error: Option<RpcError>,
        /// Whether the body is about a session.
        names_session: bool,
    },
    /// The server has refused the request.
    #[error("answered with the error {0}")]
    Rpc(RpcError),
    /// The response is not of the protocol.
    #[error("sent an invalid response: {0}")]
    Malformed(&'static str),
    /// A legacy server asks a question during a call, for which the call has to wait: its request.
    #[error("asks for input")]
    Asks(Value),
    /// The URL or a header has a secret that cannot be read.
    #[error("cannot be asked: {0}")]
    Secret(#[from] SecretError),
    /// The request cannot be sent.
    #[error("cannot be asked: {0}")]
    Refused(#[from] Invalid),
}

impl From<EndpointError> for McpError {
    fn from(error: EndpointError) -> Self {
        match error {
            EndpointError::Secret(error) => error.into(),
            EndpointError::Refused(why) => why.into(),
        }
    }
}

impl McpError {
    /// Returns the explanation for the operator's log, without text of the server.
    pub fn for_log(&self) -> String {
        match self {
            Self::Rpc(error) => format!("answered with the error {}", error.code),
            Self::Status { status, .. } => format!("answered with status {status}"),
            other => other.to_string(),
        }
    }

    /// Returns the code of the server's error.
    pub fn code(&self) -> Option<i64> {
        match self {
            Self::Rpc(error) | Self::Status { error: Some(error), .. } => Some(error.code),
            _ => None,
        }
    }

    /// Returns whether the server has refused a modern request, but says that it supports the modern version.
    pub(super) fn asks_to_repeat(&self) -> bool {
        match self {
            Self::Rpc(error) | Self::Status { error: Some(error), .. } => error.supports_modern,
            _ => false,
        }
    }

    /// Returns whether a request that was sent may have taken effect.
    pub fn is_uncertain(&self) -> bool {
        match self {
            Self::Unreachable | Self::Slow(_) | Self::Malformed(_) => true,
            // Also of a proxy that has lost the server.
            Self::Status { status, error, .. } => error.is_none() && (*status == 408 || *status >= 500),
            _ => false,
        }
    }

    /// Returns whether the same request may succeed later.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable | Self::Slow(_) | Self::Issuer(_) | Self::Store)
    }

    /// Returns whether a legacy server has refused a request because it does not have its session. The protocol says 404;
    /// some servers respond with 400.
    pub(super) fn is_of_session(&self) -> bool {
        matches!(
            self,
            Self::Status { status: 404, .. } | Self::Status { status: 400, names_session: true, .. }
        )
    }

    /// Returns whether a request in the other era would fail in the same way.
    pub(super) fn concerns_both_eras(&self) -> bool {
        matches!(
            self,
            Self::Unreachable
                | Self::Slow(_)
                | Self::Unauthorized(..)
                | Self::Consent(_)
                | Self::Issuer(_)
                | Self::Store
                | Self::Redirect
                | Self::Secret(_)
                | Self::Refused(_)
                | Self::Status { status: 429, .. }
        )
    }
}

impl From<DirectoryError> for McpError {
    fn from(_: DirectoryError) -> Self {
        Self::Store
    }
}

impl From<HttpError> for McpError {
    fn from(_: HttpError) -> Self {
        Self::Unreachable
    }
}

impl From<JsonMessagesError> for McpError {
    fn from(error: JsonMessagesError) -> Self {
        match error {
            JsonMessagesError::Lost(error) => error.into(),
            JsonMessagesError::TooLarge => Self::Malformed("it is too large"),
            JsonMessagesError::NotJson => Self::Malformed("it is not JSON"),
        }
    }
}
