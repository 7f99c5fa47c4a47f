//! The writing end of one reader's stream.

use super::backlogs::{self, Backlog, LARGE, Queue};
use crate::session::frame::{Event, Frame};
use crate::types::{Principal, TurnId};
use bytes::Bytes;
use futures::{
    StreamExt,
    channel::mpsc,
    future,
    stream::{self, LocalBoxStream},
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};
use thiserror::Error;

/// Maximum number of bytes waiting for one reader. A slower reader is dropped; it can reconnect with the last
/// id that it received. All readers together have a limit, too; see [`backlogs`].
const MAX_BACKLOG: usize = 16 << 20;

/// Sent to a reader before it is dropped.
const TOO_SLOW: Bytes = Bytes::from_static(b": this reader is too slow; reconnect with the last id\n\n");

/// Sent to a reader whose credential is no longer valid.
const CREDENTIAL_ENDED: Bytes =
    Bytes::from_static(b": the key or token is no longer valid; reconnect with a valid one\n\n");

/// A comment, so that proxies do not close idle connections.
const PING: Bytes = Bytes::from_static(b": ping\n\n");

/// Maximum number of chunks joined into one.
const MAX_BATCH: usize = 256;

/// Which events a listener receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Only events of this turn, until it ends.
    pub turn: Option<TurnId>,
    /// Whether the stream ends when the session becomes idle.
    pub until_idle: bool,
}

impl Interest {
    /// Returns whether a stream of one turn ends with this frame. One that lasts until the session is idle also has what
    /// follows a wait.
    fn ends_with(&self, frame: &Frame) -> bool {
        self.turn.is_some() && frame.ends_turn() && !(self.until_idle && frame.event == "turn.waiting")
    }
}

/// Writes the events of a turn in the format of a protocol. It sees all events of the turn from its start, whether they
/// are live or replayed, until one that ends or suspends the turn.
///
/// ```
/// use edge_harness::session::{frame::Event, hub::Projection};
/// use edge_harness::types::Delta;
///
/// /// Writes the text of a turn, and nothing else.
/// struct Text;
///
/// impl Projection for Text {
///     fn write(&mut self, event: Event<'_>, out: &mut Vec<u8>) {
///         if let Event::Delta(Delta::Text { delta, .. }) = event {
///             out.extend_from_slice(delta.as_bytes());
///         }
///     }
/// }
/// ```
pub trait Projection {
    /// Appends what the client receives for an event; nothing if the protocol has nothing for it.
    fn write(&mut self, event: Event<'_>, out: &mut Vec<u8>);

    /// Appends what the client receives at once, before any event: if the turn starts only after another one, for a protocol
    /// whose clients need its id before, and if the stream begins in the middle of a turn.
    fn queue(&mut self, _out: &mut Vec<u8>) {}

    /// Appends what the client receives with each ping besides the comment, for a protocol whose clients stop waiting.
    fn ping(&mut self, _out: &mut Vec<u8>) {}

    /// Returns whether the stream ends with this frame, which was just written.
    fn is_last(&self, frame: &Frame) -> bool {
        frame.ends_turn()
    }

    /// Returns whether the stream is the response to this request, for a protocol in which another request can cancel it.
    fn responds_to(&self, _request: &str) -> bool {
        false
    }
}

/// The writing end of one reader's byte stream. It owns only plain memory, because a reader may disappear at
/// any time, even by garbage collection.
#[derive(Clone)]
pub struct Listener {
    interest: Interest,
    caller: Rc<RefCell<Rc<Principal>>>,
    sender: mpsc::UnboundedSender<Bytes>,
    backlog: Rc<Backlog>,
    is_interrupted: Rc<Cell<bool>>,
    /// The protocol of the stream; `None` for the native one.
    projection: Option<Rc<RefCell<Box<dyn Projection>>>>,
}

/// The rest of a stream cannot be sent. The connection is then closed without an end of the body, so that the reader
/// does not take what it has for everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the rest of the stream cannot be sent")]
pub struct Interrupted;

/// The reading end.
pub type ByteReceiver = LocalBoxStream<'static, Result<Bytes, Interrupted>>;

/// Joins the chunks that wait, because each costs the platform a separate task.
fn joined(first: Bytes, receiver: &mut mpsc::UnboundedReceiver<Bytes>) -> Bytes {
    let Ok(second) = receiver.try_recv() else { return first };
    let mut bytes = [first, second].concat();
    for _ in 2..MAX_BATCH {
        let Ok(piece) = receiver.try_recv() else { break };
        bytes.extend_from_slice(&piece);
    }
    bytes.into()
}

impl Listener {
    /// Creates a listener of this caller, and its stream.
    pub fn new(interest: Interest, caller: &Principal) -> (Self, ByteReceiver) {
        let (sender, receiver) = mpsc::unbounded::<Bytes>();
        let queue: Rc<Queue> = Rc::new(RefCell::new(receiver));
        let backlog = Rc::new(Backlog::new(&queue));
        let waiting = Rc::clone(&backlog);
        let stream = stream::poll_fn(move |task| {
            let mut receiver = queue.borrow_mut();
            receiver.poll_next_unpin(task).map(|first| {
                let bytes = joined(first?, &mut receiver);
                waiting.bytes.set(waiting.bytes.get().saturating_sub(bytes.len()));
                Some(Ok(bytes))
            })
        });
        let is_interrupted = Rc::new(Cell::new(false));
        let at_end = Rc::clone(&is_interrupted);
        let end = stream::once(async move { at_end.get().then_some(Err(Interrupted)) });
        let stream = stream.chain(end.filter_map(future::ready));
        let caller = Rc::new(RefCell::new(Rc::new(caller.clone())));
        let listener = Self { interest, caller, sender, backlog, is_interrupted, projection: None };
        (listener, stream.boxed_local())
    }

