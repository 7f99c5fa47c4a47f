//! The store of tenants' secrets in memory.

use super::InMemoryDirectory;
use crate::ports::{
    Directory, SecretStore,
    directory::{DirectoryError, DirectoryResult},
    secret_store::{MAX_SECRETS, PutSecret},
};
use crate::types::{AuditEntry, SecretEntry, TenantId, Timestamp};
use async_trait::async_trait;
use std::{
    cell::{Cell, RefCell, RefMut},
    collections::BTreeMap,
    rc::Rc,
};

/// The store of tenants' secrets in memory.
pub struct InMemorySecrets {
    /// While set, every call fails.
    pub down: Cell<bool>,
    /// Number of calls so far.
    pub calls: Cell<usize>,
    /// Has the audit trail.
    directory: Rc<InMemoryDirectory>,
    secrets: RefCell<Secrets>,
}

type Secrets = BTreeMap<(TenantId, String), (SecretEntry, String)>;

impl InMemorySecrets {
    /// Creates an empty store that adds rows to the audit trail of this directory.
    pub fn new(directory: Rc<InMemoryDirectory>) -> Self {
        Self { down: Cell::default(), calls: Cell::default(), directory, secrets: RefCell::default() }
    }

    fn secrets(&self) -> DirectoryResult<RefMut<'_, Secrets>> {
        self.calls.set(self.calls.get() + 1);
        match self.down.get() {
            true => Err(DirectoryError("switched off".into())),
            false => Ok(self.secrets.borrow_mut()),
        }
    }
}

#[async_trait(?Send)]
impl SecretStore for InMemorySecrets {
    async fn list(&self, tenant: &TenantId) -> DirectoryResult<Vec<SecretEntry>> {
        let secrets = self.secrets()?;
        let own = secrets.iter().filter(|((of, _), _)| of == tenant);
        Ok(own.map(|(_, (entry, _))| entry.clone()).collect())
    }

    async fn encrypted(&self, tenant: &TenantId, name: &str) -> DirectoryResult<Option<String>> {
        let found = self.secrets()?.get(&(tenant.clone(), name.to_owned())).cloned();
        Ok(found.map(|(_, value)| value))
    }

    async fn put(
        &self,
        name: &str,
        encrypted: &str,
        now: Timestamp,
        audit: &AuditEntry,
    ) -> DirectoryResult<PutSecret> {
        let done = {
            let mut secrets = self.secrets()?;
            let others = secrets.keys().filter(|(of, own)| *of == audit.tenant && own != name).count();
            if others >= MAX_SECRETS {
                return Ok(PutSecret::Refused);
            }
            let key = (audit.tenant.clone(), name.to_owned());
            let old = secrets.get(&key).map(|(entry, _)| entry.created_at);
            let entry =
                SecretEntry { name: name.to_owned(), created_at: old.unwrap_or(now), updated_at: now };
            secrets.insert(key, (entry, encrypted.to_owned()));
            old.map_or(PutSecret::Created, |_| PutSecret::Replaced)
        };
        self.directory.append_audit(std::slice::from_ref(audit)).await?;
        Ok(done)
    }

    async fn delete(&self, name: &str, audit: &AuditEntry) -> DirectoryResult<bool> {
        if self.secrets()?.remove(&(audit.tenant.clone(), name.to_owned())).is_none() {
            return Ok(false);
        }
        self.directory.append_audit(std::slice::from_ref(audit)).await?;
        Ok(true)
    }

    async fn erase(&self, tenant: &TenantId) -> DirectoryResult<()> {
        self.secrets()?.retain(|(of, _), _| of != tenant);
        Ok(())
    }
}
