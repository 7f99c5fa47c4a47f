//! Writes the bodies of responses piece by piece; see `streams.js`.

use crate::session::hub::ByteReceiver;
use futures::{
    StreamExt,
    future::{Either, select},
};
use js_sys::{Promise, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, spawn_local};

#[wasm_bindgen(module = "/src/platform/cloudflare/streams.js")]
extern "C" {
    type Sink;
    #[wasm_bindgen(constructor)]
    fn new() -> Sink;
    #[wasm_bindgen(method, getter)]
    fn readable(this: &Sink) -> web_sys::ReadableStream;
    #[wasm_bindgen(method, getter)]
    fn left(this: &Sink) -> Promise;
    #[wasm_bindgen(method)]
    fn write(this: &Sink, bytes: &Uint8Array) -> bool;
    #[wasm_bindgen(method)]
    fn drained(this: &Sink) -> Promise;
    #[wasm_bindgen(method)]
    fn close(this: &Sink);
    #[wasm_bindgen(method)]
    fn abort(this: &Sink, reason: &str);
}

/// Returns the body of a response that sends `pieces`. When the reader leaves, `pieces` is dropped.
pub fn streamed(mut pieces: ByteReceiver) -> web_sys::ReadableStream {
    let sink = Sink::new();
    let readable = sink.readable();
    spawn_local(async move {
        let mut left = JsFuture::from(sink.left());
        while let Either::Left((piece, _)) = select(pieces.next(), &mut left).await {
            let piece = match piece {
                Some(Ok(piece)) => piece,
                Some(Err(error)) => return sink.abort(&error.to_string()),
                None => return sink.close(),
            };
            if !sink.write(&Uint8Array::from(piece.as_ref())) {
                // The rest stays with the sender, which limits how much may wait for one reader.
                let _ = JsFuture::from(sink.drained()).await;
            }
        }
    });
    readable
}
