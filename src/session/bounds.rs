//! What the session's row may hold for others: it is rewritten at each commit, so it stays small.

use super::{Draft, encode};
use crate::ports::StoreError;
use crate::types::{ErrorCode, EventKind, Problem};
use thiserror::Error;

/// Most records that wait for a message that is being written.
pub const MAX_DEFERRED: usize = 1_000;
/// Most bytes of them; one record may always wait.
pub const MAX_DEFERRED_BYTES: usize = 4 << 20;

/// Why a change that came from outside did not happen.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// Too much waits already.
    #[error("too many changes wait for the message that is being written to end")]
    Busy,
    /// The store broke.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Busy => {
                let problem = Self::new(ErrorCode::RateLimited, refused.to_string());
                Self { retry_after_s: Some(1), ..problem }
            }
            Refused::Store(error) => Self::internal(error.to_string()),
        }
    }
}

/// Whether the records of `change` may wait in the state with those that wait there.
pub(super) fn may_wait(change: &Draft) -> Result<(), Refused> {
    let waiting = change.state.deferred.iter().map(|(_, kind)| kind);
    if waiting.len() + change.records.len() > MAX_DEFERRED {
        return Err(Refused::Busy);
    }
    if !change.state.deferred.is_empty() {
        let new = change.records.iter().map(|(_, _, kind)| kind);
        let bytes = |kind: &EventKind| encode(kind).map(|json| json.len());
        let all = waiting.chain(new).map(bytes).sum::<Result<usize, _>>()?;
        if all > MAX_DEFERRED_BYTES {
            return Err(Refused::Busy);
        }
    }
    Ok(())
}
