//! Runs a wire: sends the request, splits the response into events and streams its pieces.

mod idle_timer;

use super::{
    classify,
    wire::{Decoder, Endpoint, Wire},
    workers_ai::{self, WorkersAi},
};
use crate::types::json;
use crate::{
    ports::{
        Ai, Clock, Http, HttpError, HttpRequest, HttpResponse, Model, ReadAhead,
        event_stream::{EventTooLarge, MAX_EVENT, OnEvent, Splitter},
    },
    types::{ModelError, ModelErrorKind, ModelEvent, ModelRequest},
};
use bytes::Bytes;
use futures::{
    FutureExt, StreamExt,
    future::LocalBoxFuture,
    stream::{self, LocalBoxStream},
};
use idle_timer::IdleTimer;
use serde::de::DeserializeOwned;
use std::time::Duration;
use std::{collections::VecDeque, rc::Rc};

/// Maximum time until the response headers arrive.
const HEADERS_TIMEOUT: Duration = Duration::from_mins(2);

/// Maximum time between two chunks of a response.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// How many bytes of an error body are read.
const MAX_ERROR_BODY: usize = 64 * 1024;

/// Maximum length of a provider's error message, in characters.
const MAX_MESSAGE: usize = 500;

type Body = LocalBoxStream<'static, Result<Bytes, HttpError>>;
type Events = LocalBoxStream<'static, Result<ModelEvent, ModelError>>;

/// A provider reached over HTTP.
pub(super) struct HttpModel {
    pub(super) wire: &'static (dyn Wire + Sync),
    pub(super) endpoint: Endpoint,
    pub(super) http: Rc<dyn Http>,
    pub(super) clock: Rc<dyn Clock>,
    pub(super) errors: ErrorFormatter,
}

impl Model for HttpModel {
    fn stream(&self, request: ModelRequest) -> Events {
        let encoded = self.wire.encode(&self.endpoint, &request);
        let (http, clock) = (self.http.clone(), self.clock.clone());
        let permit = request.media.permit.clone();
        let read_ahead = ReadAhead::default();
        let encoded = encoded.map(|request| HttpRequest { read_ahead: Some(read_ahead.clone()), ..request });
        let open = async move {
            let response =
                http.send(encoded?).await.map_err(|e| connection_error(ModelErrorKind::Network, &e))?;
            // The body has been sent.
            drop(permit);
            if (200..300).contains(&response.status) {
                Ok(response.body)
            } else {
                Err(read_error(response, &*clock).await)
            }
        };
        stream_response(open.boxed_local(), read_ahead, self.wire.decoder(), &self.clock, &self.errors)
    }
}

/// Workers AI, reached through its binding.
pub(super) struct AiModel {
    pub(super) ai: Rc<dyn Ai>,
    pub(super) clock: Rc<dyn Clock>,
    pub(super) errors: ErrorFormatter,
}

impl Model for AiModel {
    fn stream(&self, request: ModelRequest) -> Events {
        let input = workers_ai::input(&request);
        let (ai, model, permit) = (self.ai.clone(), request.model, request.media.permit.clone());
        let read_ahead = ReadAhead::default();
        let own = read_ahead.clone();
        let open = async move {
            let response = ai.run(&model, input?, own).await;
            drop(permit);
            response.map_err(|e| classify::binding_error(&e.0))
        };
        let decoder = Box::<WorkersAi>::default();
        stream_response(open.boxed_local(), read_ahead, decoder, &self.clock, &self.errors)
    }
}

/// Completes a provider's errors.
#[derive(Clone)]
pub(super) struct ErrorFormatter {
    pub(super) provider: Rc<str>,
    pub(super) key: Option<Rc<str>>,
}

impl ErrorFormatter {
    /// Reads the JSON of a response that is not streamed.
    pub(super) fn read<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, ModelError> {
        json::from_slice(body).map_err(|_| self.malformed())
    }

