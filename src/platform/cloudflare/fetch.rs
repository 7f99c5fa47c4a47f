//! Outbound HTTP, and the Workers AI binding.

use super::{body::BodyStream, exception};
use crate::ports::{Ai, Http, HttpError, HttpRequest, HttpResponse, ReadAhead};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream::LocalBoxStream};
use js_sys::{JSON, Uint8Array};
use std::{
    pin::Pin,
    task::{Context, Poll},
};
use wasm_bindgen::{JsCast, JsValue, prelude::wasm_bindgen};
use web_sys::{Headers, Response};
use worker::AbortController;

/// The platform's `fetch`.
pub struct WorkerHttp;

/// Aborts its request, and reading its response, when dropped. Dropping a fetch alone would let it continue.
struct Abort(Option<AbortController>);

impl Drop for Abort {
    fn drop(&mut self) {
        if let Some(controller) = self.0.take() {
            controller.abort();
        }
    }
}

/// The body of a response. Its request is aborted if it is dropped before all has arrived.
struct ResponseBody {
    pieces: BodyStream,
    abort: Abort,
}

impl Stream for ResponseBody {
    type Item = Result<Bytes, HttpError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.pieces.poll_next_unpin(cx)
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if self.pieces.is_complete() {
            // Nothing is left to abort, and the connection can be used again.
            self.abort.0.take();
        }
    }
}

#[async_trait(?Send)]
impl Http for WorkerHttp {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let lines = lines(&request.headers)?;
        let body = match &request.body {
            Some(body) => Uint8Array::from(body.as_ref()).into(),
            None => JsValue::UNDEFINED,
        };
        let controller = AbortController::default();
        let signal = controller.signal();
        let abort = Abort(Some(controller));
        let sent = raw_send(request.method, &request.url, &lines, &body, &signal);
        let response = sent.await.map_err(failed)?;
        let headers = header_lines(&response.headers());
        let headers = headers.lines().filter_map(|line| line.split_once(':'));
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let body = match response.body() {
            Some(stream) => {
                let pieces = match request.read_ahead {
                    Some(read_ahead) => BodyStream::ahead(&stream, &signal, read_ahead)?,
                    None => BodyStream::new(&stream)?,
                };
                ResponseBody { pieces, abort }.boxed_local()
            }
            None => futures::stream::empty().boxed_local(),
        };
        Ok(HttpResponse { status: response.status(), headers, body })
    }
}

/// Lists headers as lines of `name:value`.
fn lines(headers: &[(String, String)]) -> Result<String, HttpError> {
    let line = |(name, value): &(String, String)| {
        // As the platform does: a key that was read from a file may end with a line break.
        let value = value.trim_ascii();
        let fits = !name.contains([':', '\n']) && !value.contains('\n');
        fits.then(|| format!("{name}:{value}"))
    };
    let lines: Option<Vec<_>> = headers.iter().map(line).collect();
    Ok(lines.ok_or_else(|| HttpError("the name or the value of a header is invalid".into()))?.join("\n"))
}

fn failed(error: JsValue) -> HttpError {
    HttpError(worker::Error::from(error).to_string())
}

#[wasm_bindgen(module = "/src/platform/cloudflare/http.js")]
extern "C" {
    #[wasm_bindgen(catch, js_name = send)]
    async fn raw_send(
        method: &str,
        url: &str,
        lines: &str,
        body: &JsValue,
        signal: &web_sys::AbortSignal,
    ) -> Result<Response, JsValue>;
    #[wasm_bindgen(js_name = headerLines)]
    fn header_lines(headers: &Headers) -> String;
}

#[wasm_bindgen]
extern "C" {
    type RawAi;
    #[wasm_bindgen(method, catch)]
    async fn run(this: &RawAi, model: &str, input: &JsValue) -> Result<JsValue, JsValue>;
}

/// The `AI` binding.
pub struct WorkerAi(pub JsValue);

#[async_trait(?Send)]
impl Ai for WorkerAi {
    async fn run(
        &self,
        model: &str,
        input: serde_json::Value,
        read_ahead: ReadAhead,
    ) -> Result<LocalBoxStream<'static, Result<Bytes, HttpError>>, HttpError> {
        // Through JSON text, because serde would create a JS `Map` for each object.
        let input = JSON::parse(&input.to_string()).map_err(thrown)?;
        let output = self.0.unchecked_ref::<RawAi>().run(model, &input).await.map_err(thrown)?;
        match output.dyn_into::<web_sys::ReadableStream>() {
            Ok(stream) => {
                let controller = AbortController::default();
                let pieces = BodyStream::ahead(&stream, &controller.signal(), read_ahead)?;
                Ok(ResponseBody { pieces, abort: Abort(Some(controller)) }.boxed_local())
            }
            // A model that does not stream returns an object.
            Err(object) => {
                let text = JSON::stringify(&object).map_err(thrown)?;
                let text = Bytes::from(String::from(text));
                Ok(futures::stream::iter([Ok(text)]).boxed_local())
            }
        }
    }
}

fn thrown(error: JsValue) -> HttpError {
    HttpError(exception::thrown(error))
}
