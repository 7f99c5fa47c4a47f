//! Drives a wire: sends the request, splits the answer and streams its pieces.

mod watchdog;

use super::{
    classify,
    sse::{MAX_EVENT, Splitter},
    wire::{Decoder, Endpoint, Wire},
    workers_ai::{self, WorkersAi},
};
use crate::{
    ports::{Ai, Clock, Http, HttpError, HttpResponse, Model},
    types::{ModelError, ModelErrorKind, ModelEvent, ModelRequest},
};
use bytes::Bytes;
use futures::{
    FutureExt, StreamExt,
    future::LocalBoxFuture,
    stream::{self, LocalBoxStream},
};
use std::{collections::VecDeque, rc::Rc};
use watchdog::Watchdog;

/// How long the head of an answer may take.
const HEAD_MS: u64 = 120_000;

/// How long a stream may be silent.
const STALL_MS: u64 = 60_000;

/// How much of an error's body is read.
const MAX_ERROR_BODY: usize = 64 * 1024;

/// How much of a provider's message people are shown, in characters.
const MAX_MESSAGE: usize = 500;

type Body = LocalBoxStream<'static, Result<Bytes, HttpError>>;
type Events = LocalBoxStream<'static, Result<ModelEvent, ModelError>>;

/// A provider reached over HTTP.
pub(super) struct HttpModel {
    pub(super) wire: &'static (dyn Wire + Sync),
    pub(super) endpoint: Endpoint,
    pub(super) http: Rc<dyn Http>,
    pub(super) clock: Rc<dyn Clock>,
    pub(super) voice: Voice,
}

impl Model for HttpModel {
    fn stream(&self, request: ModelRequest) -> Events {
        let encoded = self.wire.encode(&self.endpoint, &request);
        let (http, clock) = (self.http.clone(), self.clock.clone());
        let open = async move {
            let response = http.send(encoded?).await.map_err(|e| lost(ModelErrorKind::Network, &e))?;
            if (200..300).contains(&response.status) {
                Ok(response.body)
            } else {
                Err(refusal(response, &*clock).await)
            }
        };
        drive(open.boxed_local(), self.wire.decoder(), &self.clock, &self.voice)
    }
}

/// Workers AI through its binding.
pub(super) struct AiModel {
    pub(super) ai: Rc<dyn Ai>,
    pub(super) clock: Rc<dyn Clock>,
    pub(super) voice: Voice,
}

impl Model for AiModel {
    fn stream(&self, request: ModelRequest) -> Events {
        let input = workers_ai::input(&request);
        let (ai, model) = (self.ai.clone(), request.model);
        let open = async move { ai.run(&model, input?).await.map_err(|e| classify::thrown(&e.0)) };
        drive(open.boxed_local(), Box::<WorkersAi>::default(), &self.clock, &self.voice)
    }
}

/// How a provider's errors are told to people.
#[derive(Clone)]
pub(super) struct Voice {
    pub(super) provider: &'static str,
    pub(super) key: Option<Rc<str>>,
}

impl Voice {
    /// Names the provider, hides its key, and cuts what is too long, in this order: a key that is
    /// cut in two would not be found.
    fn tell(&self, mut error: ModelError) -> ModelError {
        if let Some(key) = self.key.as_deref().filter(|key| !key.is_empty()) {
            error.message = error.message.replace(key, "[redacted]");
        }
        if let Some((end, _)) = error.message.char_indices().nth(MAX_MESSAGE) {
            error.message.truncate(end);
            error.message.push('…');
        }
        error.message = match error.status {
            Some(status) => format!("{} answered {status}: {}", self.provider, error.message),
            None => format!("{}: {}", self.provider, error.message),
        };
        error
    }
}

fn lost(kind: ModelErrorKind, error: &HttpError) -> ModelError {
    ModelError::new(kind, format!("the connection failed: {error}"))
}

