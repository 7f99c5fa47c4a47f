//! Reads a body piece by piece. A model's stream comes in many small ones, so nothing is made anew
//! for each: the same two callbacks take every piece.

use super::convert::thrown;
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

    type RawPiece;
    #[wasm_bindgen(method, getter)]
    fn done(this: &RawPiece) -> bool;
    #[wasm_bindgen(method, getter)]
    fn value(this: &RawPiece) -> JsValue;
}

type Callback = Closure<dyn FnMut(JsValue)>;

/// The stream of a body's pieces. Dropping it leaves the rest unread; closing the connection is up to
/// whoever opened it.
pub struct Pieces {
    reader: RawReader,
    shared: Rc<Shared>,
    callbacks: Option<(Callback, Callback)>,
    state: State,
}

#[derive(PartialEq)]
enum State {
    Idle,
    Asked,
    Over,
}

#[derive(Default)]
struct Shared {
    answer: Cell<Option<Result<JsValue, JsValue>>>,
    waker: Cell<Option<Waker>>,
    /// Callbacks of a reader that left with a question open: they live until it is answered.
    orphans: RefCell<Option<(Callback, Callback)>>,
}

impl Shared {
    fn settle(&self, answer: Result<JsValue, JsValue>) {
        self.answer.set(Some(answer));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        let orphans = self.orphans.borrow_mut().take();
        drop(orphans);
    }
}

impl Pieces {
    /// Reads `stream` from its start.
    ///
    /// # Errors
    /// When somebody reads it already.
    pub fn new(stream: &JsValue) -> Result<Self, String> {
        let reader = stream.unchecked_ref::<RawStream>().get_reader().map_err(thrown)?;
        let shared = Rc::new(Shared::default());
        // A panic in here leaves nothing half done.
        let (fine, broken) = (AssertUnwindSafe(Rc::clone(&shared)), AssertUnwindSafe(Rc::clone(&shared)));
        let callbacks = (
            Closure::new(move |piece| fine.settle(Ok(piece))),
            Closure::new(move |error| broken.settle(Err(error))),
        );
        Ok(Self { reader, shared, callbacks: Some(callbacks), state: State::Idle })
    }

    fn ask(&mut self) -> Result<(), JsValue> {
        if let Some((fine, broken)) = &self.callbacks {
            let _ = self.reader.read()?.then2(fine, broken);
            self.state = State::Asked;
        }
        Ok(())
    }
}

impl futures::Stream for Pieces {
    type Item = Result<Vec<u8>, String>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.state == State::Over {
            return Poll::Ready(None);
        }
        if self.state == State::Idle
            && let Err(error) = self.ask()
        {
            self.state = State::Over;
            return Poll::Ready(Some(Err(thrown(error))));
        }
        match self.shared.answer.take() {
            None => {
                self.shared.waker.set(Some(cx.waker().clone()));
                Poll::Pending
            }
            Some(Ok(piece)) if !piece.unchecked_ref::<RawPiece>().done() => {
                self.state = State::Idle;
                let bytes: Uint8Array = piece.unchecked_ref::<RawPiece>().value().unchecked_into();
                Poll::Ready(Some(Ok(bytes.to_vec())))
            }
            Some(Ok(_)) => {
                self.state = State::Over;
                Poll::Ready(None)
            }
            Some(Err(error)) => {
                self.state = State::Over;
                Poll::Ready(Some(Err(thrown(error))))
            }
        }
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        if self.state == State::Asked {
            *self.shared.orphans.borrow_mut() = self.callbacks.take();
        }
    }
}
