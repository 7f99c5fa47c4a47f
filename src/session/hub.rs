//! The live listeners of a session, and the message being streamed to them.

mod backlogs;
mod listener;

pub use listener::{ByteReceiver, Interest, Interrupted, Listener, Projection};

use super::frame::Frame;
use crate::types::{Cursor, Delta, EventKind, MessageId, Record, Timestamp, TurnEnd, TurnId};
use bytes::Bytes;
use futures::channel::oneshot;
use std::{cell::RefCell, ops::Range, rc::Rc};

/// Maximum number of WebSockets of a session. With as many streams, each further one is preceded by a ping to all of them,
/// which reveals the readers that left.
const MAX_READERS: usize = 100;

/// Maximum number of streams of a session, with those whose readers left.
const MAX_STREAMS: usize = 200;

/// Maximum size of a delta of a replay, in bytes.
const MAX_DELTA: usize = 8 << 10;

/// Sent to the reader that makes room for another.
const TOO_MANY: Bytes =
    Bytes::from_static(b": the session has too many readers; reconnect with the last id\n\n");

/// Listeners held by the platform, such as hibernating WebSockets.
///
/// ```
/// # use edge_harness::session::{frame::Frame, hub::Broadcast};
/// /// Sends a frame to the platform's listeners, and returns how many are left.
/// fn send(listeners: &dyn Broadcast, frame: &Frame) -> usize {
///     listeners.broadcast(frame);
///     listeners.len()
/// }
/// ```
pub trait Broadcast {
    /// Returns whether there are none.
    fn is_empty(&self) -> bool;

    /// Returns their number.
    fn len(&self) -> usize;

    /// Sends a frame to all of them.
    fn broadcast(&self, frame: &Frame);

    /// Closes all of them, because the session was erased.
    fn close(&self);

    /// Returns when the first token expires that opened one of them; `None` if no token did.
    fn expires_at(&self) -> Option<Timestamp>;

    /// Closes those whose token has expired.
    fn close_expired(&self);
}

/// The message being streamed.
#[derive(Clone)]
pub struct Streaming {
    seq: u64,
    /// Its id.
    pub message: MessageId,
    /// Its turn.
    pub turn: TurnId,
    /// Its text so far.
    pub text: String,
}

impl Streaming {
    /// Returns the position after its text so far.
    pub fn cursor(&self) -> Cursor {
        Cursor { seq: self.seq, offset: Some(self.text.len() as u64) }
    }
}

/// Why a request that awaits a turn stops waiting.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnPause {
    /// The turn ended.
    Ended(Box<TurnEnd>),
    /// The turn waits for a person.
    Waiting,
    /// The session was erased, and the turn with it.
    Erased,
}

impl TurnPause {
    fn of(kind: &EventKind) -> Option<Self> {
        match kind {
            EventKind::TurnWaiting { .. } => Some(Self::Waiting),
            kind => kind.turn_end().cloned().map(Box::new).map(Self::Ended),
        }
    }
}

/// The live listeners of a session.
#[derive(Default)]
pub struct Hub {
    listeners: RefCell<Vec<Listener>>,
    waiters: RefCell<Vec<(TurnId, oneshot::Sender<TurnPause>)>>,
    broadcast: Option<Rc<dyn Broadcast>>,
    streaming: RefCell<Option<Streaming>>,
}

impl Hub {
    /// Creates a hub that also sends to the platform's listeners.
    pub fn new(broadcast: Option<Rc<dyn Broadcast>>) -> Self {
        Self { broadcast, ..Self::default() }
    }

    /// Returns whether the platform holds the maximum number of listeners.
    pub fn is_full(&self) -> bool {
        self.broadcast.as_ref().is_some_and(|all| all.len() >= MAX_READERS)
    }

