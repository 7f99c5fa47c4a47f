//! Time, randomness, log lines and background tasks.

use crate::ports::{Clock, Entropy, Log, Spawner};
use crate::types::Timestamp;
use futures::{FutureExt, future::LocalBoxFuture};
use js_sys::Reflect;
use serde_json::json;
use std::{panic::PanicHookInfo, rc::Rc, time::Duration};
use worker::{Delay, State};

/// The platform's clock. It advances only with I/O, not while code runs.
pub struct WorkerClock;

#[cfg(feature = "fixtures")]
thread_local! {
    static OFFSET: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Shifts this isolate's clock by `ms` milliseconds, for tests that need another day.
#[cfg(feature = "fixtures")]
pub fn shift_clock(ms: Option<String>) {
    OFFSET.set(ms.and_then(|ms| ms.parse().ok()).unwrap_or_default());
}

impl Clock for WorkerClock {
    fn now(&self) -> Timestamp {
        // An integer number of milliseconds, far below 2^53.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let now = Timestamp(js_sys::Date::now() as u64);
        #[cfg(feature = "fixtures")]
        let now = now + Duration::from_millis(OFFSET.get());
        now
    }

    fn sleep(&self, span: Duration) -> LocalBoxFuture<'static, ()> {
        Delay::from(span).boxed_local()
    }
}

/// Random bytes from WebCrypto.
pub struct WorkerEntropy;

impl Entropy for WorkerEntropy {
    fn fill(&self, buffer: &mut [u8]) {
        // Keys and ids made of zeros would be worse than no answer. It fails only without WebCrypto, which every Worker
        // has.
        if getrandom::fill(buffer).is_err() {
            std::process::abort();
        }
    }
}

/// Log lines for Workers Logs.
pub struct ConsoleLog;

impl Log for ConsoleLog {
    fn line(&self, json: &serde_json::Value) {
        worker::console_log!("{json}");
    }

    fn error(&self, json: &serde_json::Value) {
        worker::console_error!("{json}");
    }
}

/// Logs a panic, with the JavaScript stack.
pub fn log_panic(panic: &PanicHookInfo) {
    let message = panic.payload_as_str().unwrap_or_default();
    let location = panic.location().map(ToString::to_string);
    let stack = Reflect::get(&js_sys::Error::new(message), &"stack".into()).ok();
    let stack = stack.and_then(|stack| stack.as_string());
    ConsoleLog.error(&json!({ "event": "panic", "cause": message, "location": location, "stack": stack }));
}

/// Background tasks and the alarm of one object.
pub struct ObjectSpawner(pub Rc<State>);

impl Spawner for ObjectSpawner {
    fn spawn(&self, work: LocalBoxFuture<'static, ()>) {
        self.0.wait_until(work);
    }

    fn wake_after(&self, delay: Duration) {
        let storage = self.0.storage();
        self.0.wait_until(async move {
            if let Err(error) = storage.set_alarm(delay).await {
                ConsoleLog.error(&json!({ "event": "alarm.not_set", "cause": error.to_string() }));
            }
        });
    }

    fn let_sleep(&self) {
        let storage = self.0.storage();
        self.0.wait_until(async move {
            if let Err(error) = storage.delete_alarm().await {
                ConsoleLog.error(&json!({ "event": "alarm.not_deleted", "cause": error.to_string() }));
            }
        });
    }
}
