//! Readers of event streams, which parse what they receive as a client does.

use super::{
    scenario::mark,
    witness::Event,
    world::{Node, World},
};
use bytes::Bytes;
use edge_harness::session::hub::ByteReceiver;
use edge_harness::types::Cursor;
use futures::{Stream, future::poll_fn};
use std::{pin::Pin, rc::Rc, task::Poll};

/// A connection with a stream. Ends when the instance is evicted.
pub struct Line {
    pub node: Rc<Node>,
    pub generation: u64,
    pub stream: ByteReceiver,
}

impl Line {
    /// Returns the next bytes, or `None` at the end of the stream or of the connection.
    pub async fn next(&mut self) -> Option<Bytes> {
        poll_fn(|cx| {
            if self.node.generation.get() != self.generation {
                return Poll::Ready(None);
            }
            self.node.listen(cx.waker());
            // An interrupted stream ends the connection.
            Pin::new(&mut self.stream).poll_next(cx).map(|piece| piece?.ok())
        })
        .await
    }
}

/// Parses events from arbitrarily split bytes.
#[derive(Default)]
pub struct Parser(Vec<u8>);

impl Parser {
    pub fn push(&mut self, world: &World, origin: usize, bytes: &[u8], events: &mut Vec<Event>) {
        self.0.extend_from_slice(bytes);
        while let Some(end) = self.0.windows(2).position(|pair| pair == b"\n\n") {
            let block: Vec<u8> = self.0.drain(..end + 2).collect();
            let text = String::from_utf8(block).expect("valid UTF-8");
            let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            let Some(data) = field("data: ") else { continue };
            is_own(world, origin, &data);
            let id = field("id: ").map(|id| Cursor::parse(&id).expect("a valid cursor"));
            events.push(Event { id, name: field("event: ").unwrap_or_default(), data });
        }
    }
}

/// Checks that the text contains no marks of other sessions.
pub fn is_own(world: &World, origin: usize, text: &str) {
    for place in (0..world.ledger.scenario.sessions.len()).filter(|place| *place != origin) {
        if text.contains(&mark(place)) {
            world.ledger.find(7, format!("session {origin} shows text of session {place}: {text}"));
        }
    }
}
