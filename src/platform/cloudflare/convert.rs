//! Converts the platform's requests and responses to those of `http`, and back.

use crate::http::{ApiBody, ApiRequest, ApiResponse};
use crate::types::{ErrorCode, Problem};
use bytes::Bytes;
use futures::StreamExt;
use wasm_bindgen::{JsCast, JsValue};
use worker::{Headers, Request, Response, ResponseBody, Result};

/// The request without its body.
pub fn head(request: &Request) -> ApiRequest {
    let inner = request.inner();
    let url = inner.url();
    // The URL without scheme and host.
    let target = url.split_once("://").map_or("", |(_, rest)| rest.find('/').map_or("", |at| &rest[at..]));
    let target = target.split('#').next().unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    ApiRequest {
        method: inner.method(),
        path: path.to_owned(),
        query: query.to_owned(),
        headers: request.headers().entries().collect(),
        body: Bytes::new(),
        id: String::new(),
    }
}

/// The `Content-Length` of a request.
pub fn length(head: &ApiRequest) -> Option<usize> {
    head.header("content-length").and_then(|length| length.parse().ok())
}

/// Reads the body of a request up to the maximum size.
pub async fn body(request: &mut Request, length: Option<usize>) -> std::result::Result<Bytes, Problem> {
    let too_large = || Problem::new(ErrorCode::PayloadTooLarge, "the body is larger than 4 MiB");
    let unreadable = |error: worker::Error| {
        Problem::new(ErrorCode::InvalidRequest, format!("the body cannot be read: {error}"))
    };
    match length {
        Some(length) if length > ApiRequest::MAX_BODY => Err(too_large()),
        Some(_) => request.bytes().await.map(Bytes::from).map_err(unreadable),
        None if request.inner().body().is_none() => Ok(Bytes::new()),
        None => {
            let mut stream = request.stream().map_err(unreadable)?;
            let mut whole = Vec::new();
            while let Some(chunk) = stream.next().await {
                whole.extend_from_slice(&chunk.map_err(unreadable)?);
                if whole.len() > ApiRequest::MAX_BODY {
                    return Err(too_large());
                }
            }
            Ok(whole.into())
        }
    }
}

/// Converts a response, adding `extra` headers.
pub fn response(response: ApiResponse, extra: &[(String, String)]) -> Result<Response> {
    let headers = Headers::new();
    for (name, value) in response.headers.iter().chain(extra) {
        headers.set(name, value)?;
    }
    let out = match response.body {
        ApiBody::Empty => Response::from_body(ResponseBody::Empty)?,
        ApiBody::Bytes(bytes) => Response::from_bytes(bytes.into())?,
        // The stream owns only plain memory, because it may be freed at any time, even outside a request.
        ApiBody::Stream(stream) => {
            Response::from_stream(stream.map(|bytes| Ok::<Vec<u8>, worker::Error>(bytes.into())))?
        }
    };
    Ok(out.with_status(response.status).with_headers(headers))
}

/// The message of an exception.
pub fn thrown(error: JsValue) -> String {
    let message = error.dyn_ref::<js_sys::Error>().map(|error| String::from(error.message()));
    message.or_else(|| error.as_string()).unwrap_or_else(|| "an exception without a message".into())
}
