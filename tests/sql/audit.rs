//! The audit trail: a change and its row are one, and rows stay as they are.

use crate::sqlite::Sqlite;
use edge_harness::platform::sql::{
    Rows, Sql, Statement,
    audit::{add, expire, read, select},
    tenants::{
        LIMITS_DUE, create_key, create_tenant, delete_key, delete_tenant, limits_copied, update_tenant,
    },
};
use edge_harness::ports::directory::{ApiKey, Tenant};
use edge_harness::types::{
    Actor, AuditAction, AuditEntry, AuditId, AuditQuery, GeneratedId, Rules, Scopes, TenantId, TenantLimits,
    Timestamp,
};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use serde_json::{Map, Value, json};

/// In the year 2096, so that the rows are recent.
const NOW: u64 = 4_000_000_000_000;

fn row(n: u8, action: AuditAction) -> AuditEntry {
    let at = Timestamp(NOW + u64::from(n));
    AuditEntry {
        tenant: "acme".into(),
        id: AuditId::generate(at, &[n; 10]),
        at,
        actor: Actor::Operator,
        action,
        object: format!("object-{n}"),
        address: Some([192, 0, 2, n].into()),
        request_id: Some("req_1".into()),
        details: Map::from_iter([("changed".to_owned(), json!(["näme"]))]),
    }
}

fn tenant(name: &str, version: u64) -> Tenant {
    Tenant {
        id: "acme".into(),
        name: name.to_owned(),
        created_at: Timestamp(NOW),
        jwt: None,
        shard: None,
        spread: None,
        permissions: Rules::default(),
        limits: TenantLimits::default(),
        version,
    }
}

/// Runs the batch of a change. Returns whether the change was made.
fn change(database: &Sqlite, batch: Vec<Statement<'_>>) -> bool {
    let results = block_on(database.batch(&batch)).unwrap();
    !results[1].read::<Value>().unwrap().is_empty()
}

fn rows(database: &Sqlite, query: &AuditQuery) -> Vec<AuditEntry> {
    let tenant = TenantId::from("acme");
    read(&block_on(database.batch(&[select(&tenant, query)])).unwrap()[0]).unwrap()
}

fn all(database: &Sqlite) -> Vec<AuditEntry> {
    rows(database, &AuditQuery { limit: 100, ..AuditQuery::default() })
}

/// The state of tenants and keys.
fn stored(database: &Sqlite) -> Vec<String> {
    database.dump(
        "SELECT id, name, version, deleted_at IS NOT NULL FROM tenants UNION ALL SELECT tenant, id, name, hash FROM api_keys",
    )
}

#[test]
fn a_change_and_its_row_are_stored_together_or_not_at_all() {
    use AuditAction::{KeyCreated, KeyRevoked, TenantCreated, TenantDeleted, TenantUpdated};
    let database = Sqlite::new();
    let key = ApiKey {
        id: "key_1".into(),
        tenant: "acme".into(),
        name: "ci".to_owned(),
        scopes: Scopes::standard(),
        created_at: Timestamp(NOW),
        expires_at: None,
    };
    let mut expected: Vec<AuditEntry> = Vec::new();
    // Each change with whether it can be made at this point.
    let mut step = |entry: AuditEntry, batch: &dyn Fn(&AuditEntry) -> bool, made: bool| {
        let before = stored(&database);
        assert_eq!(batch(&entry), made, "{entry:?}");
        assert_eq!(stored(&database) != before, made, "{entry:?}");
        if made {
            expected.insert(0, entry);
        }
        assert_eq!(all(&database), expected);
    };
    let create = |entry: &AuditEntry| change(&database, create_tenant(&tenant("A", 1), entry).unwrap());
    let add_key = |entry: &AuditEntry| change(&database, create_key(&key, "hash", entry).unwrap());
    let revoke = |entry: &AuditEntry| change(&database, delete_key(&key.id, entry).unwrap());
    let delete = |entry: &AuditEntry| change(&database, delete_tenant(entry).unwrap());
    let update = |version: u64| {
        let database = database.clone();
        move |entry: &AuditEntry| {
            change(&database, update_tenant(&tenant("B", version + 1), version, entry).unwrap())
        }
    };
    for (n, (action, batch, made)) in [
        (TenantUpdated, &update(1) as &dyn Fn(&AuditEntry) -> bool, false),
        (KeyCreated, &add_key, false),
        (TenantDeleted, &delete, false),
        (TenantCreated, &create, true),
        (TenantCreated, &create, false),
        (TenantUpdated, &update(1), true),
        (TenantUpdated, &update(1), false),
        (KeyRevoked, &revoke, false),
        (KeyCreated, &add_key, true),
        (KeyRevoked, &revoke, true),
        (KeyRevoked, &revoke, false),
        (KeyCreated, &add_key, true),
        (TenantDeleted, &delete, true),
        (TenantDeleted, &delete, false),
        (TenantUpdated, &update(2), false),
        (KeyCreated, &add_key, false),
        (TenantCreated, &create, false),
    ]
    .into_iter()
    .enumerate()
    {
        step(row(n as u8, action), batch, made);
    }
    assert_eq!(stored(&database), ["acme|B|2|1"], "the keys are gone");
}