    /// Returns the error about a response that cannot be read.
    pub(super) fn malformed(&self) -> ModelError {
        self.format(ModelError::new(ModelErrorKind::Invalid, "returned a malformed response"))
    }

    /// Redacts the key in the cause, truncates the cause, and names the provider. The order matters: a key
    /// that truncation has split would not be found.
    pub(super) fn format(&self, mut error: ModelError) -> ModelError {
        if let Some(cause) = &mut error.cause {
            if let Some(key) = self.key.as_deref().filter(|key| !key.is_empty()) {
                *cause = cause.replace(key, "[redacted]");
            }
            if let Some((end, _)) = cause.char_indices().nth(MAX_MESSAGE) {
                cause.truncate(end);
                cause.push('…');
            }
        }
        error.message = match error.status {
            Some(status) => format!("{} returned {status}: {}", self.provider, error.message),
            None => format!("{}: {}", self.provider, error.message),
        };
        error
    }
}

impl From<EventTooLarge> for ModelError {
    fn from(error: EventTooLarge) -> Self {
        Self::new(ModelErrorKind::Invalid, error.to_string())
    }
}

pub(super) fn connection_error(kind: ModelErrorKind, error: &HttpError) -> ModelError {
    ModelError::of_provider(kind, error.to_string())
}

/// Reads an error body up to its limit and classifies the error.
pub(super) async fn read_error(mut response: HttpResponse, clock: &dyn Clock) -> ModelError {
    let mut body = Vec::new();
    while let Some(Ok(chunk)) = response.body.next().await {
        let room = MAX_ERROR_BODY.saturating_sub(body.len());
        body.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
        if body.len() >= MAX_ERROR_BODY {
            break;
        }
    }
    classify::http(response.status, &response.headers, &body, clock.now())
}

/// Reads the whole body of a response that is not streamed.
pub(super) async fn read_whole(mut body: Body) -> Result<Bytes, ModelError> {
    let mut whole = Vec::new();
    while let Some(chunk) = body.next().await {
        whole.extend_from_slice(&chunk.map_err(|error| connection_error(ModelErrorKind::Cut, &error))?);
        if whole.len() > MAX_EVENT {
            return Err(ModelError::new(ModelErrorKind::Invalid, "sent a response of more than 8 MiB"));
        }
    }
    Ok(whole.into())
}

/// Streams the events of a response. `open` sends the request and completes when the head of the response has arrived.
fn stream_response(
    open: LocalBoxFuture<'static, Result<Body, ModelError>>,
    read_ahead: ReadAhead,
    decoder: Box<dyn Decoder>,
    clock: &Rc<dyn Clock>,
    errors: &ErrorFormatter,
) -> Events {
    let (clock, errors) = (clock.clone(), errors.clone());
    // The timeout starts with the first poll, as the request does.
    let start = async move {
        let mut idle_timer = IdleTimer::new(clock, IDLE_TIMEOUT);
        let opened = idle_timer.guard(HEADERS_TIMEOUT, open).await.and_then(|opened| opened);
        let (decoder, format, ready) = (Some(decoder), BodyFormat::Unknown, VecDeque::new());
        let mut reader =
            ResponseReader { body: None, read_ahead, decoder, format, idle_timer, errors, ready };
        match opened {
            Ok(body) => reader.body = Some(body),
            Err(error) => reader.fail(error),
        }
        stream::unfold(reader, |mut reader| async move {
            let event = reader.next().await?;
            Some((event, reader))
        })
    };
    start.flatten_stream().boxed_local()
}

/// The detected format of the body.
enum BodyFormat {
    Unknown,
    Events(Splitter),
    /// One JSON document, from a server that does not stream.
    Document(Vec<u8>),
}

/// Reads one response.
struct ResponseReader {
    body: Option<Body>,
    /// Started by the first event, because the first token must not wait for others.
    read_ahead: ReadAhead,
    decoder: Option<Box<dyn Decoder>>,
    format: BodyFormat,
    idle_timer: IdleTimer,
    errors: ErrorFormatter,
    ready: VecDeque<Result<ModelEvent, ModelError>>,
}

