//! Credentials of requests that are still being served, such as event streams.

use super::directory::DirectoryResult;
use crate::types::{Principal, Timestamp};
use async_trait::async_trait;

/// Finds out whether a caller's credential is still valid.
///
/// ```
/// # use edge_harness::ports::{Clock, Credentials, directory::DirectoryResult};
/// # use edge_harness::types::Principal;
/// async fn is_valid(credentials: &dyn Credentials, caller: &Principal, clock: &dyn Clock) -> DirectoryResult<bool> {
///     Ok(credentials.renew(caller, clock.now()).await?.is_some())
/// }
/// ```
#[async_trait(?Send)]
pub trait Credentials {
    /// Returns the caller with its present scopes, its tenant's present rules, and a new
    /// [`Principal::valid_until`]; `None` when its key, token, or tenant is no longer valid. An earlier result is
    /// returned only if it is valid at `until`.
    async fn renew(&self, caller: &Principal, until: Timestamp) -> DirectoryResult<Option<Principal>>;
}
