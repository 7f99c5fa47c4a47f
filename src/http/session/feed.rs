//! Streams of events: first the events that the reader has missed, then new events.

use super::call::Call;
use crate::agent::SessionHost;
use crate::http::response::{self, Body, Response, ResponseExt};
use crate::ports::{StoreError, session_store::PAGE_RECORDS};
use crate::session::{
    Session,
    frame::Frame,
    hub::{ByteReceiver, Interest, Listener},
};
use crate::types::{Cursor, Problem, SessionStatus};
use bytes::Bytes;
use http::StatusCode;
use std::rc::Rc;
use std::time::Duration;

/// The first bytes of every event stream: how long a client should wait before it reconnects.
pub const PREAMBLE: Bytes = Bytes::from_static(b"retry: 2000\n\n");

/// Unread bytes of a reader at which a long replay pauses.
const HIGH_WATER: usize = 1 << 20;
/// Length of that pause.
const PAUSE: Duration = Duration::from_millis(20);

/// Builds a response that streams.
pub fn response(stream: ByteReceiver, content_type: &str) -> Response {
    response::new(StatusCode::OK, Body::Stream(stream))
        .with("content-type", content_type)
        .with("cache-control", "no-cache")
        .with("x-accel-buffering", "no")
}

/// Builds a response that streams these events of another protocol, and ends.
pub fn of_bytes(call: &Call<'_>, events: Vec<u8>) -> Response {
    let (listener, stream) = Listener::new(Interest::default(), call.principal);
    listener.send(events.into());
    response(stream, "text/event-stream")
}

/// Streams the events after `cursor` as SSE, until `interest` ends.
pub(super) fn sse(
    call: &Call<'_>,
    session: &Rc<Session>,
    cursor: Cursor,
    interest: Interest,
) -> Result<ByteReceiver, Problem> {
    let (listener, stream) = Listener::new(interest, call.principal);
    listener.send(PREAMBLE);
    let cursor = session.resolve_cursor(cursor)?;
    start(call.host, session, Feed { cursor, ..Feed::from_start(listener) })?;
    Ok(stream)
}

/// Streams the stored records after `cursor` as NDJSON, at most `limit`. A cursor within a message's text
/// includes the record of that message.
pub(super) fn ndjson(
    call: &Call<'_>,
    session: &Rc<Session>,
    cursor: Cursor,
    limit: Option<usize>,
) -> Result<Response, Problem> {
    let (listener, stream) = Listener::new(Interest::default(), call.principal);
    let left = limit.unwrap_or(usize::MAX);
    start(call.host, session, Feed { listener, cursor, left, live: false })?;
    Ok(response(stream, "application/x-ndjson"))
}

/// A replay that continues live.
pub(super) struct Feed {
    listener: Listener,
    cursor: Cursor,
    /// Number of records that may still be sent.
    left: usize,
    /// Whether the reader receives new events, and reads SSE with deltas.
    live: bool,
}

/// Sends as many pages as fit at once; the rest of a long log is sent as the reader reads.
///
/// # Errors
/// A failed store.
pub(super) fn start(host: &Rc<SessionHost>, session: &Rc<Session>, mut feed: Feed) -> Result<(), Problem> {
    if feed.fill(session)? {
        host.serve_streams(session);
        return Ok(());
    }
    let (own, session) = (Rc::clone(host), Rc::clone(session));
    host.spawn(async move {
        loop {
            own.clock().sleep(PAUSE).await;
            let is_valid = feed.listener.caller().valid_until > own.now();
            if !is_valid && !own.check(&feed.listener, own.now()).await {
                break if feed.live { feed.listener.end() } else { feed.listener.interrupt() };
            }
            match feed.fill(&session) {
                Ok(false) => {}
                // The task that served earlier listeners may have ended during a long replay.
                Ok(true) => break own.serve_streams(&session),
                // The reader can continue with its last id.
                Err(_) => break feed.listener.interrupt(),
            }
        }
    });
    Ok(())
}

/// How far frames were sent.
enum Sent {
    All,
    /// The reader has too many unread bytes.
    Paused,
    /// No frame may follow.
    Ended,
}

impl Feed {
    /// Creates a feed of all events.
    pub(super) fn from_start(listener: Listener) -> Self {
        Self { listener, cursor: Cursor::default(), left: usize::MAX, live: true }
    }

    /// Creates a feed of the events that follow.
    pub(super) fn from_now(listener: Listener, session: &Session) -> Self {
        Self { cursor: Cursor::after(session.last_seq()), ..Self::from_start(listener) }
    }

    /// Sends frames until the reader has too many unread bytes, and moves the cursor after each.
    fn send_all(&mut self, frames: &[Frame]) -> Sent {
        for frame in frames {
            // Another protocol may write much more than the frame has.
            if self.listener.backlog() > HIGH_WATER {
                return Sent::Paused;
            }
            if !self.send(frame) {
                return Sent::Ended;
            }
            self.left -= usize::from(!self.live);
            self.cursor = frame.cursor.unwrap_or(self.cursor);
        }
        Sent::All
    }

    /// Sends pages until the log ends or the reader has too many unread bytes. Returns whether the replay is
    /// complete: the reader is a listener now, or its stream has ended.
    fn fill(&mut self, session: &Session) -> Result<bool, StoreError> {
        loop {
            if self.listener.is_closed() || self.listener.is_dropped() || self.left == 0 {
                return Ok(true);
            }
            if self.listener.backlog() > HIGH_WATER {
                return Ok(false);
            }
            let turn = self.listener.interest().turn.clone();
            let limit = self.left.min(PAGE_RECORDS);
            let (frames, next) = session.replay(self.cursor, turn.as_ref(), self.live, limit)?;
            match self.send_all(&frames) {
                Sent::Paused => return Ok(false),
                Sent::Ended => return Ok(true),
                Sent::All => {}
            }
            match next {
                Some(next) => self.cursor = next,
                None if self.live => return Ok(self.go_live(session)),
                None => return Ok(true),
            }
        }
    }

    /// Makes the reader a listener of the hub, unless it has too many unread bytes. There is no await since the last read, so
    /// no event is missed or sent twice. Returns whether the replay is complete.
    fn go_live(&mut self, session: &Session) -> bool {
        let mut frames = session.hub().streamed_after(self.cursor);
        if let Some(turn) = &self.listener.interest().turn {
            frames.retain(|frame| frame.turn.as_ref() == Some(turn));
        }
        match self.send_all(&frames) {
            Sent::Paused => return false,
            Sent::Ended => return true,
            Sent::All => {}
        }
        let interest = self.listener.interest();
        let is_idle = session.state().status() == SessionStatus::Idle;
        let is_over = is_idle && interest.until_idle
            || interest.turn.as_ref().is_some_and(|turn| !session.has_open_turn(turn));
        if !is_over {
            session.hub().listen(self.listener.clone());
        }
        true
    }

    /// Sends one frame. Returns whether another frame may follow.
    fn send(&self, frame: &Frame) -> bool {
        if !self.live {
            return self.listener.send(frame.ndjson());
        }
        let turn_only = self.listener.interest().turn.is_some();
        if turn_only && frame.event == "turn.queued" {
            return true;
        }
        self.listener.write(frame)
    }
}
