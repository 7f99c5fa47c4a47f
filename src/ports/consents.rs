//! What is stored about the consent of users at other servers: tokens, registered clients, and open requests for consent.
//! All values are encrypted.

use super::directory::DirectoryResult;
use crate::types::{ConsentGiven, TenantId, Timestamp, UserId};
use async_trait::async_trait;

/// What a row holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConsentKind {
    /// The token of a user for a server.
    Token,
    /// The client that a tenant has registered with an authorization server.
    Client,
    /// A request for consent that the user has not answered.
    Request,
}

impl ConsentKind {
    /// Returns the stored name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Client => "client",
            Self::Request => "request",
        }
    }
}

/// The key of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConsentKey {
    /// The tenant.
    pub tenant: TenantId,
    /// The user; `None` for what belongs to the tenant.
    pub user: Option<UserId>,
    /// What the row holds.
    pub kind: ConsentKind,
    /// The server, the authorization server, or the hash of the state of a request.
    pub name: String,
}

/// An encrypted value, and the number of its changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// The value.
    pub value: String,
    /// The number of changes.
    pub version: u64,
}

/// The store of consent.
///
/// ```
/// # use edge_harness::ports::{consents::{ConsentKey, ConsentKind, ConsentStore}, directory::DirectoryResult};
/// # use edge_harness::types::{TenantId, UserId};
/// async fn is_connected(store: &dyn ConsentStore, tenant: TenantId, user: UserId) -> DirectoryResult<bool> {
///     let name = "https://crm.example.com/mcp".to_owned();
///     let key = ConsentKey { tenant, user: Some(user), kind: ConsentKind::Token, name };
///     Ok(store.get(&key).await?.is_some())
/// }
/// ```
#[async_trait(?Send)]
pub trait ConsentStore {
    /// Returns a value.
    async fn get(&self, key: &ConsentKey) -> DirectoryResult<Option<Sealed>>;
    /// Stores a value in place of an earlier one, and drops the requests of the tenant that have expired. Stores nothing
    /// for a tenant that is being deleted.
    async fn put(
        &self,
        key: &ConsentKey,
        value: &str,
        expires_at: Option<Timestamp>,
        now: Timestamp,
    ) -> DirectoryResult<()>;
    /// Replaces a value that has not changed since this version. Returns whether it did.
    async fn replace(&self, key: &ConsentKey, value: &str, version: u64) -> DirectoryResult<bool>;
    /// Deletes a value that has not changed since this version.
    async fn delete(&self, key: &ConsentKey, version: u64) -> DirectoryResult<()>;
    /// Returns a request that has not expired, with its key.
    async fn request(&self, name: &str, now: Timestamp) -> DirectoryResult<Option<(ConsentKey, Sealed)>>;
    /// Stores a token in place of a request that has not changed since this version, and returns whether it did. So no token
    /// outlives an erasure, which deletes the request.
    async fn redeem(
        &self,
        request: &ConsentKey,
        version: u64,
        token: &ConsentKey,
        value: &str,
    ) -> DirectoryResult<bool>;
    /// Lists up to `limit` tokens of a tenant, or of one of its users, without the tokens themselves: those after this one, in the
    /// order of users and servers.
    async fn tokens(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        after: Option<&ConsentGiven>,
        limit: usize,
    ) -> DirectoryResult<Vec<ConsentGiven>>;
    /// Deletes all values of a tenant, or of one of its users.
    async fn erase(&self, tenant: &TenantId, user: Option<&UserId>) -> DirectoryResult<()>;
}

/// Encrypts values before they are stored.
pub trait Sealer {
    /// Encrypts `text`, which can be decrypted only with the same `context`; `None` if the deployment has no key for it.
    fn seal(&self, context: &str, text: &str) -> Option<String>;
    /// Decrypts a value; `None` if the key or the context differs.
    fn open(&self, context: &str, sealed: &str) -> Option<String>;
}
