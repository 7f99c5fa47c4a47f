//! The outcome of a request that opens a WebSocket.

use crate::session::frame::Frame;
use crate::types::{Principal, SessionId, TenantPolicy, Timestamp};
use serde::{Deserialize, Serialize};

/// A WebSocket that the platform has to open.
pub struct Upgrade {
    /// The frames to send first: the events that the client has missed.
    pub missed: Vec<Frame>,
    /// Whether the client has missed more events. The socket must then be closed after the frames.
    pub is_behind: bool,
    /// The state to store with the socket.
    pub state: SocketState,
}

/// The state of a socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SocketState {
    /// The caller who opened the socket.
    pub principal: Principal,
    /// The session.
    pub session: SessionId,
}

impl SocketState {
    /// Returns the state to store with the socket, which survives the hibernation of its object. It lacks the tenant's
    /// policy, because the platform limits its size; the next check of the credential reads them again.
    pub fn stored(&self) -> Self {
        let (policy, valid_until) = (TenantPolicy::default(), Timestamp(0));
        Self { principal: Principal { policy, valid_until, ..self.principal.clone() }, ..self.clone() }
    }
}
