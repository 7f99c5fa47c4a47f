//! Signals: Ctrl-C, and the request to end.

use crate::error::{Error, Result};
use tokio::signal;

/// Listens to Ctrl-C.
pub struct Interrupts(#[cfg(unix)] signal::unix::Signal);

impl Interrupts {
    /// Begins to listen: from now on Ctrl-C does not end the process.
    ///
    /// # Errors
    /// A system without signals.
    pub fn listen() -> Result<Self> {
        Ok(Self(
            #[cfg(unix)]
            signal::unix::signal(signal::unix::SignalKind::interrupt())?,
        ))
    }

    /// Waits for the next Ctrl-C.
    pub async fn next(&mut self) {
        #[cfg(unix)]
        self.0.recv().await;
        #[cfg(not(unix))]
        let _ = signal::ctrl_c().await;
    }

    /// Does work that Ctrl-C ends.
    ///
    /// # Errors
    /// `Interrupted`, and those of the work.
    pub async fn unless<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            result = work => result,
            () = self.next() => Err(Error::Interrupted),
        }
    }
}

/// Waits until the process is to end, so that a command can restore the terminal first.
pub async fn terminated() {
    #[cfg(unix)]
    if let (Ok(mut end), Ok(mut hang_up)) = (
        signal::unix::signal(signal::unix::SignalKind::terminate()),
        signal::unix::signal(signal::unix::SignalKind::hangup()),
    ) {
        tokio::select! {
            _ = end.recv() => return,
            _ = hang_up.recv() => return,
        }
    }
    std::future::pending().await
}
