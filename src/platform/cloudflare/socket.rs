//! WebSockets that survive hibernation: the platform holds them and wakes the object.

use crate::session::{frame::Frame, hub::Broadcast};
use std::{cell::Cell, rc::Rc};
use worker::{State, WebSocket};

/// All sockets of an object.
pub struct Sockets {
    state: Rc<State>,
    any: Cell<bool>,
}

impl Sockets {
    /// Wraps the sockets that already exist.
    pub fn new(state: Rc<State>) -> Self {
        let any = Cell::new(!state.get_websockets().is_empty());
        Self { state, any }
    }

    /// Accepts a socket of a request.
    pub fn accept(&self, socket: &WebSocket) {
        self.state.accept_web_socket(socket);
        self.any.set(true);
    }
}

impl Broadcast for Sockets {
    fn is_empty(&self) -> bool {
        !self.any.get()
    }

    fn len(&self) -> usize {
        if self.any.get() { self.state.get_websockets().len() } else { 0 }
    }

    fn broadcast(&self, frame: &Frame) {
        let sockets = self.state.get_websockets();
        self.any.set(!sockets.is_empty());
        for socket in sockets {
            // A closing socket refuses the frame; its client reconnects with its last cursor.
            let _ = socket.send_with_str(&frame.data);
        }
    }

    fn close(&self) {
        for socket in self.state.get_websockets() {
            let _ = socket.close(Some(1001), Some("the session was deleted"));
        }
        self.any.set(false);
    }
}
