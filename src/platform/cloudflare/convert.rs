//! Converts between the platform's requests and responses and those of the `http` crate.

use super::{body::BodyStream, exception::thrown, sink};
use crate::http::{
    Body, MAX_BODY, Request as HttpRequest, Response as HttpResponse,
    body_budget::{BodyBudget, BodyPermit},
    request,
};
use crate::types::{ErrorCode, Problem};
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use js_sys::Uint8Array;
use wasm_bindgen::{JsValue, prelude::wasm_bindgen};
use wasm_bindgen_futures::JsFuture;
use worker::Result;

#[wasm_bindgen(module = "/src/platform/cloudflare/http.js")]
extern "C" {
    #[wasm_bindgen(js_name = head)]
    fn raw_head(request: &web_sys::Request) -> String;
    #[wasm_bindgen(catch, js_name = response)]
    fn raw_response(
        status: u16,
        lines: &str,
        body: &JsValue,
    ) -> std::result::Result<web_sys::Response, JsValue>;
}

/// Returns a request without its body.
pub fn head(request: &web_sys::Request) -> HttpRequest {
    let lines = raw_head(request);
    let mut lines = lines.split('\n');
    let (method, url) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    // Path and query: the API does not depend on scheme and host.
    let target = url.split_once("://").map_or("", |(_, rest)| rest.find('/').map_or("", |at| &rest[at..]));
    let target = target.split('#').next().unwrap_or_default();
    let mut head = HttpRequest::default();
    *head.method_mut() = Method::from_bytes(method.as_bytes()).unwrap_or_default();
    // A target that `Uri` refuses has more than 64 KiB, which the platform never lets through: it becomes `/`,
    // which is not a route.
    *head.uri_mut() = target.parse().unwrap_or_default();
    // A name or value that HTTP does not allow is left out.
    let read = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(value.as_bytes()).ok()?))
    };
    *head.headers_mut() = lines.filter_map(read).collect();
    head
}

/// Lists headers as lines of `name:value`.
pub fn header_lines(headers: &HeaderMap) -> String {
    let line = |(name, value): (&HeaderName, &HeaderValue)| {
        format!("{name}:{}", String::from_utf8_lossy(value.as_bytes()))
    };
    headers.iter().map(line).collect::<Vec<_>>().join("\n")
}

thread_local! {
    /// An isolate has one thread.
    static BODIES: BodyBudget = BodyBudget::default();
}

/// Largest body that is read as a whole, with one call of JavaScript, in bytes. Room for it is reserved before it arrives.
const SMALL_BODY: usize = 16 << 10;

/// Reads the body of a request. It counts toward the bodies of this isolate until it is dropped.
///
/// # Errors
/// `payload_too_large` for a body of more than [`MAX_BODY`] bytes, `unavailable` if this isolate holds too many.
pub async fn body(from: &web_sys::Request, length: Option<usize>) -> std::result::Result<Bytes, Problem> {
    match length {
        Some(0) => Ok(Bytes::new()),
        Some(length) if length > MAX_BODY => Err(request::too_large()),
        Some(length) if length <= SMALL_BODY => match reserve(length) {
            Ok(permit) => {
                let buffer = from.array_buffer().map(JsFuture::from);
                let buffer = buffer.map_err(|error| unreadable(thrown(error)))?.await;
                let buffer = buffer.map_err(|error| unreadable(thrown(error)))?;
                Ok(permit.hold(Uint8Array::new(&buffer).to_vec()))
            }
            Err(refused) => {
                if let Some(stream) = from.body() {
                    skip(opened(&stream)?).await;
                }
                Err(refused)
            }
        },
        _ => {
            let Some(stream) = from.body() else { return Ok(Bytes::new()) };
            let (mut stream, mut permit, mut whole) = (opened(&stream)?, reserve(0)?, Vec::new());
            while let Some(chunk) = stream.next().await {
                let chunk = chunk.map_err(|error| unreadable(error.to_string()))?;
                if whole.len() + chunk.len() > MAX_BODY {
                    return Err(request::too_large());
                }
                whole.extend_from_slice(&chunk);
                if let Err(refused) = permit.grow(whole.capacity()) {
                    drop((whole, permit));
                    skip(stream).await;
                    return Err(refused);
                }
            }
            Ok(permit.hold(whole))
        }
    }
}

/// Reserves memory for this many bytes among the bodies of this isolate.
///
/// # Errors
/// `unavailable` if the other bodies leave no room.
pub fn reserve(bytes: usize) -> std::result::Result<BodyPermit, Problem> {
    BODIES.with(|bodies| bodies.reserve(bytes))
}

fn opened(stream: &web_sys::ReadableStream) -> std::result::Result<BodyStream, Problem> {
    BodyStream::new(stream).map_err(|error| unreadable(error.to_string()))
}

/// Reads a stream to its end. A response before the body has arrived would break the connection between gateway and
/// object.
async fn skip(mut stream: BodyStream) {
    while let Some(Ok(_)) = stream.next().await {}
}

fn unreadable(error: String) -> Problem {
    Problem::new(ErrorCode::InvalidRequest, format!("the body cannot be read: {error}"))
}

/// Converts a response, with `extra` headers on top, as lines of `name:value`.
pub fn response(response: HttpResponse, extra: &str) -> Result<web_sys::Response> {
    let (status, lines) = (response.status().as_u16(), header_lines(response.headers()) + "\n" + extra);
    let body: JsValue = match response.into_body() {
        Body::Empty => JsValue::NULL,
        Body::Bytes(bytes) => Uint8Array::from(bytes.as_ref()).into(),
        Body::Stream(stream) => sink::streamed(stream).into(),
        Body::WebSocket(_) => return Err("only the object of a session opens WebSockets".into()),
    };
    raw_response(status, lines.trim(), &body).map_err(|error| thrown(error).into())
}
