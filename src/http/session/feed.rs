//! Streams of events: first what the reader missed, then what comes.

use crate::agent::SessionHost;
use crate::http::{ApiBody, ApiResponse};
use crate::session::{
    Session,
    frame::Frame,
    hub::{ByteReceiver, Interest, Listener},
    replay::PAGE,
};
use crate::types::{Cursor, Problem, SessionStatus};
use bytes::Bytes;
use std::rc::Rc;

/// The first bytes of every event stream: how long a client should wait before it comes back.
pub(super) const PREAMBLE: Bytes = Bytes::from_static(b"retry: 2000\n\n");

/// Bytes that may wait for the reader before a long replay takes a rest.
const HIGH_WATER: usize = 1 << 20;
/// How long that rest is, in milliseconds.
const REST_MS: u64 = 20;

/// A response that streams.
pub(super) fn response(stream: ByteReceiver, content_type: &str) -> ApiResponse {
    let response = ApiResponse { status: 200, headers: Vec::new(), body: ApiBody::Stream(stream) };
    response
        .with("content-type", content_type)
        .with("cache-control", "no-cache")
        .with("x-accel-buffering", "no")
}

/// An event stream from `cursor` on, for as long as `interest` says.
pub(super) fn sse(
    host: &Rc<SessionHost>,
    session: &Rc<Session>,
    cursor: Cursor,
    interest: Interest,
) -> Result<ApiResponse, Problem> {
    let (listener, stream) = Listener::new(interest);
    listener.send(PREAMBLE);
    let cursor = session.resolve_cursor(cursor)?;
    start(host, session, Feed { listener, cursor, left: usize::MAX, page: PAGE, live: true })?;
    Ok(response(stream, "text/event-stream"))
}

/// The stored records behind `cursor` as lines of JSON, at most `limit`. Inside a message's text
/// the record that holds it is still to come.
pub(super) fn ndjson(
    host: &Rc<SessionHost>,
    session: &Rc<Session>,
    cursor: Cursor,
    limit: Option<usize>,
) -> Result<ApiResponse, Problem> {
    let (listener, stream) = Listener::new(Interest::default());
    let left = limit.unwrap_or(usize::MAX);
    start(host, session, Feed { listener, cursor, left, page: PAGE, live: false })?;
    Ok(response(stream, "application/x-ndjson"))
}

struct Feed {
    listener: Listener,
    cursor: Cursor,
    /// Records still wanted.
    left: usize,
    /// Records to read at once: fewer when they are heavy.
    page: usize,
    /// Whether the reader stays for what comes, and reads SSE with deltas.
    live: bool,
}

/// Sends at once what fits; a long rest is sent as the reader reads.
fn start(host: &Rc<SessionHost>, session: &Rc<Session>, mut feed: Feed) -> Result<(), Problem> {
    if feed.fill(session)? {
        host.ping(session);
        return Ok(());
    }
    let (own, session) = (Rc::clone(host), Rc::clone(session));
    host.spawn(async move {
        loop {
            own.clock().sleep(REST_MS).await;
            // A store that breaks ends the stream; the reader comes back with its last id.
            match feed.fill(&session) {
                Ok(false) => {}
                // The pings of those who listened before may have ended during a long replay.
                Ok(true) => break own.ping(&session),
                Err(_) => break,
            }
        }
    });
    Ok(())
}

impl Feed {
    /// Sends pages until the log ends or enough waits for the reader. Returns whether the feed is
    /// done here: it is live now, or over.
    fn fill(&mut self, session: &Session) -> Result<bool, crate::ports::StoreError> {
        loop {
            if self.listener.is_closed() || self.left == 0 {
                return Ok(true);
            }
            if self.listener.backlog() > HIGH_WATER {
                return Ok(false);
            }
            let turn = self.listener.interest().turn.clone();
            let limit = self.page.min(self.left);
            let (frames, next) = session.replay(self.cursor, turn.as_deref(), self.live, limit)?;
            for (sent, frame) in frames.iter().enumerate() {
                if !self.send(frame) {
                    return Ok(true);
                }
                self.left -= usize::from(!self.live);
                if self.listener.backlog() > HIGH_WATER
                    && let Some(cursor) = frame.cursor
                {
                    self.cursor = cursor;
                    self.page = sent + 1;
                    return Ok(false);
                }
            }
            self.page = PAGE.min(self.page * 2);
            match next {
                Some(next) => self.cursor = next,
                None if self.live => return Ok(self.go_live(session)),
                None => return Ok(true),
            }
        }
    }

    /// Hands the reader over to the hub. No await since the last read: no gap, no overlap.
    fn go_live(&self, session: &Session) -> bool {
        if let Some(frame) = session.hub().streamed_after(self.cursor) {
            let wanted = self
                .listener
                .interest()
                .turn
                .as_deref()
                .is_none_or(|turn| frame.turn.as_deref() == Some(turn));
            if wanted {
                self.send(&frame);
            }
        }
        let idle = session.state().status() == SessionStatus::Idle;
        if !(idle && self.listener.interest().until_idle) {
            session.hub().listen(self.listener.clone());
        }
        true
    }

    /// Sends one frame; false when nothing should follow it.
    fn send(&self, frame: &Frame) -> bool {
        if !self.live {
            return self.listener.send(frame.ndjson());
        }
        let turn_only = self.listener.interest().turn.is_some();
        if turn_only && frame.event == "turn.queued" {
            return true;
        }
        self.listener.send(frame.sse()) && !(turn_only && frame.ends_turn())
    }
}
