//! WebSockets of other protocols. Each request of a client is one text frame: the gateway handles it like the same request
//! over HTTP, with the credentials of the frame or of the handshake, and sends the events of the response as frames.

use crate::types::Problem;
use http::Method;

/// Most requests of a socket whose responses have not ended.
pub const MAX_REQUESTS: usize = 16;

/// What is read of a frame before its caller is authenticated.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FrameHead {
    /// The id of the request, if the frame has one.
    pub id: Option<String>,
    /// The credential of the request, in the form of the header; `None` for that of the handshake.
    pub authorization: Option<String>,
    /// Whether the frame only asks to stop the response to the request with this id.
    pub is_stop: bool,
}

/// What a frame of a client asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A request.
    Request(SocketRequest),
    /// To stop sending the response to the request with this id. Its turn continues.
    Stop(String),
}

/// The same request over HTTP.
#[derive(Debug, PartialEq, Eq)]
pub struct SocketRequest {
    /// The id of the request on this socket.
    pub id: String,
    /// The method.
    pub method: Method,
    /// The path.
    pub path: String,
    /// The credentials of the frame, in place of those of the handshake.
    pub authorization: Option<String>,
    /// The body; empty for a method without one.
    pub body: String,
}

impl SocketRequest {
    /// Returns the path with the query of the handshake, which counts for each request of the socket.
    pub fn target(&self, query: Option<&str>) -> String {
        match query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }
}

/// The frames of a protocol.
pub trait SocketFormat: Sync {
    /// Reads the head of a frame, without building the rest. A frame that is not valid has what can be read of it.
    fn head(&self, _frame: &str) -> FrameHead {
        FrameHead::default()
    }

    /// Reads the request in a frame.
    ///
    /// # Errors
    /// `validation_failed` or `malformed_json`.
    fn read(&self, frame: &str) -> Result<SocketRequest, Problem>;

    /// Returns whether a frame may have the credentials of its request. Otherwise all requests have those of the handshake.
    fn reads_credentials(&self) -> bool {
        false
    }

    /// The frame before the events of a response.
    fn begin(&self, id: &str) -> Option<String>;

    /// The frame for an event, which is JSON. Events are numbered from 0.
    fn event(&self, id: &str, number: u64, event: &str) -> String;

    /// The frame after the events of a response.
    fn end(&self, id: &str) -> Option<String>;

    /// The frame for a response that has none (204).
    fn nothing(&self, id: &str) -> Option<String>;

    /// The frame for a response with this status and body of JSON. Without an id, it is not known which request has failed.
    fn failed(&self, id: Option<&str>, status: u16, body: &str) -> String;
}

/// Cuts a stream of server-sent events into the frames of a response.
pub struct Frames {
    format: &'static dyn SocketFormat,
    id: String,
    number: u64,
    /// The event that has not arrived completely.
    rest: Vec<u8>,
}

impl Frames {
    /// Creates the frames of the response to the request with this id.
    pub fn new(format: &'static dyn SocketFormat, id: String) -> Self {
        Self { format, id, number: 0, rest: Vec::new() }
    }

    /// Adds bytes, and returns the frames of the events that are complete.
    pub fn add(&mut self, bytes: &[u8]) -> Vec<String> {
        self.rest.extend_from_slice(bytes);
        let mut frames = Vec::new();
        let mut start = 0;
        while let Some(length) = self.rest[start..].windows(2).position(|pair| pair == b"\n\n") {
            let event = String::from_utf8_lossy(&self.rest[start..start + length]);
            start += length + 2;
            // Comments keep a connection open, and the end of the stream is a frame of its own.
            let data =
                event.lines().find_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
            if let Some(data) = data {
                frames.push(self.format.event(&self.id, self.number, data));
                self.number += 1;
            }
        }
        self.rest.drain(..start);
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    struct Plain;

    impl SocketFormat for Plain {
        fn read(&self, _frame: &str) -> Result<SocketRequest, Problem> {
            Err(Problem::field("", "no request"))
        }
        fn begin(&self, _id: &str) -> Option<String> {
            None
        }
        fn event(&self, id: &str, number: u64, event: &str) -> String {
            format!("{id} {number} {event}")
        }
        fn end(&self, _id: &str) -> Option<String> {
            None
        }
        fn nothing(&self, _id: &str) -> Option<String> {
            None
        }
        fn failed(&self, _id: Option<&str>, _status: u16, body: &str) -> String {
            body.to_owned()
        }
    }

    #[test]
    fn the_query_of_the_handshake_counts_for_each_request() {
        let (id, body, path) = (String::new(), String::new(), "/api/chat".to_owned());
        let asked = SocketRequest { id, method: Method::POST, path, authorization: None, body };
        assert_eq!(asked.target(Some("user=ann&agent=a%26b")), "/api/chat?user=ann&agent=a%26b");
        assert_eq!(asked.target(None), "/api/chat");
    }

    #[test]
    fn events_are_frames_wherever_the_stream_is_cut() {
        let stream = "event: a\ndata: {\"ä\":1}\n\n: wait\n\ndata: {}\n\ndata: [DONE]\n\n".as_bytes();
        for cut in 0..stream.len() {
            let mut frames = Frames::new(&Plain, "r".into());
            let (one, other) = stream.split_at(cut);
            let found = [frames.add(one), frames.add(other)].concat();
            assert_eq!(found, ["r 0 {\"ä\":1}", "r 1 {}"]);
        }
    }
}
