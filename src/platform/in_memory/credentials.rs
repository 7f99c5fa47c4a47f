//! Credentials that are valid until a test revokes them.

use crate::ports::Credentials;
use crate::ports::directory::{DirectoryError, DirectoryResult};
use crate::types::{Principal, Timestamp};
use async_trait::async_trait;
use std::cell::Cell;

/// Considers every credential valid.
#[derive(Default)]
pub struct InMemoryCredentials {
    /// While set, every call fails.
    pub down: Cell<bool>,
    /// While set, no credential is valid.
    pub revoked: Cell<bool>,
}

#[async_trait(?Send)]
impl Credentials for InMemoryCredentials {
    async fn renew(&self, caller: &Principal, until: Timestamp) -> DirectoryResult<Option<Principal>> {
        match (self.down.get(), self.revoked.get()) {
            (true, _) => Err(DirectoryError("switched off".into())),
            (false, true) => Ok(None),
            (false, false) => Ok(Some(Principal { valid_until: until, ..caller.clone() })),
        }
    }
}
