//! Reads bodies piece by piece; see `streams.js`.

use super::exception::thrown;
use crate::ports::http::HttpError;
use bytes::Bytes;
use js_sys::Uint8Array;
use std::{
    cell::Cell,
    panic::AssertUnwindSafe,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};
use wasm_bindgen::{JsCast, JsValue, prelude::*};

#[wasm_bindgen(module = "/src/platform/cloudflare/streams.js")]
extern "C" {
    type Source;
    #[wasm_bindgen(constructor, catch)]
    fn new(stream: &JsValue, wake: &Closure<dyn FnMut()>) -> Result<Source, JsValue>;
    #[wasm_bindgen(method, catch)]
    fn take(this: &Source) -> Result<JsValue, JsValue>;
    #[wasm_bindgen(method, getter)]
    fn over(this: &Source) -> bool;
    #[wasm_bindgen(method)]
    fn release(this: &Source);

    /// Makes wakes of tasks cheaper. Called once per isolate.
    #[wasm_bindgen(js_name = useEngineMicrotasks)]
    pub fn use_engine_microtasks();
}

/// The pieces of a body. Dropping the stream leaves the rest unread; the connection must be closed separately.
pub struct BodyStream {
    source: Source,
    waker: Rc<Cell<Option<Waker>>>,
    /// The source calls it until it is released.
    _wake: Closure<dyn FnMut()>,
    is_over: bool,
}

impl BodyStream {
    /// Starts reading `stream`.
    ///
    /// # Errors
    /// If the stream already has a reader.
    pub fn new(stream: &JsValue) -> Result<Self, HttpError> {
        let waker = Rc::new(Cell::new(None::<Waker>));
        // The closure only takes from a cell, so a panic leaves nothing inconsistent.
        let woken = AssertUnwindSafe(Rc::clone(&waker));
        let wake = Closure::new(move || {
            if let Some(waker) = woken.take() {
                waker.wake();
            }
        });
        let source = Source::new(stream, &wake).map_err(refused)?;
        Ok(Self { source, waker, _wake: wake, is_over: false })
    }

    /// Returns whether the body has arrived completely, even if not all of it was taken.
    pub fn is_complete(&self) -> bool {
        self.is_over || self.source.over()
    }
}

impl futures::Stream for BodyStream {
    type Item = Result<Bytes, HttpError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        match self.source.take() {
            Ok(none) if none.is_undefined() => {
                self.waker.set(Some(cx.waker().clone()));
                Poll::Pending
            }
            Ok(end) if end.is_null() => {
                self.is_over = true;
                Poll::Ready(None)
            }
            Ok(bytes) => Poll::Ready(Some(Ok(bytes.unchecked_into::<Uint8Array>().to_vec().into()))),
            Err(error) => {
                self.is_over = true;
                Poll::Ready(Some(Err(refused(error))))
            }
        }
    }
}

impl Drop for BodyStream {
    fn drop(&mut self) {
        self.source.release();
    }
}

fn refused(error: JsValue) -> HttpError {
    HttpError(thrown(error))
}
