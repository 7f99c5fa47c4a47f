//! Notices silence with one timer.

use crate::{
    ports::Clock,
    types::{ModelError, ModelErrorKind},
};
use futures::{FutureExt, future::LocalBoxFuture};
use std::{
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
};

/// Bounds waits. A timer per chunk would be a call into the platform per token; so one timer runs
/// on, and when it fires it looks whether there was silence and is armed again if not.
pub(super) struct Watchdog {
    clock: Rc<dyn Clock>,
    timer: LocalBoxFuture<'static, ()>,
    /// No longer than the shortest wait that is guarded, so that it never fires too late.
    longest_ms: u64,
}

impl Watchdog {
    pub(super) fn new(clock: Rc<dyn Clock>, longest_ms: u64) -> Self {
        let timer = clock.sleep(longest_ms);
        Self { clock, timer, longest_ms }
    }

    /// Awaits `work` for `limit_ms`.
    pub(super) async fn guard<F: Future>(&mut self, limit_ms: u64, work: F) -> Result<F::Output, ModelError> {
        let deadline = self.clock.now().plus(limit_ms);
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            while self.timer.poll_unpin(cx).is_ready() {
                let left = deadline.since(self.clock.now());
                if left == 0 {
                    // Fused by hand: a finished timer must not be polled again.
                    self.timer = self.clock.sleep(self.longest_ms);
                    return Poll::Ready(Err(stalled(limit_ms)));
                }
                self.timer = self.clock.sleep(left.min(self.longest_ms));
            }
            Poll::Pending
        })
        .await
    }
}

fn stalled(limit_ms: u64) -> ModelError {
    ModelError::new(ModelErrorKind::Stalled, format!("silent for {} seconds", limit_ms / 1000))
}
