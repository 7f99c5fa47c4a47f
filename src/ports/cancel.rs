//! Cancellation of running work.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

/// A signal that asks running work to stop. Clones share the signal.
#[derive(Clone, Default)]
pub struct CancelToken(Rc<TokenState>);

#[derive(Default)]
struct TokenState {
    canceled: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl CancelToken {
    /// Returns whether the work was canceled.
    pub fn is_canceled(&self) -> bool {
        self.0.canceled.get()
    }

    /// Completes when the work is canceled.
    pub async fn canceled(&self) {
        poll_fn(|cx| {
            if self.is_canceled() {
                return Poll::Ready(());
            }
            let mut waiting = self.0.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// Cancels the work.
    pub fn cancel(&self) {
        self.0.canceled.set(true);
        self.0.waiting.take().into_iter().for_each(Waker::wake);
    }
}
