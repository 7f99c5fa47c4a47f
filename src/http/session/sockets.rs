//! The open WebSockets of a session. A WebSocket may stay open for days, so the credential that opened it is checked
//! again before it is used or receives events.

#[cfg(test)]
mod tests;

use crate::http::upgrade::SocketState;
use crate::ports::{Clock, Credentials, Log, Spawner};
use crate::session::{frame::Frame, hub::Broadcast};
use crate::types::{Principal, Timestamp};
use futures::FutureExt;
use serde_json::json;
use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;

/// The close code when the key, token, or tenant is no longer valid.
const UNAUTHENTICATED: (u16, &str) = (4401, "the key or token is no longer valid; connect with a valid one");
/// The close code when the credential cannot be checked, or the client does not keep up (RFC 6455, 7.4.1).
const TRY_AGAIN: (u16, &str) = (1013, "the server cannot continue; connect again with your last cursor");
/// The close code when the session was erased.
const GONE: (u16, &str) = (1001, "the session was deleted");
/// Most bytes that wait for a check.
const MAX_HELD: usize = 1 << 20;

/// A WebSocket of the platform.
///
/// ```
/// # use edge_harness::http::session::sockets::Socket;
/// /// Sends a last frame and closes the socket.
/// fn say_goodbye(socket: &impl Socket) {
///     if socket.send("goodbye") {
///         socket.close(1000, "");
///     }
/// }
/// ```
pub trait Socket: PartialEq {
    /// Sends a text frame. Returns `false` if the socket is closed or closing.
    fn send(&self, text: &str) -> bool;

    /// Starts the closing handshake.
    fn close(&self, code: u16, reason: &str);
}

/// All open WebSockets of a session.
pub struct Sockets<S> {
    open: RefCell<Vec<Rc<OpenSocket<S>>>>,
    credentials: Rc<dyn Credentials>,
    clock: Rc<dyn Clock>,
    spawner: Rc<dyn Spawner>,
    log: Rc<dyn Log>,
}

/// An open WebSocket.
pub struct OpenSocket<S> {
    socket: S,
    state: RefCell<SocketState>,
    /// The frames that wait for a check of the credential; `None` while no check is running.
    held: RefCell<Option<Vec<String>>>,
    closed: Cell<bool>,
}

impl<S: Socket> OpenSocket<S> {
    fn caller(&self) -> Ref<'_, Principal> {
        Ref::map(self.state.borrow(), |state| &state.principal)
    }

    fn close(&self, (code, reason): (u16, &str)) {
        self.closed.set(true);
        self.socket.close(code, reason);
    }
}

