//! The live listeners of a session, and the message that is being streamed to them.

use super::frame::Frame;
use crate::fault::{self, Fault};
use crate::types::{Cursor, Delta, EventKind, Record, TurnEnd};
use bytes::Bytes;
use futures::channel::{mpsc, oneshot};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// Most bytes that wait for a reader that does not read. It is dropped then; it can come back with
/// the last id it saw.
const MAX_BACKLOG: usize = 16 << 20;

/// Most pieces that are handed to a reader as one.
const MAX_TOGETHER: usize = 256;

/// What a listener wants to hear.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Only this turn, until it ends.
    pub turn: Option<String>,
    /// Until the session is idle.
    pub until_idle: bool,
}

/// The writing end of one reader's stream of bytes. It owns plain memory only: a reader may leave
/// at any moment, even by garbage collection.
#[derive(Clone)]
pub struct Listener {
    interest: Interest,
    sender: mpsc::UnboundedSender<Bytes>,
    backlog: Rc<Cell<usize>>,
}

/// The reading end.
pub type ByteReceiver = futures::stream::LocalBoxStream<'static, Bytes>;

impl Listener {
    /// A listener and the stream of what it hears.
    pub fn new(interest: Interest) -> (Self, ByteReceiver) {
        use futures::StreamExt;
        let (sender, receiver) = mpsc::unbounded::<Bytes>();
        let backlog = Rc::new(Cell::new(0_usize));
        let waiting = Rc::clone(&backlog);
        // What waits together is read together: each piece costs the platform a round of its own.
        let stream = receiver.ready_chunks(MAX_TOGETHER).map(move |pieces| {
            let bytes = match <[Bytes; 1]>::try_from(pieces) {
                Ok([one]) => one,
                Err(several) => Bytes::from(several.concat()),
            };
            waiting.set(waiting.get().saturating_sub(bytes.len()));
            bytes
        });
        (Self { interest, sender, backlog }, stream.boxed_local())
    }

    /// Sends bytes; false when the reader is gone or hopelessly behind.
    pub fn send(&self, bytes: Bytes) -> bool {
        let backlog = self.backlog.get() + bytes.len();
        self.backlog.set(backlog);
        backlog <= MAX_BACKLOG && self.sender.unbounded_send(bytes).is_ok()
    }

    /// Bytes sent and not yet read.
    pub fn backlog(&self) -> usize {
        self.backlog.get()
    }

    /// Whether the reader left.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// What it wants to hear.
    pub fn interest(&self) -> &Interest {
        &self.interest
    }

    /// Hands over a frame; false when this listener needs no more.
    fn offer(&self, frame: &Frame) -> bool {
        match &self.interest.turn {
            None => self.send(frame.sse()),
            Some(turn) if frame.turn.as_deref() != Some(turn) || frame.event == "turn.queued" => {
                !self.is_closed()
            }
            Some(_) => self.send(frame.sse()) && !frame.ends_turn(),
        }
    }
}

/// Listeners that the platform keeps for us, such as hibernating WebSockets.
pub trait Broadcast {
    /// Whether there are none.
    fn is_empty(&self) -> bool;

    /// Sends a frame to each of them.
    fn broadcast(&self, frame: &Frame);

    /// Closes all of them: what they listened to is gone.
    fn close(&self);
}

/// The message being streamed.
#[derive(Clone)]
pub struct Streaming {
    seq: u64,
    /// Its id.
    pub message: String,
    /// Its turn.
    pub turn: String,
    /// Its text so far.
    pub text: String,
}

impl Streaming {
    /// The place behind its text.
    pub fn cursor(&self) -> Cursor {
        Cursor { seq: self.seq, offset: Some(self.text.len() as u64) }
    }
}

/// Where whoever waits for a turn stops to wait.
#[derive(Clone, Debug, PartialEq)]
pub enum Halt {
    /// It ended.
    Ended(Box<TurnEnd>),
    /// It waits for a person.
    Waiting,
}

impl Halt {
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
    ends: RefCell<Vec<(String, oneshot::Sender<Halt>)>>,
    broadcast: Option<Rc<dyn Broadcast>>,
    streaming: RefCell<Option<Streaming>>,
}

impl Hub {
    /// A hub that also tells the platform's own listeners.
    pub fn new(broadcast: Option<Rc<dyn Broadcast>>) -> Self {
        Self { broadcast, ..Self::default() }
    }

    /// Adds a listener for what comes from now on.
    pub fn listen(&self, listener: Listener) {
        self.listeners.borrow_mut().push(listener);
    }