/// Reads an error's body as far as it matters.
async fn refusal(mut response: HttpResponse, clock: &dyn Clock) -> ModelError {
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

fn drive(
    open: LocalBoxFuture<'static, Result<Body, ModelError>>,
    decoder: Box<dyn Decoder>,
    clock: &Rc<dyn Clock>,
    voice: &Voice,
) -> Events {
    let (clock, voice) = (clock.clone(), voice.clone());
    // The timer starts with the first poll, like the request.
    let start = async move {
        let mut watchdog = Watchdog::new(clock, STALL_MS);
        let opened = watchdog.guard(HEAD_MS, open).await.and_then(|opened| opened);
        let (decoder, format, ready) = (Some(decoder), Format::Unknown, VecDeque::new());
        let mut reading = Reading { body: None, decoder, format, watchdog, voice, ready };
        match opened {
            Ok(body) => reading.body = Some(body),
            Err(error) => reading.fail(error),
        }
        stream::unfold(reading, |mut reading| async move {
            let event = reading.next().await?;
            Some((event, reading))
        })
    };
    start.flatten_stream().boxed_local()
}

/// What the body turned out to be.
enum Format {
    Unknown,
    Events(Splitter),
    /// One JSON document: the server does not stream.
    Document(Vec<u8>),
}

/// An answer being read.
struct Reading {
    body: Option<Body>,
    decoder: Option<Box<dyn Decoder>>,
    format: Format,
    watchdog: Watchdog,
    voice: Voice,
    ready: VecDeque<Result<ModelEvent, ModelError>>,
}

impl Reading {
    /// The next event. What one chunk held comes out without waiting in between.
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let body = self.body.as_mut()?;
            match self.watchdog.guard(STALL_MS, body.next()).await {
                Ok(Some(Ok(chunk))) => self.chunk(&chunk),
                Ok(None) => self.end(),
                Ok(Some(Err(e))) => self.conclude(Some(lost(ModelErrorKind::Cut, &e))),
                Err(stalled) => self.conclude(Some(stalled)),
            }
        }
    }

    fn chunk(&mut self, chunk: &[u8]) {
        if matches!(self.format, Format::Unknown) {
            // The first byte tells more than the content type, which servers get wrong.
            match chunk.iter().find(|b| !b.is_ascii_whitespace()) {
                None => return,
                Some(b'{' | b'[') => self.format = Format::Document(Vec::new()),
                Some(b'<') => {
                    let message = "answered with a web page instead of a completion: check the base URL";
                    return self.fail(ModelError::new(ModelErrorKind::Invalid, message));
                }
                Some(_) => self.format = Format::Events(Splitter::default()),
            }
        }
        self.read(|format, on_event| match format {
            Format::Events(splitter) => splitter.push(chunk, on_event),
            Format::Document(text) if text.len() + chunk.len() > MAX_EVENT => {
                Err(ModelError::new(ModelErrorKind::Invalid, "sent an answer of more than 8 MiB"))
            }
            Format::Document(text) => {
                text.extend_from_slice(chunk);
                Ok(false)
            }
            Format::Unknown => Ok(false),
        });
    }

    fn end(&mut self) {
        if let Format::Document(text) = std::mem::replace(&mut self.format, Format::Unknown) {
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
            Format::Events(splitter) => splitter.finish(on_event),
            _ => Ok(false),
        });
        self.conclude(None);
    }

    /// Lets `step` hand events to the decoder, and keeps what comes of it.
    fn read(&mut self, step: impl FnOnce(&mut Format, super::sse::OnEvent<'_>) -> Result<bool, ModelError>) {
        let Some(decoder) = self.decoder.as_mut() else { return };
        let mut out = Vec::new();
        let result = step(&mut self.format, &mut |name, data| decoder.event(name, data, &mut out));
        self.ready.extend(out.into_iter().map(Ok));
        match result {
            Ok(false) => {}
            Ok(true) => self.conclude(None),
            Err(error) => self.fail(error),
        }
    }

    /// Ends the answer: whole if the decoder says so, whatever happened to the connection since.
    fn conclude(&mut self, trouble: Option<ModelError>) {
        let Some(decoder) = self.decoder.take() else { return };
        self.body = None;
        match decoder.finish() {
            Ok(response) => self.ready.push_back(Ok(ModelEvent::Done(response))),
            Err(error) => self.fail(trouble.filter(|_| error.kind == ModelErrorKind::Cut).unwrap_or(error)),
        }
    }

    fn fail(&mut self, error: ModelError) {
        self.decoder = None;
        self.body = None;
        self.ready.push_back(Err(self.voice.tell(error)));
    }
}

#[cfg(test)]
mod tests;
