//! Reads a body chunk by chunk. A model's stream has many small chunks, so the same two callbacks are reused
//! for every chunk.

use super::convert::thrown;
use crate::ports::http::HttpError;
use js_sys::{Promise, Uint8Array};
use std::{
    cell::{Cell, RefCell},
    panic::AssertUnwindSafe,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};
use wasm_bindgen::{JsCast, JsValue, prelude::*};

#[wasm_bindgen]
extern "C" {
    type RawReader;
    #[wasm_bindgen(method, catch)]
    fn read(this: &RawReader) -> Result<Promise, JsValue>;

    type RawStream;
    #[wasm_bindgen(method, catch, js_name = getReader)]
    fn get_reader(this: &RawStream) -> Result<RawReader, JsValue>;

    type RawChunk;
    #[wasm_bindgen(method, getter)]
    fn done(this: &RawChunk) -> bool;
    #[wasm_bindgen(method, getter)]
    fn value(this: &RawChunk) -> JsValue;
}

type Callback = Closure<dyn FnMut(JsValue)>;

/// The chunks of a body. Dropping the stream leaves the rest unread; the connection must be closed
/// separately.
pub struct BodyStream {
    reader: RawReader,
    shared: Rc<Shared>,
    callbacks: Option<(Callback, Callback)>,
    state: State,
}

#[derive(PartialEq)]
enum State {
    Idle,
    Reading,
    Over,
}

#[derive(Default)]
struct Shared {
    answer: Cell<Option<Result<JsValue, JsValue>>>,
    waker: Cell<Option<Waker>>,
    /// The callbacks of a dropped reader with a pending read; they must live until it completes.
    pending_callbacks: RefCell<Option<(Callback, Callback)>>,
}

impl Shared {
    fn complete(&self, answer: Result<JsValue, JsValue>) {
        self.answer.set(Some(answer));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        let pending_callbacks = self.pending_callbacks.borrow_mut().take();
        drop(pending_callbacks);
    }
}

impl BodyStream {
    /// Starts reading `stream`.
    ///
    /// # Errors
    /// If the stream already has a reader.
    pub fn new(stream: &JsValue) -> Result<Self, HttpError> {
        let reader = stream.unchecked_ref::<RawStream>().get_reader().map_err(refused)?;
        let shared = Rc::new(Shared::default());
        // The closures only set cells, so a panic leaves nothing inconsistent.
        let (fine, broken) = (AssertUnwindSafe(Rc::clone(&shared)), AssertUnwindSafe(Rc::clone(&shared)));
        let callbacks = (
            Closure::new(move |chunk| fine.complete(Ok(chunk))),
            Closure::new(move |error| broken.complete(Err(error))),
        );
        Ok(Self { reader, shared, callbacks: Some(callbacks), state: State::Idle })
    }

    fn ask(&mut self) -> Result<(), JsValue> {
        if let Some((fine, broken)) = &self.callbacks {
            let _ = self.reader.read()?.then2(fine, broken);
            self.state = State::Reading;
        }
        Ok(())
    }
}

impl futures::Stream for BodyStream {
    type Item = Result<Vec<u8>, HttpError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.state == State::Over {
            return Poll::Ready(None);
        }
        if self.state == State::Idle
            && let Err(error) = self.ask()
        {
            self.state = State::Over;
            return Poll::Ready(Some(Err(refused(error))));
        }
        match self.shared.answer.take() {
            None => {
                self.shared.waker.set(Some(cx.waker().clone()));
                Poll::Pending
            }
            Some(Ok(chunk)) if !chunk.unchecked_ref::<RawChunk>().done() => {
                self.state = State::Idle;
                let bytes: Uint8Array = chunk.unchecked_ref::<RawChunk>().value().unchecked_into();
                Poll::Ready(Some(Ok(bytes.to_vec())))
            }
            Some(Ok(_)) => {
                self.state = State::Over;
                Poll::Ready(None)
            }
            Some(Err(error)) => {
                self.state = State::Over;
                Poll::Ready(Some(Err(refused(error))))
            }
        }
    }
}

fn refused(error: JsValue) -> HttpError {
    HttpError(thrown(error))
}

impl Drop for BodyStream {
    fn drop(&mut self) {
        if self.state == State::Reading {
            *self.shared.pending_callbacks.borrow_mut() = self.callbacks.take();
        }
    }
}