    /// Writes the stream in the format of a protocol. It is incomplete until the turn ends or is suspended.
    #[must_use]
    pub fn projected(mut self, projection: Box<dyn Projection>) -> Self {
        self.projection = Some(Rc::new(RefCell::new(projection)));
        self.is_interrupted.set(true);
        self
    }

    /// Sends a frame in the format of the stream. Returns whether another frame may follow: `false` also if the reader
    /// left or is too far behind.
    pub fn write(&self, frame: &Frame) -> bool {
        let Some(projection) = &self.projection else {
            return self.send(frame.sse()) && !self.interest.ends_with(frame);
        };
        let mut out = Vec::new();
        if frame.read(|event| projection.borrow_mut().write(event, &mut out)).is_err() {
            return false;
        }
        let is_last = projection.borrow().is_last(frame);
        if is_last {
            self.is_interrupted.set(false);
        }
        (if out.is_empty() { !self.is_closed() } else { self.send(out.into()) }) && !is_last
    }

    /// Sends a ping. Returns `false` if the reader left or is too far behind.
    pub(super) fn ping(&self) -> bool {
        let Some(projection) = &self.projection else { return self.send(PING) };
        let mut out = PING.to_vec();
        projection.borrow_mut().ping(&mut out);
        self.send(out.into())
    }

    /// Sends bytes. Returns `false` if the reader left or is too far behind.
    pub fn send(&self, bytes: Bytes) -> bool {
        let unread = &self.backlog.bytes;
        unread.set(unread.get().saturating_add(bytes.len()));
        if unread.get() > LARGE {
            backlogs::count(&self.backlog);
        }
        if unread.get() > MAX_BACKLOG || self.backlog.is_dropped() {
            // The reader may have left, which has the same effect.
            let _ = self.sender.unbounded_send(TOO_SLOW);
            return false;
        }
        self.sender.unbounded_send(bytes).is_ok()
    }

    /// Returns the number of bytes that were sent and not yet read.
    pub fn backlog(&self) -> usize {
        self.backlog.bytes.get()
    }

    /// Returns whether the reader has lost what it had not read, so that the others have room. Sends it the reason.
    pub fn is_dropped(&self) -> bool {
        self.backlog.is_dropped() && !self.send(Bytes::new())
    }

    /// Returns whether the reader left.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Returns the caller, as last found valid.
    pub fn caller(&self) -> Rc<Principal> {
        Rc::clone(&self.caller.borrow())
    }

    /// Sets the caller, whose credential was found valid again.
    pub fn renew(&self, caller: Principal) {
        self.caller.replace(Rc::new(caller));
    }

    /// Ends the stream, because its credential is no longer valid.
    pub fn end(&self) {
        // The reader may have left, which has the same effect.
        let _ = self.sender.unbounded_send(CREDENTIAL_ENDED);
        self.sender.close_channel();
    }

    /// Ends the stream without the rest, which the reader does not want.
    pub(super) fn close(&self) {
        self.is_interrupted.set(false);
        self.sender.close_channel();
    }

    /// Returns whether the stream is the response to this request of a client.
    pub(super) fn responds_to(&self, request: &str) -> bool {
        self.projection.as_ref().is_some_and(|projection| projection.borrow().responds_to(request))
    }

    /// Ends the stream before it is complete.
    pub fn interrupt(&self) {
        self.is_interrupted.set(true);
        self.sender.close_channel();
    }

    /// Returns the events that the listener receives.
    pub fn interest(&self) -> &Interest {
        &self.interest
    }

    /// Sends a frame if it matches. Returns `false` if the listener can be removed.
    pub(super) fn offer(&self, frame: &Frame) -> bool {
        match &self.interest.turn {
            None => self.write(frame),
            Some(turn) if frame.turn.as_deref() != Some(turn) || frame.event == "turn.queued" => {
                !self.is_closed()
            }
            Some(_) => self.write(frame),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn read(stream: &mut ByteReceiver) -> Option<Bytes> {
        stream.next().now_or_never().flatten().and_then(Result::ok)
    }

    #[test]
    fn readers_that_are_behind_share_a_limit_and_the_slowest_is_dropped() {
        let caller = Principal::new("t", crate::types::Scopes::all());
        let mut readers: Vec<_> = (0..4).map(|_| Listener::new(Interest::default(), &caller)).collect();
        let megabytes = |count: usize| Bytes::from(vec![b'x'; count << 20]);
        assert!(readers[0].0.send(megabytes(9)) && readers[1].0.send(megabytes(8)));
        // A reader that has read everything, and one that has left, hold nothing.
        assert!(readers[2].0.send(megabytes(7)));
        assert_eq!(read(&mut readers[2].1).map(|bytes| bytes.len()), Some(7 << 20));
        assert!(readers[3].0.send(megabytes(7)));
        readers.pop();
        assert!(readers[2].0.send(megabytes(7)));
        assert!(readers[2].0.send(megabytes(1)), "only the slowest reader is dropped");
        assert!(!readers[0].0.send(PING) && readers[1].0.send(PING));
        assert_eq!(read(&mut readers[0].1), Some(TOO_SLOW));
        assert_eq!(read(&mut readers[1].1).map(|bytes| bytes.len()), Some((8 << 20) + PING.len()));
        // The reader that was dropped holds nothing any more, and the limit holds for the others.
        assert!(!readers[0].0.send(PING));
        assert!(readers[1].0.send(megabytes(10)) && readers[2].0.send(megabytes(1)));
        assert!(!readers[1].0.send(megabytes(6)) && readers[2].0.send(PING));
    }
}
