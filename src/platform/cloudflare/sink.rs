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

/// Maximum number of pieces that are written together. The records of a commit are fewer.
const MAX_TOGETHER: usize = 8;

/// Returns the body of a response that sends `pieces`. When the reader leaves, `pieces` is dropped.
pub fn streamed(pieces: ByteReceiver) -> web_sys::ReadableStream {
    let sink = Sink::new();
    let readable = sink.readable();
    spawn_local(async move {
        let mut left = JsFuture::from(sink.left());
        // Each write costs as much as a few hundred bytes, so what is ready is written at once.
        let mut pieces = pieces.ready_chunks(MAX_TOGETHER);
        while let Either::Left((ready, _)) = select(pieces.next(), &mut left).await {
            let Some(ready) = ready else { return sink.close() };
            let (mut bytes, mut failure) = (Vec::new(), None);
            for piece in ready {
                match piece {
                    Ok(piece) => bytes.extend_from_slice(&piece),
                    Err(error) => failure = Some(error),
                }
            }
            let may_go_on = bytes.is_empty() || sink.write(&Uint8Array::from(bytes.as_slice()));
            if let Some(error) = failure {
                return sink.abort(&error.to_string());
            }
            if !may_go_on {
                // The rest stays with the sender, which limits how much may wait for one reader.
                let _ = JsFuture::from(sink.drained()).await;
            }
        }
    });
    readable
}
