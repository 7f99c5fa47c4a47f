//! Serves the local calls of a session while another command runs.

use super::{Journal, Server, SessionCalls, machine::Machine};
use crate::{
    api::Api,
    error::{Error, Result},
};
use std::pin::pin;

/// Runs the local calls of a session on this machine while `work` lasts.
///
/// # Errors
/// Those of the work, and those of the runner.
pub(crate) async fn serve_beside(
    api: &Api,
    session: &str,
    machine: &Machine,
    work: impl Future<Output = Result<()>>,
) -> Result<()> {
    let journal = Journal::open(&machine.journal(api, session)?)?;
    let (leave, left) = tokio::sync::oneshot::channel::<()>();
    let stop = async {
        // The work has ended when the other side is dropped.
        let _ = left.await;
    };
    let calls = SessionCalls::new(api, session, |_| ());
    let mut serving = pin!(Server::new(api, machine, calls, journal, |_| ()).serve(stop));
    let (mut work, mut failed) = (pin!(work), None);
    // A runner that fails must not end the work, which may have to restore the terminal.
    let ended = loop {
        tokio::select! {
            ended = &mut work => break ended,
            result = &mut serving, if failed.is_none() => failed = Some(result),
        }
    };
    drop(leave);
    let served = match failed {
        Some(result) => result,
        None => serving.await,
    };
    match served {
        Err(Error::Interrupted) => ended,
        other => ended.and(other),
    }
}