impl ResponseReader {
    /// Returns the next event. All events of one chunk are returned before more input is awaited.
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let body = self.body.as_mut()?;
            match self.idle_timer.guard(IDLE_TIMEOUT, body.next()).await {
                Ok(Some(Ok(chunk))) => self.chunk(&chunk),
                Ok(None) => self.end(),
                Ok(Some(Err(e))) => self.conclude(Some(connection_error(ModelErrorKind::Cut, &e))),
                Err(stalled) => self.conclude(Some(stalled)),
            }
        }
    }

    fn chunk(&mut self, chunk: &[u8]) {
        if matches!(self.format, BodyFormat::Unknown) {
            // The first byte is more reliable than the content type, which some servers get wrong.
            match chunk.iter().find(|b| !b.is_ascii_whitespace()) {
                None => return,
                Some(b'{' | b'[') => self.format = BodyFormat::Document(Vec::new()),
                Some(b'<') => {
                    let message = "returned a web page instead of a completion: check the base URL";
                    return self.fail(ModelError::new(ModelErrorKind::Invalid, message));
                }
                Some(_) => self.format = BodyFormat::Events(Splitter::default()),
            }
        }
        self.read(|format, on_event| match format {
            BodyFormat::Events(splitter) => splitter.push(chunk, on_event),
            BodyFormat::Document(text) if text.len() + chunk.len() > MAX_EVENT => {
                Err(ModelError::new(ModelErrorKind::Invalid, "sent a response of more than 8 MiB"))
            }
            BodyFormat::Document(text) => {
                text.extend_from_slice(chunk);
                Ok(false)
            }
            BodyFormat::Unknown => Ok(false),
        });
    }

    fn end(&mut self) {
        if let BodyFormat::Document(text) = std::mem::replace(&mut self.format, BodyFormat::Unknown) {
            let Some(decoder) = self.decoder.as_mut() else { return };
            let mut out = Vec::new();
            let read = decoder.whole(&String::from_utf8_lossy(&text), &mut out);
            self.ready.extend(out.into_iter().map(Ok));
            return match read {
                Ok(()) => self.conclude(None),
                Err(error) => self.fail(error),
            };
        }
        self.read(|format, on_event| match format {
            BodyFormat::Events(splitter) => splitter.finish(on_event),
            _ => Ok(false),
        });
        self.conclude(None);
    }

    /// Passes the events that `step` finds to the decoder and queues the result.
    fn read(
        &mut self,
        step: impl FnOnce(&mut BodyFormat, OnEvent<'_, ModelError>) -> Result<bool, ModelError>,
    ) {
        let Some(decoder) = self.decoder.as_mut() else { return };
        let mut out = Vec::new();
        let result = step(&mut self.format, &mut |name, data| decoder.event(name, data, &mut out));
        if !out.is_empty() {
            self.read_ahead.start();
        }
        self.ready.extend(out.into_iter().map(Ok));
        match result {
            Ok(false) => {}
            Ok(true) => self.conclude(None),
            Err(error) => self.fail(error),
        }
    }

    /// Ends the response. A response that the decoder considers complete stays valid even if the connection
    /// failed afterwards.
    fn conclude(&mut self, connection_error: Option<ModelError>) {
        let Some(decoder) = self.decoder.take() else { return };
        self.body = None;
        match decoder.finish() {
            Ok(response) => self.ready.push_back(Ok(ModelEvent::Done(response))),
            Err(error) => {
                self.fail(connection_error.filter(|_| error.kind == ModelErrorKind::Cut).unwrap_or(error))
            }
        }
    }

    fn fail(&mut self, error: ModelError) {
        self.decoder = None;
        self.body = None;
        self.ready.push_back(Err(self.errors.format(error)));
    }
}

#[cfg(test)]
mod tests;
