//! Ctrl-C.

use crate::error::Result;
use tokio::signal;

/// Counts how often the user has pressed Ctrl-C.
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
}
