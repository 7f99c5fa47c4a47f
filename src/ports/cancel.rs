//! Stopping work that is not needed any more.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

/// Tells running work to stop.
#[derive(Clone, Default)]
pub struct CancelToken(Rc<TokenState>);

#[derive(Default)]
struct TokenState {
    canceled: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl CancelToken {
    /// Whether the work is over.
    pub fn is_canceled(&self) -> bool {
        self.0.canceled.get()
    }

    /// Completes when the work is over.
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

    /// Ends it.
    pub fn cancel(&self) {
        self.0.canceled.set(true);
        self.0.waiting.take().into_iter().for_each(Waker::wake);
    }
}
