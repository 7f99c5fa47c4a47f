//! What a provider's protocol must know how to do. Both halves are pure: no I/O, no clock.

use crate::{
    ports::HttpRequest,
    types::{ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelResponse},
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Where a provider is reached, and as whom.
#[derive(Clone, Default)]
pub struct Endpoint {
    /// The base URL, as configured.
    pub base_url: String,
    /// The key; servers of one's own may need none.
    pub key: Option<String>,
}

/// A provider's protocol.
pub trait Wire {
    /// Writes a request.
    ///
    /// # Errors
    /// When the request cannot be written as JSON.
    fn encode(&self, endpoint: &Endpoint, request: &ModelRequest) -> Result<HttpRequest, ModelError>;

    /// A reader for one answer.
    fn decoder(&self) -> Box<dyn Decoder>;
}

/// Reads one answer, event by event.
pub trait Decoder {
    /// Reads one event of the stream and appends the pieces in it to `out`. True when nothing that
    /// matters can follow.
    ///
    /// # Errors
    /// When the event is an error, or unreadable.
    fn event(&mut self, name: &str, data: &str, out: &mut Vec<ModelEvent>) -> Result<bool, ModelError>;

    /// Reads an answer that came as one JSON document, from a server that does not stream.
    ///
    /// # Errors
    /// When the document is an error, or unreadable.
    fn whole(&mut self, body: &str, out: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        self.event("", body, out).map(drop)
    }

    /// The answer.
    ///
    /// # Errors
    /// [`ModelErrorKind::Cut`] when its end never came.
    fn finish(self: Box<Self>) -> Result<ModelResponse, ModelError>;
}

/// The error of a stream that stopped too early.
pub(super) fn cut() -> ModelError {
    ModelError::new(ModelErrorKind::Cut, "the stream ended before the answer did")
}

/// Reads the JSON of one event. What cannot be read counts as cut: it may well work next time.
pub(super) fn parse<'a, T: Deserialize<'a>>(data: &'a str) -> Result<T, ModelError> {
    // From bytes like all JSON, and straight into its type: this is the hot path.
    serde_json::from_slice(data.as_bytes())
        .map_err(|e| ModelError::new(ModelErrorKind::Cut, format!("sent an event that cannot be read: {e}")))
}

/// Writes the JSON of a request.
pub(super) fn write(body: &impl Serialize) -> Result<Vec<u8>, ModelError> {
    serde_json::to_vec(body)
        .map_err(|e| ModelError::new(ModelErrorKind::Invalid, format!("the request cannot be written: {e}")))
}

/// A POST of JSON.
pub(super) fn post(
    url: String,
    auth: Option<(&str, String)>,
    body: &impl Serialize,
) -> Result<HttpRequest, ModelError> {
    let body = write(body)?;
    let mut headers = vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        ("accept".to_owned(), "text/event-stream".to_owned()),
    ];
    headers.extend(auth.map(|(name, value)| (name.to_owned(), value)));
    Ok(HttpRequest { method: "POST", url, headers, body: Some(body.into()) })
}

/// A string that borrows from its event where it can. Serde copies a bare `Option<Cow<str>>`;
/// inside this wrapper it does not.
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// The text, or nothing.
pub(super) fn str_of<'a>(text: &'a Option<Text<'_>>) -> &'a str {
    text.as_ref().map_or("", |t| &t.0)
}
