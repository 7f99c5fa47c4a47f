//! Converts between the platform's requests and responses and those of the `http` crate.

use super::sink;
use crate::http::{Body, MAX_BODY, Request as HttpRequest, RequestExt, Response as HttpResponse, request};
use crate::types::{ErrorCode, Problem};
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use wasm_bindgen::{JsCast, JsValue};
use worker::{Headers, Request, Response, ResponseBody, Result};

/// Returns a request without its body.
pub fn head(request: &Request) -> HttpRequest {
    let inner = request.inner();
    let url = inner.url();
    // Path and query: the API does not depend on scheme and host.
    let target = url.split_once("://").map_or("", |(_, rest)| rest.find('/').map_or("", |at| &rest[at..]));
    let target = target.split('#').next().unwrap_or_default();
    let mut head = HttpRequest::default();
    *head.method_mut() = Method::from_bytes(inner.method().as_bytes()).unwrap_or_default();
    // A target that `Uri` refuses has more than 64 KiB, which the platform never lets through: it becomes `/`,
    // which is not a route.
    *head.uri_mut() = target.parse().unwrap_or_default();
    *head.headers_mut() = header_map(request.headers().entries());
    head
}

/// Collects headers. A name or value that HTTP does not allow is left out.
pub fn header_map(headers: impl IntoIterator<Item = (String, String)>) -> HeaderMap {
    let read = |(name, value): (String, String)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(value.as_bytes()).ok()?))
    };
    headers.into_iter().filter_map(read).collect()
}

/// Lists headers as text.
pub fn header_list(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

/// Returns the `content-length` of a request, in bytes.
pub fn length(head: &HttpRequest) -> Option<usize> {
    head.header("content-length").and_then(|length| length.parse().ok())
}

/// Reads the body of a request.
///
/// # Errors
/// `payload_too_large` for a body of more than [`MAX_BODY`] bytes.
pub async fn body(from: &mut Request, length: Option<usize>) -> std::result::Result<Bytes, Problem> {
    let unreadable = |error: worker::Error| {
        Problem::new(ErrorCode::InvalidRequest, format!("the body cannot be read: {error}"))
    };
    match length {
        Some(length) if length > MAX_BODY => Err(request::too_large()),
        Some(_) => from.bytes().await.map(Bytes::from).map_err(unreadable),
        None if from.inner().body().is_none() => Ok(Bytes::new()),
        None => {
            let mut stream = from.stream().map_err(unreadable)?;
            let mut whole = Vec::new();
            while let Some(chunk) = stream.next().await {
                whole.extend_from_slice(&chunk.map_err(unreadable)?);
                if whole.len() > MAX_BODY {
                    return Err(request::too_large());
                }
            }
            Ok(whole.into())
        }
    }
}

/// Converts a response, with `extra` headers on top.
pub fn response(response: HttpResponse, extra: &[(String, String)]) -> Result<Response> {
    let headers = Headers::new();
    let own = header_list(response.headers());
    for (name, value) in own.iter().chain(extra) {
        headers.set(name, value)?;
    }
    let status = response.status().as_u16();
    let out = match response.into_body() {
        Body::Empty => Response::from_body(ResponseBody::Empty)?,
        Body::Bytes(bytes) => Response::from_bytes(bytes.into())?,
        Body::Stream(stream) => Response::from_body(ResponseBody::Stream(sink::streamed(stream)))?,
        Body::WebSocket(_) => return Err("only the object of a session opens WebSockets".into()),
    };
    Ok(out.with_status(status).with_headers(headers))
}

/// Returns the message of an exception.
pub fn thrown(error: JsValue) -> String {
    let message = error.dyn_ref::<js_sys::Error>().map(|error| String::from(error.message()));
    message.or_else(|| error.as_string()).unwrap_or_else(|| "an exception without a message".into())
}
