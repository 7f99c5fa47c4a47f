//! Checks credentials again: of tickets on use, and of streams and WebSockets while they are open.

use super::auth_cache::{AuthCache, CREDENTIAL_TTL, UNKNOWN_KEY_TTL};
use crate::ports::directory::DirectoryResult;
use crate::ports::{Clock, Credentials, Directory};
use crate::types::{KeyId, Principal, Scopes, TenantId, TenantPolicy, Timestamp};
use async_trait::async_trait;
use std::rc::Rc;

/// The tenant of the development key.
pub const DEV_TENANT: &str = "dev";
/// The id of the development key, in records of who decided something.
pub(super) const DEV_KEY: &str = "dev";

/// Checks credentials in the directory, through the cache of the isolate.
pub struct DirectoryCredentials {
    /// Tenants and keys.
    pub directory: Rc<dyn Directory>,
    /// The clock.
    pub clock: Rc<dyn Clock>,
    /// The isolate's cache of credentials.
    pub cache: Rc<AuthCache>,
}

#[async_trait(?Send)]
impl Credentials for DirectoryCredentials {
    async fn renew(&self, caller: &Principal, until: Timestamp) -> DirectoryResult<Option<Principal>> {
        let now = self.clock.now();
        let is_over = caller.expires_at.is_some_and(|end| end <= now);
        let issuer = if is_over { None } else { self.issuer(caller, until, now).await? };
        Ok(issuer.map(|issuer| Principal {
            scopes: caller.scopes.clone().within(&issuer.scopes),
            policy: issuer.policy,
            valid_until: earlier(issuer.valid_until, caller.expires_at),
            ..caller.clone()
        }))
    }
}

impl DirectoryCredentials {
    /// Returns the key that the caller holds, or the tenant that accepts its token, as a caller with every scope
    /// that the credential can have.
    async fn issuer(
        &self,
        caller: &Principal,
        until: Timestamp,
        now: Timestamp,
    ) -> DirectoryResult<Option<Principal>> {
        // The slashes keep this name apart from hashes of credentials in the same caches.
        let name = match &caller.key {
            Some(key) => format!("tenant/{}/key/{key}", caller.tenant),
            None => format!("tenant/{}", caller.tenant),
        };
        let known = self.cache.callers.get(&name, now);
        if let Some(known) = known.filter(|known| known.valid_until >= until) {
            return Ok(Some(known));
        }
        if self.cache.unknown.get(&name, now).is_some() {
            return Ok(None);
        }
        let Some((scopes, policy, end)) = self.find(&caller.tenant, caller.key.as_ref(), now).await? else {
            self.cache.callers.remove(&name);
            self.cache.unknown.put(name, (), now + UNKNOWN_KEY_TTL, now);
            return Ok(None);
        };
        let valid_until = valid_until(now, end);
        let found = Principal { policy, valid_until, ..Principal::new(caller.tenant.clone(), scopes) };
        self.cache.callers.put(name, found.clone(), valid_until, now);
        Ok(Some(found))
    }

    /// Reads a key, or a tenant that accepts tokens. Returns the scopes, the tenant's policy, and when the key
    /// expires.
    async fn find(
        &self,
        tenant: &TenantId,
        key: Option<&KeyId>,
        now: Timestamp,
    ) -> DirectoryResult<Option<(Scopes, TenantPolicy, Option<Timestamp>)>> {
        Ok(match key {
            // The development key and its tenant have no row.
            Some(key) if (tenant.as_str(), key.as_str()) == (DEV_TENANT, DEV_KEY) => {
                Some((Scopes::all(), TenantPolicy::default(), None))
            }
            Some(key) => {
                let found = self.directory.key(tenant, key, now).await?;
                found.map(|(key, policy)| (key.scopes, policy, key.expires_at))
            }
            None => {
                let found = self.directory.tenant(tenant).await?;
                found
                    .and_then(|tenant| Some((tenant.jwt.as_ref()?.max_scopes.clone(), tenant.policy(), None)))
            }
        })
    }
}

/// Returns until when a credential that was found valid at `now`, and ends at `end`, need not be checked again.
pub(super) fn valid_until(now: Timestamp, end: Option<Timestamp>) -> Timestamp {
    earlier(now + CREDENTIAL_TTL, end)
}

fn earlier(at: Timestamp, end: Option<Timestamp>) -> Timestamp {
    end.map_or(at, |end| end.min(at))
}
