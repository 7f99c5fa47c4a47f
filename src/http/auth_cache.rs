//! What an isolate remembers of credentials, so that a call does not pay a read of the directory
//! each time. Plain data, bounded, and short-lived: a revoked key may work for another minute in
//! other isolates, never longer.

use super::expiring::Expiring;
use super::jwks::KeySet;
use crate::types::{Principal, TenantId};

/// The longest that anything learnt about a credential is believed.
pub const KEPT_MS: u64 = 60_000;
/// The longest that an unknown key counts as unknown.
pub const UNKNOWN_KEPT_MS: u64 = 5_000;

const MAX_CREDENTIALS: usize = 1_000;
const MAX_KEY_SETS: usize = 100;

/// The memory of one isolate, shared by its requests.
pub struct AuthCache {
    /// Callers by the hash of the key or token that they showed.
    pub(super) callers: Expiring<Principal>,
    /// Hashes that no key has. Apart from the callers, so that guessing cannot crowd them out.
    pub(super) unknown: Expiring<()>,
    /// Key sets by the URL that publishes them.
    pub(super) key_sets: Expiring<KeySet>,
}

impl Default for AuthCache {
    fn default() -> Self {
        Self {
            callers: Expiring::new(MAX_CREDENTIALS),
            unknown: Expiring::new(MAX_CREDENTIALS),
            key_sets: Expiring::new(MAX_KEY_SETS),
        }
    }
}

impl AuthCache {
    /// Forgets everything learnt about a tenant's credentials: something about it changed.
    pub fn forget_tenant(&self, tenant: &TenantId) {
        self.callers.retain(|caller| caller.tenant != *tenant);
    }
}
