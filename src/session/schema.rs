//! The version of the stored shapes of a session.

use crate::ports::StoreError;
use crate::types::{ErrorCode, Problem, session::SCHEMA};
use serde::Deserialize;
use thiserror::Error;

/// Why a session cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// A newer version has written it. Nothing of it may be changed.
    #[error(
        "the session was written by a newer version of the server: schema {0}, but this version reads {SCHEMA}"
    )]
    Newer(u32),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<OpenError> for Problem {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Newer(_) => {
                Self { retry_after_s: Some(60), ..Self::new(ErrorCode::NewerSession, error.to_string()) }
            }
            OpenError::Store(error) => error.into(),
        }
    }
}

/// Returns the version of a state document. Works even if the rest of it cannot be parsed.
///
/// # Errors
/// [`OpenError::Newer`] if this version cannot read it.
pub(super) fn check(state: &str) -> Result<u32, OpenError> {
    #[derive(Deserialize)]
    struct Version {
        /// The first version wrote none.
        #[serde(default = "first")]
        schema: u32,
    }
    fn first() -> u32 {
        1
    }
    match serde_json::from_str(state) {
        Ok(Version { schema }) if schema > SCHEMA => Err(OpenError::Newer(schema)),
        Ok(Version { schema }) => Ok(schema),
        Err(_) => Ok(first()),
    }
}