    /// Completes when the turn ends or waits for a person; fails when it is given up in this process.
    pub fn halt(&self, turn: &str) -> oneshot::Receiver<Halt> {
        let (sender, receiver) = oneshot::channel();
        let mut ends = self.ends.borrow_mut();
        // Whoever waited for a turn that was refused has left.
        ends.retain(|(_, sender)| !sender.is_canceled());
        ends.push((turn.to_owned(), sender));
        receiver
    }

    /// Whether anybody reads a stream of ours; forgets those who left.
    pub fn has_listeners(&self) -> bool {
        let mut listeners = self.listeners.borrow_mut();
        listeners.retain(|listener| !listener.is_closed());
        !listeners.is_empty()
    }

    /// Sends a comment to every stream, so that nobody in between takes it for dead.
    pub fn ping(&self) {
        self.listeners.borrow_mut().retain(|l| l.send(Bytes::from_static(b": ping\n\n")));
    }

    /// Tells every listener of a record that is stored. What was not streamed yet of a message's text
    /// comes before its record, as it does for whoever comes back later.
    pub fn publish(&self, frame: &Frame, record: &Record) {
        if let EventKind::MessageCompleted { message } = &record.kind {
            let streamed =
                self.streaming.borrow().as_ref().filter(|s| s.seq == record.seq).map(|s| s.text.len());
            let turn = record.turn.as_deref().unwrap_or_default();
            let rest =
                text_after(record.seq, &message.id, turn, &message.text(), streamed.unwrap_or(0) as u64);
            rest.iter().for_each(|rest| self.send(rest));
        }
        self.send(frame);
        if let (Some(halt), Some(turn)) = (Halt::of(&record.kind), &record.turn) {
            let mut ends = self.ends.borrow_mut();
            for (_, sender) in ends.extract_if(.., |(waiting, _)| waiting == turn) {
                let _ = sender.send(halt.clone());
            }
        }
    }

    /// Ends the streams that wanted to hear of the session until it is idle.
    pub fn idle(&self) {
        self.listeners.borrow_mut().retain(|listener| !listener.interest.until_idle);
    }

    /// Ends every stream and every wait: the session is gone.
    pub fn close(&self) {
        self.leave();
        if let Some(broadcast) = &self.broadcast {
            broadcast.close();
        }
    }

    /// Ends every stream and every wait of ours: this copy of the session is given up. The platform's
    /// own listeners stay, and hear of the next copy.
    pub fn leave(&self) {
        self.listeners.borrow_mut().clear();
        self.ends.borrow_mut().clear();
        self.streaming.borrow_mut().take();
    }

    /// Streams a piece of what the model makes. The first piece of text takes log number `seq` for
    /// the message.
    pub fn delta(&self, turn: &str, seq: u64, delta: &Delta) {
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
        self.send(&Frame::delta(delta, turn, cursor));
    }

    /// Whether a message is being streamed and its number taken.
    pub fn is_streaming(&self) -> bool {
        self.streaming.borrow().is_some()
    }

    /// The message being streamed.
    pub fn streaming(&self) -> Option<Streaming> {
        self.streaming.borrow().clone()
    }

    /// The id and the text so far of the message being streamed.
    pub fn streamed(&self) -> Option<(String, String)> {
        self.streaming.borrow().as_ref().map(|s| (s.message.clone(), s.text.clone()))
    }

    /// Whether the text of the message being streamed as number `seq` has a place behind byte
    /// `offset`; `None` when that is not the message being streamed.
    pub fn streamed_fits(&self, seq: u64, offset: usize) -> Option<bool> {
        let streaming = self.streaming.borrow();
        let message = streaming.as_ref().filter(|message| message.seq == seq)?;
        Some(message.text.is_char_boundary(offset))
    }

    /// The rest of the message being streamed, for a reader that stands at `cursor`.
    pub fn streamed_after(&self, cursor: Cursor) -> Option<Frame> {
        let streaming = self.streaming.borrow();
        let message = streaming.as_ref()?;
        let known = cursor.seq == message.seq && !fault::active(Fault::RepeatText);
        let seen = if known { cursor.offset.unwrap_or(0) } else { 0 };
        text_after(message.seq, &message.message, &message.turn, &message.text, seen)
    }

    /// Forgets the message being streamed: a record has taken its number.
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

/// The delta from byte `seen` to the end of a message's text; `None` when nothing is left.
pub(super) fn text_after(seq: u64, id: &str, turn: &str, text: &str, seen: u64) -> Option<Frame> {
    let seen = usize::try_from(seen).unwrap_or(usize::MAX);
    let rest = text.get(seen..).unwrap_or_default();
    if rest.is_empty() {
        return None;
    }
    let delta = Delta::Text { id: id.to_owned(), delta: rest.to_owned() };
    Some(Frame::delta(&delta, turn, Some(Cursor { seq, offset: Some(text.len() as u64) })))
}
