//! The outcome of a request that opens a WebSocket.

use crate::session::frame::Frame;
use crate::types::{Principal, SessionId};
use serde::{Deserialize, Serialize};

/// A WebSocket that the platform has to open.
pub struct Upgrade {
    /// The frames to send first: the events that the client has missed.
    pub missed: Vec<Frame>,
    /// The state to store with the socket.
    pub state: SocketState,
}

/// The state of a socket that survives the hibernation of its object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SocketState {
    /// The caller who opened the socket.
    pub principal: Principal,
    /// The session.
    pub session: SessionId,
}
