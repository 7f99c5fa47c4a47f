//! Outbound HTTP, and the Workers AI binding.

use super::{body::BodyStream, exception};
use crate::ports::{Ai, Http, HttpError, HttpRequest, HttpResponse};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{
    StreamExt,
    stream::{LocalBoxStream, poll_fn},
};
use js_sys::{JSON, Uint8Array};
use wasm_bindgen::{JsCast, JsValue, prelude::wasm_bindgen};
use worker::{AbortController, Fetch, Headers, Request, RequestInit, RequestRedirect, ResponseBody};

/// The platform's `fetch`.
pub struct WorkerHttp;

/// Aborts its request when dropped. Dropping a fetch alone would let it continue.
struct Abort(Option<AbortController>);

impl Drop for Abort {
    fn drop(&mut self) {
        if let Some(controller) = self.0.take() {
            controller.abort();
        }
    }
}

#[async_trait(?Send)]
impl Http for WorkerHttp {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut init = RequestInit::new();
        init.with_method(request.method.to_owned().into()).with_redirect(RequestRedirect::Manual);
        let headers = Headers::new();
        for (name, value) in &request.headers {
            headers.set(name, value).map_err(failed)?;
        }
        init.with_headers(headers);
        if let Some(body) = &request.body {
            init.with_body(Some(Uint8Array::from(body.as_ref()).into()));
        }
        let outbound = Request::new_with_init(&request.url, &init).map_err(failed)?;
        let controller = AbortController::default();
        let signal = controller.signal();
        let mut abort = Abort(Some(controller));
        let response = Fetch::Request(outbound).send_with_signal(&signal).await.map_err(failed)?;
        let headers = response.headers().entries().collect();
        let body: LocalBoxStream<'static, _> = match response.body() {
            ResponseBody::Stream(stream) => {
                let mut pieces = BodyStream::new(stream)?;
                let chunks = poll_fn(move |cx| {
                    let polled = pieces.poll_next_unpin(cx);
                    if polled.is_ready() && pieces.is_complete() {
                        // Nothing is left to abort, and the connection can be used again.
                        abort.0.take();
                    }
                    polled
                });
                chunks.boxed_local()
            }
            _ => futures::stream::empty().boxed_local(),
        };
        Ok(HttpResponse { status: response.status_code(), headers, body })
    }
}

fn failed(error: worker::Error) -> HttpError {
    HttpError(error.to_string())
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
    ) -> Result<LocalBoxStream<'static, Result<Bytes, HttpError>>, HttpError> {
        // Through JSON text, because serde would create a JS `Map` for each object.
        let input = JSON::parse(&input.to_string()).map_err(thrown)?;
        let output = self.0.unchecked_ref::<RawAi>().run(model, &input).await.map_err(thrown)?;
        match output.dyn_into::<web_sys::ReadableStream>() {
            Ok(stream) => Ok(BodyStream::new(&stream)?.boxed_local()),
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
