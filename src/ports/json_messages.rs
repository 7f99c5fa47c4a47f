//! The JSON messages of a response, in whichever of the two forms of JSON-RPC over HTTP the server has chosen.

use super::event_stream::{EventTooLarge, Splitter};
use super::http::{HttpError, HttpResponse};
use bytes::Bytes;
use futures::{StreamExt, stream::LocalBoxStream};
use serde_json::Value;
use std::{collections::VecDeque, mem};
use thiserror::Error;

/// Why there is no further message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JsonMessagesError {
    /// The connection was lost.
    #[error(transparent)]
    Lost(#[from] HttpError),
    /// The response is larger than allowed.
    #[error("it is too large")]
    TooLarge,
    /// The response, or an event of it, is not JSON.
    #[error("it is not JSON")]
    NotJson,
}

impl From<EventTooLarge> for JsonMessagesError {
    fn from(_: EventTooLarge) -> Self {
        Self::TooLarge
    }
}

/// Reads the messages of a response: one JSON text, or those of a stream of events. A text that is a list has its entries as
/// messages.
///
/// ```
/// use edge_harness::{platform::in_memory::ScriptedHttp, ports::{Http, HttpRequest, json_messages::JsonMessages}};
/// use futures::executor::block_on;
///
/// let http = ScriptedHttp::default();
/// http.respond_with(200, &[("content-type", "text/event-stream")], "data: 1\n\ndata: 2\n\n");
/// let response = block_on(http.send(HttpRequest::default())).unwrap();
/// let mut messages = JsonMessages::new(response, 1_000);
/// assert_eq!(block_on(messages.next()), Ok(Some(1.into())));
/// assert_eq!(block_on(messages.next()), Ok(Some(2.into())));
/// assert_eq!(block_on(messages.next()), Ok(None));
/// ```
pub struct JsonMessages {
    body: LocalBoxStream<'static, Result<Bytes, HttpError>>,
    /// The splitter of a stream of events; `None` for one JSON text.
    events: Option<Splitter>,
    text: Vec<u8>,
    /// Number of bytes that may still arrive.
    left: usize,
    ready: VecDeque<Value>,
    has_ended: bool,
}

impl JsonMessages {
    /// Reads the body of a response, which has at most `max_bytes` bytes.
    pub fn new(response: HttpResponse, max_bytes: usize) -> Self {
        let kind = response.header("content-type").unwrap_or_default();
        let events = kind.starts_with("text/event-stream").then(Splitter::default);
        let (text, ready) = (Vec::new(), VecDeque::new());
        Self { body: response.body, events, text, left: max_bytes, ready, has_ended: false }
    }

    /// Returns the next message; `None` at the end.
    ///
    /// # Errors
    /// A response that ends too early, is too large, or is not JSON.
    pub async fn next(&mut self) -> Result<Option<Value>, JsonMessagesError> {
        while self.ready.is_empty() && !self.has_ended {
            match self.body.next().await {
                Some(chunk) => self.push(&chunk?)?,
                None => self.end()?,
            }
        }
        Ok(self.ready.pop_front())
    }

    fn push(&mut self, chunk: &[u8]) -> Result<(), JsonMessagesError> {
        self.left = self.left.checked_sub(chunk.len()).ok_or(JsonMessagesError::TooLarge)?;
        match &mut self.events {
            Some(events) => {
                let ready = &mut self.ready;
                events.push(chunk, &mut |_, data| queue(ready, data.as_bytes())).map(drop)
            }
            None => {
                self.text.extend_from_slice(chunk);
                Ok(())
            }
        }
    }

    fn end(&mut self) -> Result<(), JsonMessagesError> {
        self.has_ended = true;
        let ready = &mut self.ready;
        match &mut self.events {
            Some(events) => events.finish(&mut |_, data| queue(ready, data.as_bytes())).map(drop),
            None => queue(ready, &mem::take(&mut self.text)).map(drop),
        }
    }
}

/// Adds the messages of a text. An event may have no data.
fn queue(ready: &mut VecDeque<Value>, text: &[u8]) -> Result<bool, JsonMessagesError> {
    if text.trim_ascii().is_empty() {
        return Ok(false);
    }
    match serde_json::from_slice(text) {
        Ok(Value::Array(messages)) => ready.extend(messages),
        Ok(message) => ready.push_back(message),
        Err(_) => return Err(JsonMessagesError::NotJson),
    }
    Ok(false)
}
