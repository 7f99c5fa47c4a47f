//! Time, chance, log lines, and work that outlives requests.

use crate::ports::{Clock, Entropy, Log, Spawner};
use crate::types::Timestamp;
use futures::{FutureExt, future::LocalBoxFuture};
use std::{rc::Rc, time::Duration};
use worker::{Delay, State};

/// The platform's clock. It stands still while the CPU works, and moves with I/O.
pub struct WorkerClock;

#[cfg(feature = "fixtures")]
thread_local! {
    static OFFSET: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Lets the isolate live so many milliseconds later, for tests that need another day.
#[cfg(feature = "fixtures")]
pub fn shift_clock(ms: Option<String>) {
    OFFSET.set(ms.and_then(|ms| ms.parse().ok()).unwrap_or_default());
}

impl Clock for WorkerClock {
    fn now(&self) -> Timestamp {
        // A whole number of milliseconds, far below 2^53.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let now = Timestamp(js_sys::Date::now() as u64);
        #[cfg(feature = "fixtures")]
        let now = now.plus(OFFSET.get());
        now
    }

    fn sleep(&self, ms: u64) -> LocalBoxFuture<'static, ()> {
        Delay::from(Duration::from_millis(ms)).boxed_local()
    }
}

/// WebCrypto's random bytes.
pub struct WorkerEntropy;

impl Entropy for WorkerEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        // Fails only without WebCrypto, which every Worker has.
        let _ = getrandom::fill(buffer);
    }
}

/// Lines for Workers Logs.
pub struct ConsoleLog;

impl Log for ConsoleLog {
    fn line(&self, json: &serde_json::Value) {
        worker::console_log!("{json}");
    }
}

/// Work of one object.
pub struct ObjectSpawner(pub Rc<State>);

impl Spawner for ObjectSpawner {
    fn spawn(&self, work: LocalBoxFuture<'static, ()>) {
        self.0.wait_until(work);
    }

    fn wake_after(&self, ms: u64) {
        let storage = self.0.storage();
        self.0.wait_until(async move {
            if let Err(error) = storage.set_alarm(Duration::from_millis(ms)).await {
                worker::console_error!("the alarm cannot be set: {error}");
            }
        });
    }

    fn let_sleep(&self) {
        let storage = self.0.storage();
        self.0.wait_until(async move {
            if let Err(error) = storage.delete_alarm().await {
                worker::console_error!("the alarm cannot be taken back: {error}");
            }
        });
    }
}
