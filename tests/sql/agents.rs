//! The store of agents' definitions.

use crate::sqlite::Sqlite;
use edge_harness::platform::in_memory::{InMemoryAgents, InMemoryDirectory};
use edge_harness::platform::sql::SqlAgents;
use edge_harness::ports::{
    AgentStore,
    agents::{KEPT_DELETED, KEPT_VERSIONS},
};
use edge_harness::types::{
    Actor, AgentEntry, AgentId, AgentSummary, AgentVersion, Approver, AuditAction, AuditEntry, AuditId,
    StoredVersion, TenantId, Timestamp,
};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Map, json};
use std::{cell::Cell, rc::Rc};

/// A store, with the number of rows of its audit trail.
struct Stage {
    store: Rc<dyn AgentStore>,
    rows: Cell<u32>,
}

fn tenant() -> TenantId {
    "acme".into()
}

fn agent() -> AgentId {
    "support".into()
}

impl Stage {
    /// The same stage over SQLite, and in memory.
    fn both() -> [Self; 2] {
        let in_memory = InMemoryAgents::new(Rc::new(InMemoryDirectory::default()));
        let stores: [Rc<dyn AgentStore>; 2] = [Rc::new(SqlAgents(Sqlite::new())), Rc::new(in_memory)];
        stores.map(|store| Self { store, rows: Cell::default() })
    }

    fn audit(&self) -> AuditEntry {
        self.rows.set(self.rows.get() + 1);
        AuditEntry {
            tenant: tenant(),
            id: AuditId::from(format!("aud_{}", self.rows.get())),
            at: Timestamp(1),
            actor: Actor::Operator,
            action: AuditAction::AgentUpdated,
            object: "support".into(),
            address: None,
            request_id: None,
            details: Map::new(),
        }
    }

    fn entry(&self) -> Option<AgentEntry> {
        block_on(self.store.list(&tenant())).unwrap().pop()
    }

    fn summary(&self) -> AgentSummary {
        block_on(self.store.summaries(&tenant())).unwrap().pop().unwrap()
    }

    fn put(&self, number: u32, read: Option<&AgentEntry>) -> bool {
        self.put_agent(&agent(), number, read)
    }

    fn put_agent(&self, agent: &AgentId, number: u32, read: Option<&AgentEntry>) -> bool {
        let definition = json!({"name": format!("Name {number}"), "instructions": "x"});
        let new = StoredVersion {
            version: AgentVersion(number),
            definition: definition.as_object().unwrap().clone(),
            created_at: Timestamp(u64::from(number)),
            created_by: Approver { user: Some("ann".into()), key: None },
        };
        block_on(self.store.put(agent, &new, read, &self.audit())).unwrap()
    }
}

#[test]
fn a_change_is_made_only_if_the_agent_is_as_it_was_read() {
    for stage in Stage::both() {
        assert!(stage.put(1, None));
        assert!(!stage.put(1, None), "it exists");
        let first = stage.entry().unwrap();
        assert_eq!((first.active.0, first.newest.0), (1, 1));
        let listed = stage.summary();
        assert_eq!((&listed.entry, listed.name.as_deref()), (&first, Some("Name 1")));
        assert!(listed.bytes > 20);
        assert!(stage.put(2, Some(&first)));
        assert!(!stage.put(3, Some(&first)), "it has changed");
        let second = stage.entry().unwrap();
        assert!(!block_on(stage.store.activate(&first, AgentVersion(1), &stage.audit())).unwrap());
        assert!(block_on(stage.store.activate(&second, AgentVersion(1), &stage.audit())).unwrap());
        let back = stage.entry().unwrap();
        assert_eq!((back.active.0, back.newest.0), (1, 2));
        assert_eq!(stage.summary().name.as_deref(), Some("Name 1"));
        assert!(!block_on(stage.store.delete(&second, Timestamp(9), &stage.audit())).unwrap());
        assert!(block_on(stage.store.delete(&back, Timestamp(9), &stage.audit())).unwrap());
        let deleted = stage.entry().unwrap();
        assert_eq!(deleted.deleted_at, Some(Timestamp(9)));
        let read = |number| {
            block_on(stage.store.version(&tenant(), &agent(), AgentVersion(number))).unwrap().is_some()
        };
        assert!(read(1) && !read(2), "only the active version is kept");
        assert!(stage.put(3, Some(&deleted)));
        assert_eq!(stage.entry().unwrap().deleted_at, None);
    }
}

#[test]
fn versions_are_listed_newest_first_and_old_ones_are_dropped() {
    for stage in Stage::both() {
        for number in 1..=KEPT_VERSIONS as u32 + 3 {
            let read = stage.entry();
            assert!(stage.put(number, read.as_ref()));
        }
        let page = |before| block_on(stage.store.versions(&tenant(), &agent(), before, 100)).unwrap();
        let numbers: Vec<u32> = page(None).iter().map(|stored| stored.version.0).collect();
        assert_eq!((numbers.len(), numbers[0], numbers[KEPT_VERSIONS - 1]), (KEPT_VERSIONS, 53, 4));
        assert_eq!(page(Some(AgentVersion(6))).len(), 2);
        assert_eq!(page(None)[0].created_by.user.as_deref(), Some("ann"));
        let whole = block_on(stage.store.version(&tenant(), &agent(), AgentVersion(50))).unwrap().unwrap();
        assert_eq!(whole.definition["name"], "Name 50");
    }
}

#[test]
fn the_agents_that_were_deleted_first_are_removed() {
    for stage in Stage::both() {
        let ids: Vec<AgentId> =
            (0..KEPT_DELETED + 2).map(|number| format!("a{number:03}").as_str().into()).collect();
        let list = || block_on(stage.store.list(&tenant())).unwrap();
        for id in &ids {
            assert!(stage.put_agent(id, 1, None));
        }
        for (time, entry) in (1..).zip(list().iter().rev()) {
            assert!(block_on(stage.store.delete(entry, Timestamp(time), &stage.audit())).unwrap());
        }
        let kept: Vec<AgentId> = list().into_iter().map(|entry| entry.id).collect();
        assert_eq!(kept, ids[..KEPT_DELETED]);
        let is_stored =
            |id: &AgentId| block_on(stage.store.version(&tenant(), id, AgentVersion(1))).unwrap().is_some();
        assert!(is_stored(&ids[0]) && !is_stored(&ids[KEPT_DELETED]));
    }
}

#[test]
fn tenants_do_not_see_each_others_agents_and_erasure_removes_all() {
    for stage in Stage::both() {
        assert!(stage.put(1, None));
        let other: TenantId = "globex".into();
        assert_eq!(block_on(stage.store.list(&other)).unwrap(), []);
        assert_eq!(block_on(stage.store.version(&other, &agent(), AgentVersion(1))).unwrap(), None);
        block_on(stage.store.erase(&other)).unwrap();
        assert!(stage.entry().is_some());
        block_on(stage.store.erase(&tenant())).unwrap();
        assert_eq!(stage.entry(), None);
        assert_eq!(block_on(stage.store.version(&tenant(), &agent(), AgentVersion(1))).unwrap(), None);
    }
}

#[test]
fn a_deleted_tenant_gets_no_agents() {
    let sqlite = Sqlite::new();
    sqlite.run_all("INSERT INTO tenants (id, name, created_at, deleted_at) VALUES ('acme', '', 1, 2)");
    let stage = Stage { store: Rc::new(SqlAgents(sqlite)), rows: Cell::default() };
    assert!(!stage.put(1, None));
    assert_eq!(stage.entry(), None);
}
