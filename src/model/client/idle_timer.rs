//! Detects a silent stream with a single timer.

use crate::{
    ports::Clock,
    types::{ModelError, ModelErrorKind},
};
use futures::{FutureExt, future::LocalBoxFuture};
use std::time::Duration;
use std::{
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
};

/// Limits how long futures may take. A timer per chunk would cost a call into the platform per token, so one
/// timer keeps running: when it fires, it either reports the timeout or is set again for the time left.
pub(super) struct IdleTimer {
    clock: Rc<dyn Clock>,
    timer: LocalBoxFuture<'static, ()>,
    /// Maximum duration of the timer. Not longer than the shortest guarded timeout, so that the timer never
    /// fires late.
    longest: Duration,
}

impl IdleTimer {
    pub(super) fn new(clock: Rc<dyn Clock>, longest: Duration) -> Self {
        let timer = clock.sleep(longest);
        Self { clock, timer, longest }
    }

    /// Awaits `work` for at most `limit`.
    pub(super) async fn guard<F: Future>(
        &mut self,
        limit: Duration,
        work: F,
    ) -> Result<F::Output, ModelError> {
        let deadline = self.clock.now() + limit;
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            while self.timer.poll_unpin(cx).is_ready() {
                let left = deadline.since(self.clock.now());
                if left.is_zero() {
                    // A finished timer must not be polled again.
                    self.timer = self.clock.sleep(self.longest);
                    return Poll::Ready(Err(stalled(limit)));
                }
                self.timer = self.clock.sleep(left.min(self.longest));
            }
            Poll::Pending
        })
        .await
    }
}

fn stalled(limit: Duration) -> ModelError {
    ModelError::new(ModelErrorKind::Stalled, format!("silent for {} seconds", limit.as_secs()))
}
