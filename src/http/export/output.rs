//! The body of a response that an async function writes.

use bytes::Bytes;
use futures::{
    FutureExt, StreamExt,
    stream::{self, LocalBoxStream},
};
use std::{cell::RefCell, future::poll_fn, rc::Rc, task::Poll};

/// The writing end: holds one piece until the reader takes it, so the writer is never ahead of the reader.
#[derive(Clone, Default)]
pub struct Output(Rc<RefCell<Option<Bytes>>>);

impl Output {
    /// Sends a piece. Completes when the reader wants the next one.
    pub async fn send(&self, piece: impl Into<Bytes>) {
        let piece = piece.into();
        if piece.is_empty() {
            return;
        }
        *self.0.borrow_mut() = Some(piece);
        // The reader polls the writer again after it has taken the piece.
        poll_fn(|_| if self.0.borrow().is_none() { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

/// Returns the pieces that `write` sends. Dropping the stream ends the writer.
pub fn written<F>(write: impl FnOnce(Output) -> F) -> LocalBoxStream<'static, Bytes>
where
    F: Future<Output = ()> + 'static,
{
    let output = Output::default();
    let mut writer = write(output.clone()).fuse().boxed_local();
    let mut is_over = false;
    stream::poll_fn(move |cx| {
        if !is_over && writer.poll_unpin(cx).is_ready() {
            is_over = true;
        }
        match output.0.borrow_mut().take() {
            Some(piece) => Poll::Ready(Some(piece)),
            None if is_over => Poll::Ready(None),
            None => Poll::Pending,
        }
    })
    .boxed_local()
}
