//! Converts between the platform's requests and responses and those of the `http` crate.

use super::{body::BodyStream, exception::thrown, sink};
use crate::http::{
    Body, MAX_BODY, Request as HttpRequest, Response as HttpResponse,
    body_budget::{BodyBudget, BodyPermit},
    request,
};
use crate::types::{ErrorCode, Problem};
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

/// Reads the body of a request. It counts as a body that is being read until its permit is dropped.
///
/// # Errors
/// `payload_too_large` for a body of more than [`MAX_BODY`] bytes, `unavailable` if this isolate reads too many.
pub async fn body(
    from: &web_sys::Request,
    length: Option<usize>,
) -> std::result::Result<(Vec<u8>, BodyPermit), Problem> {
    if length.is_some_and(|length| length > MAX_BODY) {
        return Err(request::too_large());
    }
    let expected = if from.body().is_none() { Some(0) } else { length };
    match BODIES.with(|bodies| bodies.reserve(expected)) {
        Ok(permit) => Ok((read(from, length).await?, permit)),
        Err(refused) => {
            // A response before the body has arrived would break the connection between gateway and object.
            if let Some(mut rest) = from.body().and_then(|body| BodyStream::new(&body).ok()) {
                while let Some(Ok(_)) = rest.next().await {}
            }
            Err(refused)
        }
    }
}

async fn read(from: &web_sys::Request, length: Option<usize>) -> std::result::Result<Vec<u8>, Problem> {
    let unreadable =
        |error: String| Problem::new(ErrorCode::InvalidRequest, format!("the body cannot be read: {error}"));
    match (length, from.body()) {
        (Some(_), Some(_)) => {
            let buffer = from.array_buffer().map(JsFuture::from);
            let buffer = buffer.map_err(|error| unreadable(thrown(error)))?.await;
            let buffer = buffer.map_err(|error| unreadable(thrown(error)))?;
            Ok(Uint8Array::new(&buffer).to_vec())
        }
        (None, Some(stream)) => {
            let mut stream = BodyStream::new(&stream).map_err(|error| unreadable(error.to_string()))?;
            let mut whole = Vec::new();
            while let Some(chunk) = stream.next().await {
                whole.extend_from_slice(&chunk.map_err(|error| unreadable(error.to_string()))?);
                if whole.len() > MAX_BODY {
                    return Err(request::too_large());
                }
            }
            Ok(whole)
        }
        (_, None) => Ok(Vec::new()),
    }
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
