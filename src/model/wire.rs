//! The protocol of a provider: writes requests, reads responses. Both are pure: no I/O, no clock.

use crate::{
    ports::HttpRequest,
    types::{MediaKind, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelResponse, ToolSchema},
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Address and credentials of a provider.
#[derive(Clone, Default)]
pub struct Endpoint {
    /// Base URL, as configured.
    pub base_url: String,
    /// API key; self-hosted servers may need none.
    pub key: Option<String>,
}

/// A provider's protocol.
///
/// ```
/// use edge_harness::model::{Endpoint, OpenAi, Wire};
/// use edge_harness::types::ModelRequest;
///
/// let endpoint = Endpoint { base_url: "https://api.example.com/v1".into(), key: None };
/// let request = OpenAi.encode(&endpoint, &ModelRequest::default()).unwrap();
/// assert_eq!(request.url, "https://api.example.com/v1/chat/completions");
/// ```
pub trait Wire {
    /// Encodes a request for this provider.
    ///
    /// # Errors
    /// Returns an error when the request cannot be serialized.
    fn encode(&self, endpoint: &Endpoint, request: &ModelRequest) -> Result<HttpRequest, ModelError>;

    /// Creates a decoder for one response.
    fn decoder(&self) -> Box<dyn Decoder>;

    /// Returns whether requests can carry files of this kind.
    fn carries(&self, _kind: MediaKind) -> bool {
        true
    }

    /// Returns whether servers that speak this protocol may have OpenAI's API for images and audio, too.
    fn has_media_api(&self) -> bool {
        false
    }
}

/// Decodes one response, event by event.
///
/// ```
/// # use edge_harness::model::Wire;
/// # use edge_harness::types::{ModelError, ModelResponse};
/// /// Decodes a response from the data of its events.
/// fn decode(wire: &dyn Wire, events: &[&str]) -> Result<ModelResponse, ModelError> {
///     let (mut decoder, mut pieces) = (wire.decoder(), Vec::new());
///     for data in events {
///         if decoder.event("", data, &mut pieces)? {
///             break;
///         }
///     }
///     decoder.finish()
/// }
/// ```
pub trait Decoder {
    /// Decodes one event of the stream and appends its pieces to `out`. Returns true when the rest of the
    /// stream can be ignored.
    ///
    /// # Errors
    /// Returns an error when the event reports one or cannot be parsed.
    fn event(&mut self, name: &str, data: &str, out: &mut Vec<ModelEvent>) -> Result<bool, ModelError>;

    /// Decodes a response that arrived as one JSON document, from a server that does not stream.
    ///
    /// # Errors
    /// Returns an error when the document reports one or cannot be parsed.
    fn whole(&mut self, body: &str, out: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        self.event("", body, out).map(drop)
    }

    /// Returns the complete response.
    ///
    /// # Errors
    /// Returns [`ModelErrorKind::Cut`] when the stream stopped before the response was complete.
    fn finish(self: Box<Self>) -> Result<ModelResponse, ModelError>;
}

/// Creates the error for a stream that stopped too early.
pub(super) fn cut() -> ModelError {
    ModelError::new(ModelErrorKind::Cut, "the stream ended before the response was complete")
}

/// Parses the JSON of one event. An unreadable event counts as a cut stream, because a retry may succeed.
pub(super) fn parse<'a, T: Deserialize<'a>>(data: &'a str) -> Result<T, ModelError> {
    // Parses from bytes directly into the target type: this runs for every token.
    serde_json::from_slice(data.as_bytes()).map_err(|e| {
        // The parser quotes the provider.
        ModelError::of_provider(ModelErrorKind::Cut, format!("sent an event that cannot be parsed: {e}"))
    })
}

/// A tool in a request: its schema, and the JSON before and after it.
pub(super) struct WireTool<'a> {
    pub(super) before: String,
    pub(super) schema: &'a ToolSchema,
    pub(super) after: &'static str,
}

/// The body of a request: a JSON object without its last field, `tools`.
pub(super) trait RequestBody: Serialize {
    fn tools(&self) -> &[WireTool<'_>];
}

/// Serializes the JSON of a request. The schemas of tools are most of it, so their texts are copied.
pub(super) fn write_request(body: &impl RequestBody) -> Result<Vec<u8>, ModelError> {
    let mut out = write(body)?;
    let tools = body.tools();
    if tools.is_empty() {
        return Ok(out);
    }
    // The end of the object.
    out.pop();
    for (at, WireTool { before, schema, after }) in tools.iter().enumerate() {
        let separator = if at == 0 { ",\"tools\":[" } else { "," };
        for part in [separator, before, schema.text(), after] {
            out.extend_from_slice(part.as_bytes());
        }
    }
    out.extend_from_slice(b"]}");
    Ok(out)
}

/// Serializes JSON.
pub(super) fn write(body: &impl Serialize) -> Result<Vec<u8>, ModelError> {
    serde_json::to_vec(body).map_err(|e| {
        ModelError::new(ModelErrorKind::Invalid, format!("the request cannot be serialized: {e}"))
    })
}

/// Creates a POST request with a JSON body.
pub(super) fn post(
    url: String,
    auth: Option<(&str, String)>,
    body: &impl RequestBody,
) -> Result<HttpRequest, ModelError> {
    let body = write_request(body)?;
    let mut headers = vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        ("accept".to_owned(), "text/event-stream".to_owned()),
    ];
    headers.extend(auth.map(|(name, value)| (name.to_owned(), value)));
    Ok(HttpRequest { method: "POST", url, headers, body: Some(body.into()), ..HttpRequest::default() })
}

/// A string that borrows from its event where possible. Serde copies a plain `Option<Cow<str>>`, but borrows
/// inside this wrapper.
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// Returns the text, or an empty string.
pub(super) fn str_of<'a>(text: &'a Option<Text<'_>>) -> &'a str {
    text.as_ref().map_or("", |t| &t.0)
}