    /// Adds a listener for future events. If there are too many, the oldest one is dropped: readers that left are
    /// noticed late, and must not keep others out. One that is still there reconnects with its last id.
    pub fn listen(&self, listener: Listener) {
        let mut listeners = self.listeners.borrow_mut();
        if listeners.len() >= MAX_READERS {
            listeners.retain(|listener| !listener.is_closed() && listener.ping());
        }
        if listeners.len() >= MAX_STREAMS {
            listeners.remove(0).send(TOO_MANY);
        }
        listeners.push(listener);
    }

    /// Completes when the turn ends or waits for a person; fails if this copy of the session is retired
    /// first.
    pub fn pause_of(&self, turn: &TurnId) -> oneshot::Receiver<TurnPause> {
        let (sender, receiver) = oneshot::channel();
        let mut waiters = self.waiters.borrow_mut();
        // Remove the waiters of refused requests, which are no longer polled.
        waiters.retain(|(_, sender)| !sender.is_canceled());
        waiters.push((turn.to_owned(), sender));
        receiver
    }

    /// Returns whether any stream has a reader. Removes the streams whose readers left.
    pub fn has_listeners(&self) -> bool {
        let mut listeners = self.listeners.borrow_mut();
        listeners.retain(|listener| !listener.is_closed());
        !listeners.is_empty()
    }

    /// Sends a ping to every stream, so that neither proxies nor clients give up.
    pub fn ping(&self) {
        self.listeners.borrow_mut().retain(Listener::ping);
    }

    /// Returns the listeners whose credential has to be checked again by `at`.
    pub fn listeners_until(&self, at: Timestamp) -> Vec<Listener> {
        let listeners = self.listeners.borrow();
        listeners.iter().filter(|listener| listener.caller().valid_until <= at).cloned().collect()
    }

    /// Sends a stored record to all listeners. Text of a message that was not streamed is sent as a delta
    /// first, as in a replay.
    pub fn publish(&self, frame: &Frame, record: &Record) {
        if let EventKind::MessageCompleted { message } = &record.kind {
            let streamed =
                self.streaming.borrow().as_ref().filter(|s| s.seq == record.seq).map(|s| s.text.len());
            let turn = record.turn.clone().unwrap_or_else(TurnId::none);
            let rest =
                text_after(record.seq, &message.id, &turn, &message.text(), streamed.unwrap_or(0) as u64);
            rest.iter().for_each(|rest| self.send(rest));
        }
        self.send(frame);
        if let (Some(pause), Some(turn)) = (TurnPause::of(&record.kind), &record.turn) {
            let mut waiters = self.waiters.borrow_mut();
            for (_, sender) in waiters.extract_if(.., |(waiting, _)| waiting == turn) {
                let _ = sender.send(pause.clone());
            }
        }
    }

    /// Ends the streams that respond to a request of a client, without the rest.
    pub fn close_responses(&self, request: &str) {
        for listener in self.listeners.borrow_mut().extract_if(.., |listener| listener.responds_to(request)) {
            listener.close();
        }
    }

    /// Ends the streams that only last until the session is idle.
    pub fn end_idle_streams(&self) {
        self.listeners.borrow_mut().retain(|listener| !listener.interest().until_idle);
    }

    /// Ends all streams and waits, because the session was erased.
    pub fn close(&self) {
        for (_, waiter) in self.waiters.borrow_mut().drain(..) {
            let _ = waiter.send(TurnPause::Erased);
        }
        self.detach();
        if let Some(broadcast) = &self.broadcast {
            broadcast.close();
        }
    }

    /// Ends all local streams and waits, because this copy of the session is retired. The platform's
    /// listeners stay and are served by the next copy.
    pub fn detach(&self) {
        self.listeners.borrow_mut().clear();
        self.waiters.borrow_mut().clear();
        self.streaming.borrow_mut().take();
    }

