//! The isolate's cache of credentials, so that a request does not read the directory each time. It is bounded
//! and short-lived: a revoked key may work for one more minute in other isolates, and no longer.

use super::crypto::sha256_hex;
use super::failure_limit::FailureLimit;
use super::jwk::Jwk;
use crate::types::expiring::Expiring;
use crate::types::{Principal, TenantId, Timestamp};
use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Duration;

/// How long the caller of a credential is cached at most. Open streams are checked every 15 seconds, so a stream ends
/// at most a minute after its key was revoked.
pub const CREDENTIAL_TTL: Duration = Duration::from_secs(45);
/// How long a key is cached as unknown at most.
pub const UNKNOWN_KEY_TTL: Duration = Duration::from_secs(5);
/// How long an issuer is cached as unknown at most.
pub const UNKNOWN_ISSUER_TTL: Duration = Duration::from_mins(1);

const MAX_CREDENTIALS: usize = 1_000;
const MAX_KEY_SETS: usize = 100;

/// The cache of one isolate, shared by its requests.
pub struct AuthCache {
    /// Callers by the hash of their key or token.
    pub(super) callers: Expiring<Principal>,
    /// Hashes of unknown keys. They are separate from the callers, so that guessed keys cannot evict those.
    pub(super) unknown: Expiring<()>,
    /// Hashes of issuers that no tenant trusts, so that their tokens cause no queries.
    pub(super) unknown_issuers: Expiring<()>,
    /// The failed credentials of clients.
    pub(super) failures: FailureLimit,
    /// Key sets by the URL that publishes them.
    pub(super) key_sets: Expiring<KeySet>,
    /// The issuers of tenants, by the name of the tenant; `None` for a tenant without one.
    pub(super) issuers: Expiring<Option<Rc<str>>>,
    /// The key that signs tickets. It does not change as long as the operator's key stays the same.
    pub(super) ticket_key: OnceCell<Rc<str>>,
}

/// A published set of keys.
#[derive(Clone)]
pub(super) struct KeySet {
    /// The keys; `None` when they could not be fetched.
    pub keys: Option<Rc<[Jwk]>>,
    /// When the cached set expires.
    pub ends_at: Timestamp,
    /// When the set was last fetched again for a key that it did not have.
    pub refetched_at: Option<Timestamp>,
}

impl Default for AuthCache {
    fn default() -> Self {
        Self {
            callers: Expiring::new(MAX_CREDENTIALS),
            unknown: Expiring::new(MAX_CREDENTIALS),
            unknown_issuers: Expiring::new(MAX_CREDENTIALS),
            failures: FailureLimit::default(),
            key_sets: Expiring::new(MAX_KEY_SETS),
            issuers: Expiring::new(MAX_CREDENTIALS),
            ticket_key: OnceCell::new(),
        }
    }
}

impl AuthCache {
    /// Removes all callers of a tenant, because the tenant or one of its keys changed.
    pub fn forget_tenant(&self, tenant: &TenantId) {
        self.callers.retain(|caller| caller.tenant != *tenant);
    }

    /// Forgets that an issuer is unknown, and which tenants have which, because a tenant now trusts it.
    pub(super) fn forget_issuer(&self, issuer: &str) {
        self.issuers.retain(|_| false);
        self.unknown_issuers.remove(&sha256_hex(issuer.as_bytes()));
    }
}
