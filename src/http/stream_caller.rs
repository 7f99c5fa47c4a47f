//! The caller of a stream that stays open for long.

use super::credentials::DirectoryCredentials;
use crate::ports::{Clock, Credentials};
use crate::session::hub::Interrupted;
use crate::types::{Principal, Scope, TenantId};
use std::rc::Rc;

/// The caller of an open stream. Its credential is checked again when the last check has expired.
pub(super) struct StreamCaller {
    principal: Principal,
    credentials: DirectoryCredentials,
    clock: Rc<dyn Clock>,
}

impl StreamCaller {
    /// Creates the caller of a stream that begins now.
    pub fn new(principal: &Principal, credentials: DirectoryCredentials, clock: &Rc<dyn Clock>) -> Self {
        Self { principal: principal.clone(), credentials, clock: Rc::clone(clock) }
    }

    /// Returns the caller's tenant.
    pub fn tenant(&self) -> &TenantId {
        &self.principal.tenant
    }

    /// Returns whether the credential is still valid, and allows reading.
    ///
    /// # Errors
    /// The credential cannot be checked.
    pub async fn may_read(&mut self) -> Result<bool, Interrupted> {
        let now = self.clock.now();
        if self.principal.valid_until > now {
            return Ok(true);
        }
        let renewed = self.credentials.renew(&self.principal, now).await.map_err(|_| Interrupted)?;
        let Some(principal) = renewed.filter(|principal| principal.scopes.allow(Scope::Read)) else {
            return Ok(false);
        };
        self.principal = principal;
        Ok(true)
    }
}
