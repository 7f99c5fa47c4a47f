//! Time and randomness controlled by tests.

use crate::ports::{Clock, Entropy};
use crate::types::Timestamp;
use futures::future::{LocalBoxFuture, poll_fn};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// A clock that only moves when a test advances it.
#[derive(Clone, Default)]
pub struct ManualClock(Rc<State>);

#[derive(Default)]
struct State {
    now: Cell<Timestamp>,
    sleepers: RefCell<Vec<Waker>>,
}

impl ManualClock {
    /// Creates a clock that shows `now`.
    pub fn at(now: Timestamp) -> Self {
        let clock = Self::default();
        clock.0.now.set(now);
        clock
    }

    /// Advances the clock.
    pub fn advance(&self, span: Duration) {
        self.0.now.set(self.0.now.get() + span);
        self.0.sleepers.take().into_iter().for_each(Waker::wake);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.0.now.get()
    }

    fn sleep(&self, span: Duration) -> LocalBoxFuture<'static, ()> {
        let (state, due) = (self.0.clone(), self.0.now.get() + span);
        Box::pin(poll_fn(move |cx| {
            if state.now.get() >= due {
                return Poll::Ready(());
            }
            state.sleepers.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        }))
    }
}

/// Deterministic bytes that do not repeat within a run (SplitMix64).
#[derive(Default)]
pub struct SeededEntropy(Cell<u64>);

impl Entropy for SeededEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
            let mut z = self.0.get();
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..chunk.len()]);
        }
    }
}