    /// Streams a delta. The first text delta of a message assigns it the sequence number `seq`.
    pub fn delta(&self, turn: &TurnId, seq: u64, delta: &Delta) {
        let cursor = match delta {
            Delta::Text { id, delta } => {
                let mut streaming = self.streaming.borrow_mut();
                let message = streaming.get_or_insert_with(|| Streaming {
                    seq,
                    message: id.clone(),
                    turn: turn.to_owned(),
                    text: String::new(),
                });
                message.text.push_str(delta);
                Some(message.cursor())
            }
            _ => None,
        };
        if self.listeners.borrow().is_empty() && self.broadcast.as_ref().is_none_or(|all| all.is_empty()) {
            return;
        }
        self.send(&Frame::delta(delta.clone(), turn, cursor));
    }

    /// Returns whether a message is being streamed.
    pub fn is_streaming(&self) -> bool {
        self.streaming.borrow().is_some()
    }

    /// Returns the message being streamed.
    pub fn streaming(&self) -> Option<Streaming> {
        self.streaming.borrow().clone()
    }

    /// Returns the id and the text so far of the message being streamed.
    pub fn streamed(&self) -> Option<(MessageId, String)> {
        self.streaming.borrow().as_ref().map(|s| (s.message.clone(), s.text.clone()))
    }

    /// Returns whether byte `offset` is a character boundary in the text of the message being streamed as
    /// `seq`;
    /// `None` if no such message is being streamed.
    pub fn streamed_fits(&self, seq: u64, offset: usize) -> Option<bool> {
        let streaming = self.streaming.borrow();
        let message = streaming.as_ref().filter(|message| message.seq == seq)?;
        Some(message.text.is_char_boundary(offset))
    }

    /// Returns the deltas of the message being streamed that a reader at `cursor` has not received.
    pub fn streamed_after(&self, cursor: Cursor) -> Vec<Frame> {
        let streaming = self.streaming.borrow();
        let Some(message) = streaming.as_ref() else { return Vec::new() };
        let seen = if cursor.seq == message.seq { cursor.offset.unwrap_or(0) } else { 0 };
        texts_after(message.seq, &message.message, &message.turn, &message.text, seen)
    }

    /// Clears the message being streamed, after a record has taken its sequence number.
    pub fn end_message(&self) {
        self.streaming.borrow_mut().take();
    }

    fn send(&self, frame: &Frame) {
        self.listeners.borrow_mut().retain(|listener| listener.offer(frame));
        if let Some(broadcast) = self.broadcast.as_ref().filter(|all| !all.is_empty()) {
            broadcast.broadcast(frame);
        }
    }
}

/// Returns the delta from byte `seen` to the end of a message's text, or `None` if it is empty.
fn text_after(seq: u64, id: &MessageId, turn: &TurnId, text: &str, seen: u64) -> Option<Frame> {
    let rest = text.get(usize::try_from(seen).ok()?..)?;
    (!rest.is_empty()).then(|| piece(seq, id, turn, text, text.len() - rest.len()..text.len()))
}

/// Returns the deltas from byte `seen` to the end of a message's text. Each has at most [`MAX_DELTA`] bytes, so that a replay
/// can wait for its reader in between.
pub(super) fn texts_after(seq: u64, id: &MessageId, turn: &TurnId, text: &str, seen: u64) -> Vec<Frame> {
    let mut start = usize::try_from(seen).unwrap_or(usize::MAX);
    let mut frames = Vec::new();
    while start < text.len() && text.is_char_boundary(start) {
        let end = text.floor_char_boundary(start + MAX_DELTA);
        frames.push(piece(seq, id, turn, text, start..end));
        start = end;
    }
    frames
}

/// Returns the delta of a range of a message's text.
fn piece(seq: u64, id: &MessageId, turn: &TurnId, text: &str, range: Range<usize>) -> Frame {
    let cursor = Cursor { seq, offset: Some(range.end as u64) };
    let delta = Delta::Text { id: id.to_owned(), delta: text[range].to_owned() };
    Frame::delta(delta, turn, Some(cursor))
}
