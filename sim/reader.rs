//! Readers of event streams: what they were sent, as a client understands it.

use super::{node::Node, world::World};
use bytes::Bytes;
use edge_harness::session::hub::ByteReceiver;
use edge_harness::types::Cursor;
use futures::{Stream, future::poll_fn};
use std::{pin::Pin, rc::Rc, task::Poll};

/// One event.
#[derive(Clone, Debug)]
pub struct Event {
    pub id: Option<Cursor>,
    pub name: String,
    pub data: String,
}

/// A connection that carries a stream. It ends with the machine at its other end.
pub struct Line {
    pub node: Rc<Node>,
    pub generation: u64,
    pub stream: ByteReceiver,
}

impl Line {
    /// The next bytes; none at the end, and when the line is cut.
    pub async fn next(&mut self) -> Option<Bytes> {
        poll_fn(|cx| {
            if self.node.generation.get() != self.generation {
                return Poll::Ready(None);
            }
            self.node.listen(cx.waker());
            Pin::new(&mut self.stream).poll_next(cx)
        })
        .await
    }
}

/// Makes events of bytes, however they are cut.
#[derive(Default)]
pub struct Parser(Vec<u8>);

impl Parser {
    pub fn push(&mut self, world: &World, origin: usize, bytes: &[u8], events: &mut Vec<Event>) {
        self.0.extend_from_slice(bytes);
        while let Some(end) = self.0.windows(2).position(|pair| pair == b"\n\n") {
            let block: Vec<u8> = self.0.drain(..end + 2).collect();
            let text = String::from_utf8(block).expect("a block of UTF-8");
            let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            let Some(data) = field("data: ") else { continue };
            super::client::is_own(world, origin, &data);
            let id = field("id: ").map(|id| Cursor::parse(&id).expect("an id of ours"));
            events.push(Event { id, name: field("event: ").unwrap_or_default(), data });
        }
    }
}
