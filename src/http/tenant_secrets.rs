//! The secrets of tenants, encrypted with the operator's key. An isolate keeps a decrypted value for at most a minute.

use super::crypto::Cipher;
use crate::ports::{
    Clock, Entropy, Log, SecretStore, Secrets, directory::DirectoryResult, secret_store::PutSecret,
};
use crate::types::{AuditEntry, TenantId, expiring::Expiring};
use async_trait::async_trait;
use serde_json::json;
use std::{cell::Cell, rc::Rc, time::Duration};

/// How long an isolate uses a value that it has read.
const TTL: Duration = Duration::from_mins(1);
/// Maximum number of values that an isolate keeps.
const MAX_KEPT: usize = 200;

/// The secrets of all tenants.
pub struct TenantSecrets {
    store: Rc<dyn SecretStore>,
    clock: Rc<dyn Clock>,
    entropy: Rc<dyn Entropy>,
    log: Rc<dyn Log>,
    /// The operator's key, if there is one.
    admin_key: Option<String>,
    kept: Expiring<String>,
    /// Number of changes through this isolate.
    changes: Cell<u64>,
}

impl TenantSecrets {
    /// Creates the secrets of a deployment with this operator's key.
    pub fn new(
        store: Rc<dyn SecretStore>,
        clock: Rc<dyn Clock>,
        entropy: Rc<dyn Entropy>,
        log: Rc<dyn Log>,
        admin_key: Option<String>,
    ) -> Self {
        Self {
            store,
            clock,
            entropy,
            log,
            admin_key,
            kept: Expiring::new(MAX_KEPT),
            changes: Cell::default(),
        }
    }

    /// Returns the store.
    pub fn store(&self) -> &Rc<dyn SecretStore> {
        &self.store
    }

    /// Encrypts a value with a deployment's cipher, and stores it. Returns `None` if it cannot be encrypted.
    pub(super) async fn put(
        &self,
        cipher: &Cipher,
        name: &str,
        value: &str,
        audit: &AuditEntry,
    ) -> DirectoryResult<Option<PutSecret>> {
        let Some(encrypted) = cipher.encrypt(&*self.entropy, &context(&audit.tenant, name), value) else {
            return Ok(None);
        };
        let done = self.store.put(name, &encrypted, self.clock.now(), audit).await;
        self.forget(&audit.tenant, name);
        done.map(Some)
    }

    /// Deletes a secret. Returns `false` if it does not exist.
    pub(super) async fn delete(&self, name: &str, audit: &AuditEntry) -> DirectoryResult<bool> {
        let done = self.store.delete(name, audit).await;
        self.forget(&audit.tenant, name);
        done
    }

    /// Deletes all secrets of a tenant.
    pub(super) async fn erase(&self, tenant: &TenantId) -> DirectoryResult<()> {
        let done = self.store.erase(tenant).await;
        self.changes.set(self.changes.get() + 1);
        // A rare case, so the values of other tenants are read again.
        self.kept.retain(|_| false);
        done
    }

    /// Forgets a value, also one that is being read. A change that failed may have been made.
    fn forget(&self, tenant: &TenantId, name: &str) {
        self.changes.set(self.changes.get() + 1);
        self.kept.remove(&context(tenant, name));
    }
}

#[async_trait(?Send)]
impl Secrets for TenantSecrets {
    async fn get(&self, tenant: &TenantId, name: &str) -> DirectoryResult<Option<String>> {
        let (context, now) = (context(tenant, name), self.clock.now());
        if let Some(value) = self.kept.get(&context, now) {
            return Ok(Some(value));
        }
        let changes = self.changes.get();
        let encrypted = self.store.encrypted(tenant, name).await.inspect_err(|error| {
            let cause = error.to_string();
            self.log.error(
                &json!({ "event": "secret.not_read", "tenant": tenant, "name": name, "cause": cause }),
            );
        });
        let Some(encrypted) = encrypted? else { return Ok(None) };
        let cipher = self.admin_key.as_deref().map(Cipher::new);
        let Some(value) = cipher.and_then(|cipher| cipher.decrypt(&context, &encrypted)) else {
            let cause = "was the operator's key changed?";
            self.log.error(
                &json!({ "event": "secret.not_decrypted", "tenant": tenant, "name": name, "cause": cause }),
            );
            return Ok(None);
        };
        if changes == self.changes.get() {
            self.kept.put(context, value.clone(), now + TTL, now);
        }
        Ok(Some(value))
    }
}

/// Returns the context with which a secret is encrypted. Ids of tenants and names of secrets have no spaces.
fn context(tenant: &TenantId, name: &str) -> String {
    format!("secret {tenant} {name}")
}
