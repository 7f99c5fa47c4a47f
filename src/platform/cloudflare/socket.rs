//! WebSockets that survive hibernation: the platform holds them and wakes the object.

use crate::http::session::sockets::Socket;
use crate::http::upgrade::SocketState;
use crate::types::json;
use worker::{Result, State, WebSocket};

/// A WebSocket of this object.
#[derive(Clone)]
pub struct ObjectSocket(pub WebSocket);

impl PartialEq for ObjectSocket {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_ref() == other.0.as_ref()
    }
}

impl Socket for ObjectSocket {
    fn send(&self, text: &str) -> bool {
        self.0.send_with_str(text).is_ok()
    }

    fn close(&self, code: u16, reason: &str) {
        // A socket that is closing already refuses it.
        let _ = self.0.close(Some(code), Some(reason));
    }
}

/// Returns the sockets that the object held before it was evicted.
pub fn held(state: &State) -> Vec<(ObjectSocket, SocketState)> {
    let sockets = state.get_websockets().into_iter();
    sockets.filter_map(|socket| Some((ObjectSocket(socket.clone()), stored(&socket)?))).collect()
}

/// Makes the platform hold a socket of a request, with its state.
pub fn hold(state: &State, socket: &WebSocket, stored: &SocketState) -> Result<()> {
    state.accept_web_socket(socket);
    socket.serialize_attachment(serde_json::to_string(stored)?)
}

fn stored(socket: &WebSocket) -> Option<SocketState> {
    let text: String = socket.deserialize_attachment().ok().flatten()?;
    json::from_str(&text).ok()
}
