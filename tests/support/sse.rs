//! A client for server-sent events that exposes details that browsers hide: comments, `retry`, and broken
//! connections.

use super::http::{Incoming, header};
use serde_json::Value;
use std::io::{self, Read};

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub id: Option<String>,
    /// `message` if the stream does not name the event.
    pub event: String,
    pub data: String,
}

impl Event {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|e| panic!("not JSON ({e}): {}", self.data))
    }
}

/// An open stream; dropping it closes the connection. The iterator ends when the server ends the stream, and
/// panics on a timeout.
pub struct Sse {
    incoming: Incoming,
    buffer: Vec<u8>,
    /// The comments received so far.
    pub comments: Vec<String>,
    /// The last `retry`, in milliseconds.
    pub retry: Option<u64>,
    /// Whether the connection broke before the stream ended.
    pub cut: bool,
}

impl Sse {
    /// Reads a response, which must be an event stream.
    #[track_caller]
    pub fn new(incoming: Incoming) -> Self {
        let kind = header(&incoming.headers, "content-type").unwrap_or_default().to_owned();
        if incoming.status != 200 || !kind.starts_with("text/event-stream") {
            let (status, answer) = (incoming.status, incoming.finish().map(|a| a.text()));
            panic!("not an event stream but {status} {kind}: {answer:?}");
        }
        Self { incoming, buffer: Vec::new(), comments: Vec::new(), retry: None, cut: false }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.incoming.headers, name)
    }

    /// Returns the events up to and including the first match; panics if the stream ends before.
    #[track_caller]
    pub fn until(&mut self, matches: impl Fn(&Event) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        for event in self.by_ref() {
            events.push(event);
            if matches(&events[events.len() - 1]) {
                return events;
            }
        }
        panic!("the stream ended (cut: {}) after {events:#?}", self.cut);
    }

    /// Returns the events up to and including the first of this type.
    #[track_caller]
    pub fn until_type(&mut self, event: &str) -> Vec<Event> {
        self.until(|e| e.event == event)
    }

    /// Reads exactly `count` raw bytes, to drop the connection at a chosen byte.
    pub fn read_bytes(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < count {
            if self.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.buffer.drain(..count).collect())
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut piece = [0; 8192];
        let count = self.incoming.read(&mut piece)?;
        self.buffer.extend_from_slice(&piece[..count]);
        Ok(count)
    }

    /// Returns the next complete line, without its end.
    fn line(&mut self) -> io::Result<Option<String>> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=searched + end).collect();
                let line = String::from_utf8(line).map_err(io::Error::other)?;
                return Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned()));
            }
            searched = self.buffer.len();
            if self.fill()? == 0 {
                return Ok(None);
            }
        }
    }

    fn event(&mut self) -> io::Result<Option<Event>> {
        self.incoming.patience(super::PATIENCE);
        let mut event = Event { id: None, event: "message".into(), data: String::new() };
        let mut has_data = false;
        while let Some(line) = self.line()? {
            if line.is_empty() {
                if has_data {
                    return Ok(Some(event));
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" => self.comments.push(value.to_owned()),
                "retry" => self.retry = value.parse().ok(),
                "id" => event.id = Some(value.to_owned()),
                "event" => event.event = value.to_owned(),
                "data" => {
                    if has_data {
                        event.data.push('\n');
                    }
                    has_data = true;
                    event.data.push_str(value);
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

impl Iterator for Sse {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        match self.event() {
            Ok(event) => event,
            Err(e) if e.kind() == io::ErrorKind::TimedOut => panic!("timed out waiting for an event"),
            Err(_) => {
                self.cut = true;
                None
            }
        }
    }
}