#[test]
fn a_row_can_be_neither_changed_nor_replaced_nor_deleted_for_400_days() {
    let database = Sqlite::new();
    let (entry, old) = (row(1, AuditAction::TenantCreated), row(2, AuditAction::TenantDeleted));
    let old = AuditEntry { at: Timestamp(1), id: AuditId::generate(Timestamp(1), &[2; 10]), ..old };
    let add = |entry: &AuditEntry| block_on(database.batch(&[add(std::slice::from_ref(entry)).unwrap()]));
    add(&entry).unwrap();
    add(&old).unwrap();
    let kept = [entry.clone(), old.clone()];
    assert_eq!(all(&database), kept);
    for (sql, refusal) in [
        ("UPDATE audit SET actor = 'x'", "cannot change"),
        ("UPDATE audit SET id = 'x'", "cannot change"),
        ("DELETE FROM audit", "cannot be deleted"),
    ] {
        let refused = block_on(database.batch(&[Statement::new(sql, [])])).map(drop).unwrap_err();
        assert!(refused.0.contains(refusal), "{refused}");
    }
    add(&AuditEntry { object: "other".to_owned(), ..entry.clone() }).unwrap();
    database.run_all(
        "INSERT OR REPLACE INTO audit SELECT tenant, id, at, 'x', action, object, address, request_id, details FROM audit;
         INSERT INTO audit SELECT * FROM audit WHERE true ON CONFLICT DO UPDATE SET actor = 'x';",
    );
    assert_eq!(all(&database), kept);

    block_on(database.batch(&[expire(Timestamp(1), 10)])).unwrap();
    assert_eq!(all(&database), [entry], "a row of 1970 can be deleted");
}

#[test]
fn rows_are_selected_by_time_action_and_cursor() {
    let database = Sqlite::new();
    let entries: Vec<_> = (0..5)
        .map(|n| row(n, if n == 2 { AuditAction::KeyRevoked } else { AuditAction::KeyCreated }))
        .collect();
    let other = AuditEntry { tenant: "other".into(), ..row(9, AuditAction::KeyCreated) };
    block_on(database.batch(&[add(&entries).unwrap(), add(&[other]).unwrap()])).unwrap();
    let query = AuditQuery { limit: 100, ..AuditQuery::default() };
    let numbers = |query: &AuditQuery| -> Vec<u64> {
        rows(&database, query).iter().map(|entry| entry.at.0 - NOW).collect()
    };
    assert_eq!(numbers(&query), [4, 3, 2, 1, 0]);
    let (from, to) = (Some(Timestamp(NOW + 1)), Some(Timestamp(NOW + 4)));
    assert_eq!(numbers(&AuditQuery { from, to, ..query.clone() }), [3, 2, 1]);
    let before = Some(entries[3].id.clone());
    assert_eq!(numbers(&AuditQuery { before, from, to, ..query.clone() }), [2, 1]);
    assert_eq!(numbers(&AuditQuery { action: Some(AuditAction::KeyRevoked), ..query.clone() }), [2]);
    assert_eq!(numbers(&AuditQuery { limit: 2, ..query }), [4, 3]);
}

#[test]
fn a_tenant_is_stored_with_the_number_of_its_shards() {
    let database = Sqlite::new();
    let wide = Tenant { spread: Some(3), ..tenant("A", 1) };
    let entry = row(1, AuditAction::TenantCreated);
    assert!(change(&database, create_tenant(&wide, &entry).unwrap()));
    assert_eq!(database.dump("SELECT spread FROM tenants"), ["3"]);
}

#[test]
fn limits_are_due_until_the_shards_have_them() {
    let database = Sqlite::new();
    let due = || database.dump(&format!("SELECT limits_due FROM tenants WHERE {LIMITS_DUE}"));
    let limited = |version: u64, files: Option<u64>| {
        let limits = TenantLimits { files, ..TenantLimits::default() };
        Tenant { limits, ..tenant("A", version) }
    };
    let entry = |n: u8| row(n, AuditAction::TenantUpdated);
    let update = |n: u8, tenant: &Tenant, read: u64| {
        assert!(change(&database, update_tenant(tenant, read, &entry(n)).unwrap()));
    };
    let copied = |tenant: &Tenant| drop(block_on(database.batch(&[limits_copied(tenant)])).unwrap());
    assert!(change(&database, create_tenant(&limited(1, Some(9)), &entry(1)).unwrap()));
    assert_eq!(due(), ["1"]);
    // Another change does not make them less due.
    update(2, &limited(2, Some(9)), 1);
    assert_eq!(due(), ["1"]);
    update(3, &limited(3, Some(8)), 2);
    copied(&limited(2, Some(9)));
    assert_eq!(due(), ["3"], "the shards have older limits");
    let moving = "INSERT INTO moves (tenant, id, source, target, phase, since, copied, started_at) \
                  VALUES ('acme', 'mov_1', 'DB', 'DB_1', 'copying', 1, 0, 1)";
    database.run_all(moving);
    assert!(due().is_empty(), "the shards would refuse them");
    database.run_all("UPDATE moves SET phase = 'done'");
    assert_eq!(due(), ["3"]);
    copied(&limited(3, Some(8)));
    update(4, &limited(4, Some(8)), 3);
    assert!(due().is_empty());
    update(5, &limited(5, None), 4);
    assert_eq!(due(), ["5"], "removed limits are copied, too");
}
