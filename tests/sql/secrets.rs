//! The store of tenants' secrets.

use crate::sqlite::Sqlite;
use edge_harness::platform::in_memory::{InMemoryDirectory, InMemorySecrets};
use edge_harness::platform::sql::SqlSecrets;
use edge_harness::ports::{
    SecretStore,
    secret_store::{MAX_SECRETS, PutSecret},
};
use edge_harness::types::{Actor, AuditAction, AuditEntry, AuditId, TenantId, Timestamp};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::Map;
use std::{cell::Cell, rc::Rc};

/// A store, with the number of rows of its audit trail.
struct Stage {
    store: Rc<dyn SecretStore>,
    rows: Cell<u32>,
}

impl Stage {
    /// The same stage over SQLite, and in memory.
    fn both() -> [Self; 2] {
        let in_memory = InMemorySecrets::new(Rc::new(InMemoryDirectory::default()));
        let stores: [Rc<dyn SecretStore>; 2] = [Rc::new(SqlSecrets(Sqlite::new())), Rc::new(in_memory)];
        stores.map(Self::of)
    }

    fn of(store: Rc<dyn SecretStore>) -> Self {
        Self { store, rows: Cell::default() }
    }

    fn audit(&self, tenant: &str) -> AuditEntry {
        self.rows.set(self.rows.get() + 1);
        AuditEntry {
            tenant: tenant.into(),
            id: AuditId::from(format!("aud_{}", self.rows.get())),
            at: Timestamp(1),
            actor: Actor::Operator,
            action: AuditAction::SecretStored,
            object: "A".into(),
            address: None,
            request_id: None,
            details: Map::new(),
        }
    }

    fn put(&self, tenant: &str, name: &str, value: &str, at: u64) -> PutSecret {
        block_on(self.store.put(name, value, Timestamp(at), &self.audit(tenant))).unwrap()
    }

    fn value(&self, tenant: &str, name: &str) -> Option<String> {
        block_on(self.store.encrypted(&TenantId::from(tenant), name)).unwrap()
    }

    fn listed(&self, tenant: &str) -> Vec<(String, u64, u64)> {
        let all = block_on(self.store.list(&TenantId::from(tenant))).unwrap();
        all.into_iter().map(|entry| (entry.name, entry.created_at.0, entry.updated_at.0)).collect()
    }

    fn delete(&self, tenant: &str, name: &str) -> bool {
        block_on(self.store.delete(name, &self.audit(tenant))).unwrap()
    }
}

#[test]
fn a_secret_is_created_replaced_and_deleted() {
    for stage in Stage::both() {
        assert_eq!(stage.put("acme", "B", "b", 1), PutSecret::Created);
        assert_eq!(stage.put("acme", "A", "a", 1), PutSecret::Created);
        assert_eq!(stage.put("acme", "B", "c", 1), PutSecret::Replaced);
        assert_eq!(stage.put("acme", "B", "d", 5), PutSecret::Replaced);
        assert_eq!(stage.listed("acme"), [("A".to_owned(), 1, 1), ("B".to_owned(), 1, 5)]);
        assert_eq!(stage.value("acme", "B").as_deref(), Some("d"));
        assert!(stage.delete("acme", "B") && !stage.delete("acme", "B"));
        assert_eq!((stage.value("acme", "B"), stage.listed("acme").len()), (None, 1));
    }
}

#[test]
fn a_tenant_has_a_limited_number_and_sees_only_its_own() {
    for stage in Stage::both() {
        for count in 0..MAX_SECRETS {
            assert_eq!(stage.put("acme", &format!("S{count}"), "x", 1), PutSecret::Created);
        }
        assert_eq!(stage.put("acme", "MORE", "x", 1), PutSecret::Refused);
        assert_eq!(stage.put("acme", "S3", "y", 2), PutSecret::Replaced);
        assert_eq!(stage.put("globex", "S3", "z", 3), PutSecret::Created);
        assert_eq!(stage.value("globex", "S3").as_deref(), Some("z"));
        assert_eq!(stage.value("globex", "S4"), None);
        assert!(!stage.delete("globex", "S4"));
        block_on(stage.store.erase(&"acme".into())).unwrap();
        assert_eq!((stage.listed("acme").len(), stage.listed("globex").len()), (0, 1));
    }
}

#[test]
fn each_change_has_its_row_and_a_deleted_tenant_gets_no_secrets() {
    let sqlite = Sqlite::new();
    sqlite.run_all("INSERT INTO tenants (id, name, created_at, deleted_at) VALUES ('gone', '', 1, 2)");
    let stage = Stage::of(Rc::new(SqlSecrets(sqlite.clone())));
    assert_eq!(stage.put("gone", "A", "a", 1), PutSecret::Refused);
    assert!(!stage.delete("acme", "A"));
    assert_eq!(sqlite.dump("SELECT object FROM audit"), Vec::<String>::new());
    assert_eq!(stage.put("acme", "A", "a", 1), PutSecret::Created);
    assert!(stage.delete("acme", "A"));
    assert_eq!(sqlite.dump("SELECT count(*) FROM audit"), ["2"]);
}
