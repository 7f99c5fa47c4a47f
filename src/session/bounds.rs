//! Limits on deferred records. They are part of the state, which is rewritten at each commit.

use super::{Draft, encode};
use crate::ports::StoreError;
use crate::types::{ErrorCode, EventKind, Problem};
use thiserror::Error;

/// Maximum number of records deferred while a message is being streamed.
pub const MAX_DEFERRED: usize = 1_000;
/// Maximum size of the deferred records in bytes. A single record may always be deferred.
pub const MAX_DEFERRED_BYTES: usize = 4 << 20;

/// Why a change from outside was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// Too many records are deferred.
    #[error("too many changes are waiting for the message that is being streamed")]
    Busy,
    /// The store failed.
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

/// Checks whether the records of `change` may be deferred along with the earlier ones.
pub(super) fn check_deferred(change: &Draft) -> Result<(), Refused> {
    let waiting = change.state.activity.deferred.iter().map(|(_, kind)| kind);
    if waiting.len() + change.records.len() > MAX_DEFERRED {
        return Err(Refused::Busy);
    }
    if !change.state.activity.deferred.is_empty() {
        let new = change.records.iter().map(|(_, kind)| kind);
        let bytes = |kind: &EventKind| encode(kind).map(|json| json.len());
        let all = waiting.chain(new).map(bytes).sum::<Result<usize, _>>()?;
        if all > MAX_DEFERRED_BYTES {
            return Err(Refused::Busy);
        }
    }
    Ok(())
}