impl<S: Socket + 'static> Sockets<S> {
    /// Creates the set with the sockets that the platform already holds.
    pub fn new(
        open: impl IntoIterator<Item = (S, SocketState)>,
        credentials: Rc<dyn Credentials>,
        clock: Rc<dyn Clock>,
        spawner: Rc<dyn Spawner>,
        log: Rc<dyn Log>,
    ) -> Self {
        let sockets = Self { open: RefCell::default(), credentials, clock, spawner, log };
        open.into_iter().for_each(|(socket, state)| drop(sockets.add(socket, state)));
        sockets
    }

    /// Adds a socket that the platform has accepted.
    pub fn add(&self, socket: S, state: SocketState) -> Rc<OpenSocket<S>> {
        let (state, held, closed) = (RefCell::new(state), RefCell::default(), Cell::new(false));
        let socket = Rc::new(OpenSocket { socket, state, held, closed });
        self.open.borrow_mut().push(Rc::clone(&socket));
        socket
    }

    /// Returns the entry of a socket.
    pub fn find(&self, socket: &S) -> Option<Rc<OpenSocket<S>>> {
        self.open.borrow().iter().find(|open| open.socket == *socket).cloned()
    }

    /// Closes a socket whose client has missed more events than one connection receives.
    pub fn close_behind(&self, socket: &Rc<OpenSocket<S>>) {
        socket.close(TRY_AGAIN);
        self.open.borrow_mut().retain(|open| !Rc::ptr_eq(open, socket));
    }

    /// Removes a socket that the client has closed.
    pub fn remove(&self, socket: &S) {
        self.open.borrow_mut().retain(|open| open.socket != *socket);
    }

    /// Returns the state of a socket, for a command. Returns `None`, and closes the socket, if its credential is no
    /// longer valid or cannot be checked.
    pub async fn checked(&self, open: &Rc<OpenSocket<S>>) -> Option<SocketState> {
        if open.caller().valid_until <= self.clock.now() {
            check(open, &*self.credentials, &*self.clock, &*self.log).await;
        }
        (!open.closed.get()).then(|| open.state.borrow().clone())
    }

    /// Sends a frame, after a check of the credential if the last one is too old. Returns `false` if the socket is
    /// closed.
    fn offer(&self, open: &Rc<OpenSocket<S>>, frame: &Frame) -> bool {
        if open.closed.get() {
            return false;
        }
        let mut held = open.held.borrow_mut();
        if let Some(frames) = held.as_mut() {
            frames.push(frame.json().to_owned());
            let is_behind = frames.iter().map(String::len).sum::<usize>() > MAX_HELD;
            if is_behind {
                open.close(TRY_AGAIN);
            }
            return !is_behind;
        }
        if open.caller().valid_until > self.clock.now() {
            return open.socket.send(frame.json());
        }
        *held = Some(vec![frame.json().to_owned()]);
        let (open, credentials) = (Rc::clone(open), Rc::clone(&self.credentials));
        let (clock, log) = (Rc::clone(&self.clock), Rc::clone(&self.log));
        let check = async move {
            check(&open, &*credentials, &*clock, &*log).await;
            for frame in open.held.take().into_iter().flatten() {
                // A closed socket refuses it.
                open.socket.send(&frame);
            }
        };
        self.spawner.spawn(check.boxed_local());
        true
    }

    /// Closes the sockets that `is_over` selects.
    fn close_where(&self, is_over: impl Fn(&OpenSocket<S>) -> bool, reason: (u16, &str)) {
        let over: Vec<_> = self.open.borrow_mut().extract_if(.., |open| is_over(open)).collect();
        over.iter().for_each(|open| open.close(reason));
    }
}

/// Checks the credential of a socket again, and closes the socket if it is no longer valid.
async fn check<S: Socket>(
    open: &OpenSocket<S>,
    credentials: &dyn Credentials,
    clock: &dyn Clock,
    log: &dyn Log,
) {
    let caller = open.caller().clone();
    match credentials.renew(&caller, clock.now()).await {
        Ok(Some(caller)) => open.state.borrow_mut().principal = caller,
        Ok(None) => open.close(UNAUTHENTICATED),
        Err(error) => {
            log.error(&json!({ "event": "socket.unchecked", "cause": error.to_string() }));
            open.close(TRY_AGAIN);
        }
    }
}

impl<S: Socket + 'static> Broadcast for Sockets<S> {
    fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }

    fn len(&self) -> usize {
        self.open.borrow().len()
    }

    fn broadcast(&self, frame: &Frame) {
        // A client whose socket is closing reconnects with its last cursor.
        self.open.borrow_mut().retain(|open| self.offer(open, frame));
    }

    fn close(&self) {
        self.close_where(|_| true, GONE);
    }

    fn expires_at(&self) -> Option<Timestamp> {
        self.open.borrow().iter().filter_map(|open| open.caller().expires_at).min()
    }

    fn close_expired(&self) {
        let now = self.clock.now();
        let is_over = |open: &OpenSocket<S>| open.caller().expires_at.is_some_and(|end| end <= now);
        self.close_where(is_over, UNAUTHENTICATED);
    }
}
