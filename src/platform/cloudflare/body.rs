//! Reads bodies piece by piece; see `streams.js`.

use super::exception::thrown;
use crate::ports::{HttpError, ReadAhead};
use bytes::Bytes;
use std::{
    cell::RefCell,
    panic::AssertUnwindSafe,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};
use wasm_bindgen::{JsValue, prelude::*};
use web_sys::AbortSignal;

/// Number of unread bytes at which reading pauses.
const HIGH_WATER: usize = 1 << 20;

#[wasm_bindgen(module = "/src/platform/cloudflare/streams.js")]
extern "C" {
    type Source;
    #[wasm_bindgen(constructor, catch)]
    fn new(
        stream: &JsValue,
        signal: &JsValue,
        deliver: &Closure<dyn FnMut(Vec<u8>) -> bool>,
        end: &Closure<dyn FnMut(JsValue)>,
    ) -> Result<Source, JsValue>;
    #[wasm_bindgen(method)]
    fn resume(this: &Source);
    #[wasm_bindgen(method, setter, js_name = mayReadAhead)]
    fn set_may_read_ahead(this: &Source, may: bool);
    #[wasm_bindgen(method, getter, js_name = isOver)]
    fn is_over(this: &Source) -> bool;
    #[wasm_bindgen(method)]
    fn release(this: &Source);

    /// Makes wakes of tasks cheaper. Called once per isolate.
    #[wasm_bindgen(js_name = useEngineMicrotasks)]
    pub fn use_engine_microtasks();
}

/// The pieces of a body. Dropping the stream leaves the rest unread; the connection must be closed separately.
pub struct BodyStream {
    source: Source,
    inbox: Rc<RefCell<Inbox>>,
    /// Until reading ahead has started.
    read_ahead: Option<ReadAhead>,
    /// The source calls them until it is released.
    _deliver: Closure<dyn FnMut(Vec<u8>) -> bool>,
    _end: Closure<dyn FnMut(JsValue)>,
}

/// What has arrived. The source writes it, so that reading does not leave wasm.
#[derive(Default)]
struct Inbox {
    bytes: Vec<u8>,
    is_paused: bool,
    is_over: bool,
    error: Option<HttpError>,
    waker: Option<Waker>,
}

impl BodyStream {
    /// Starts reading `stream`, chunk by chunk.
    ///
    /// # Errors
    /// If the stream already has a reader.
    pub fn new(stream: &JsValue) -> Result<Self, HttpError> {
        Self::start(stream, &JsValue::UNDEFINED, None)
    }

    /// Starts reading a stream that is read ahead once `read_ahead` has started. When the stream is dropped, `signal` must
    /// be aborted.
    ///
    /// # Errors
    /// As for [`BodyStream::new`].
    pub fn ahead(stream: &JsValue, signal: &AbortSignal, read_ahead: ReadAhead) -> Result<Self, HttpError> {
        Self::start(stream, signal, Some(read_ahead))
    }

    fn start(stream: &JsValue, signal: &JsValue, read_ahead: Option<ReadAhead>) -> Result<Self, HttpError> {
        let inbox = Rc::<RefCell<Inbox>>::default();
        // The closures only change the inbox, which a panic leaves complete.
        let own = AssertUnwindSafe(Rc::clone(&inbox));
        let deliver = Closure::new(move |bytes: Vec<u8>| {
            change(&own, |inbox| inbox.add(bytes));
            !own.borrow().is_paused
        });
        let own = AssertUnwindSafe(Rc::clone(&inbox));
        let end = Closure::new(move |error: JsValue| {
            let error = (!error.is_undefined()).then(|| refused(error));
            change(&own, |inbox| (inbox.is_over, inbox.error) = (true, error));
        });
        let source = Source::new(stream, signal, &deliver, &end).map_err(refused)?;
        Ok(Self { source, inbox, read_ahead, _deliver: deliver, _end: end })
    }

    /// Returns whether the body has arrived completely, even if not all of it was taken.
    pub fn is_complete(&self) -> bool {
        self.source.is_over()
    }
}

impl Inbox {
    fn add(&mut self, bytes: Vec<u8>) {
        if self.bytes.is_empty() {
            self.bytes = bytes;
        } else {
            self.bytes.extend_from_slice(&bytes);
        }
        self.is_paused = self.bytes.len() > HIGH_WATER;
    }
}

/// Changes the inbox, and then wakes the reader, which must not find it borrowed.
fn change(inbox: &RefCell<Inbox>, change: impl FnOnce(&mut Inbox)) {
    let waker = {
        let mut inbox = inbox.borrow_mut();
        change(&mut inbox);
        inbox.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl futures::Stream for BodyStream {
    type Item = Result<Bytes, HttpError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.read_ahead.take_if(|own| own.has_started()).is_some() {
            self.source.set_may_read_ahead(true);
        }
        let mut inbox = self.inbox.borrow_mut();
        if !inbox.bytes.is_empty() {
            if std::mem::take(&mut inbox.is_paused) {
                self.source.resume();
            }
            return Poll::Ready(Some(Ok(std::mem::take(&mut inbox.bytes).into())));
        }
        if inbox.is_over {
            return Poll::Ready(inbox.error.take().map(Err));
        }
        inbox.waker = Some(cx.waker().clone());
        Poll::Pending
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
