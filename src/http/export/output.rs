//! The body of a response that an async function writes.

use crate::session::hub::{ByteReceiver, Interrupted};
use bytes::Bytes;
use futures::{
    SinkExt, StreamExt,
    channel::mpsc,
    future::ready,
    stream::{self, select},
};

/// The writing end: holds one piece until the reader takes it, so that the writer is never far ahead of the reader.
pub struct Output(mpsc::Sender<Bytes>);

impl Output {
    /// Sends a piece. Completes when there is room for the next one.
    pub async fn send(&mut self, piece: impl Into<Bytes>) {
        let piece = piece.into();
        if !piece.is_empty() {
            // It fails only if the reader has left, and then the writer is dropped.
            let _ = self.0.send(piece).await;
        }
    }
}

/// Returns the pieces that `write` sends, and its error. Dropping the stream ends the writer.
pub fn written<F>(write: impl FnOnce(Output) -> F) -> ByteReceiver
where
    F: Future<Output = Result<(), Interrupted>> + 'static,
{
    let (sender, pieces) = mpsc::channel(0);
    let writer = stream::once(write(Output(sender))).filter_map(|result| ready(result.err().map(Err)));
    select(pieces.map(Ok), writer).boxed_local()
}
