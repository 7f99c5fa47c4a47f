//! The storage limits of a tenant, in the statements that write.

use crate::sqlite::{JsonRows, Sqlite};
use edge_harness::platform::in_memory::MemoryFiles;
use edge_harness::platform::sql::{
    Rows, Sql, Statement,
    storage::{put_file, read_quota, read_use, select_use, set_limits},
};
use edge_harness::ports::{
    FileError, FileTable,
    filesystem::{Content, Entry, FileResult, Precondition, Row, Tree},
};
use edge_harness::types::{FilePath, StorageLimits, StorageQuota, StorageUse, TenantId, Timestamp, UserId};
use futures::executor::block_on;
use pretty_assertions::assert_eq;
use proptest::{option, prelude::*, sample::select};
use serde_json::Value;

fn run(database: &Sqlite, statement: Statement<'_>) -> JsonRows {
    block_on(database.batch(&[statement])).unwrap().remove(0)
}

/// Writes as the adapter does.
fn put(
    database: &Sqlite,
    limits: &StorageLimits,
    tree: &Tree,
    row: &Row,
    condition: &Precondition,
) -> FileResult<bool> {
    let [put, refused] = put_file(limits, tree, row, condition);
    if !run(database, put).read::<Value>().unwrap().is_empty() {
        return Ok(true);
    }
    read_quota(&run(database, refused)).unwrap().map_or(Ok(false), |quota| Err(quota.into()))
}

fn row(path: &str, text: &str) -> Row {
    let entry = Entry {
        path: FilePath::parse(path).unwrap(),
        bytes: text.len() as u64,
        etag: format!("etag {text}"),
        updated_at: Timestamp(1),
    };
    Row { entry, content: Content::Inline(text.to_owned().into()) }
}

fn tree(tenant: &str, scope: &str) -> Tree {
    Tree { tenant: tenant.into(), scope: scope.to_owned() }
}

fn used(database: &Sqlite, tenant: &str) -> StorageUse {
    read_use(&run(database, select_use(&TenantId::from(tenant), None))).unwrap()
}

#[test]
fn the_limits_of_a_tenant_take_precedence_and_stale_ones_are_ignored() {
    let (database, tenant) = (Sqlite::new(), TenantId::from("t"));
    let files = |files| StorageLimits { files: Some(files), ..StorageLimits::default() };
    let write = |path: &str| {
        put(&database, &files(1), &tree("t", "agents/a/shared"), &row(path, "x"), &Precondition::Any)
    };
    let refused = Err(FileError::Quota(StorageQuota::Files));
    assert_eq!((write("a"), write("b")), (Ok(true), refused.clone()));
    run(&database, set_limits(&tenant, &files(2), 7));
    run(&database, set_limits(&tenant, &files(9), 6));
    assert_eq!((write("b"), write("c"), write("a")), (Ok(true), refused.clone(), Ok(true)));
    run(&database, set_limits(&tenant, &StorageLimits::default(), 8));
    assert_eq!(write("c"), refused, "the default applies again");
    assert_eq!(used(&database, "t"), StorageUse { files: 2, file_bytes: 2, ..StorageUse::default() });
    assert_eq!(used(&database, "new"), StorageUse::default());
}

#[test]
fn memory_counts_toward_the_bytes() {
    let database = Sqlite::new();
    database.run_all("INSERT INTO tenant_storage (tenant, memory_bytes) VALUES ('t', 90)");
    let limits = StorageLimits { storage_bytes: Some(100), ..StorageLimits::default() };
    let write = |tenant: &str, text: &str| {
        put(&database, &limits, &tree(tenant, "agents/a/shared"), &row("a", text), &Precondition::Any)
    };
    assert_eq!(write("t", &"x".repeat(10)), Ok(true));
    assert_eq!(write("t", &"x".repeat(11)), Err(FileError::Quota(StorageQuota::StorageBytes)));
    assert_eq!(write("t", "short"), Ok(true));
    assert_eq!(
        write("other", &"x".repeat(101)),
        Err(FileError::Quota(StorageQuota::StorageBytes)),
        "the first write"
    );
}

#[test]
fn what_a_user_stores_is_counted() {
    let database = Sqlite::new();
    database.run_all(
        "INSERT INTO files VALUES ('t', 'agents/a/users/u', 'x', 'e', 3, 1, 'text', 'abc'),
           ('t', 'agents/b/users/u', 'y', 'e', 1, 1, 'text', 'y'),
           ('t', 'agents/a/users/v', 'z', 'e', 9, 1, 'text', 'z'),
           ('other', 'agents/a/users/u', 'z', 'e', 9, 1, 'text', 'z');
         INSERT INTO memory_collections (id, tenant, user, agent, kind, documents, bytes)
           VALUES (1, 't', 'u', 'a', 'facts', 2, 40), (2, 't', 'v', 'a', 'facts', 5, 50);
         INSERT INTO sessions (tenant, id, user, agent, created_at, updated_at, parent)
           VALUES ('t', '1', 'u', 'a', 1, 1, NULL), ('t', '2', 'u', 'a', 1, 1, '1'), ('t', '3', 'v', 'a', 1, 1, NULL);",
    );
    let (tenant, user) = (TenantId::from("t"), UserId::from("u"));
    let own = read_use(&run(&database, select_use(&tenant, Some(&user)))).unwrap();
    let expected = StorageUse { files: 2, file_bytes: 4, memory_rows: 2, memory_bytes: 40, sessions: 1 };
    assert_eq!(own, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn writes_and_limits_match_the_twin(
        max in (option::of(0_u64..5), option::of(0_u64..20)),
        writes in prop::collection::vec((
            select(&["agents/a/shared", "agents/b/users/u"][..]), select(&["a", "b", "c"][..]), 0_usize..9,
            select(&["any", "create", "match", "stale"][..]),
        ), 1..20),
    ) {
        let limits = StorageLimits { files: max.0, storage_bytes: max.1, ..StorageLimits::default() };
        let (database, twin) = (Sqlite::new(), MemoryFiles::default());
        twin.limits.set(limits);
        for (scope, path, length, condition) in writes {
            let (tree, row) = (tree("t", scope), row(path, &"x".repeat(length)));
            let old = block_on(twin.rows(&tree, std::slice::from_ref(&row.entry.path))).unwrap();
            let condition = match (condition, old.first()) {
                ("create", _) => Precondition::CreateOnly,
                ("match", Some(old)) => Precondition::IfMatch(old.entry.etag.clone()),
                ("stale", _) => Precondition::IfMatch("stale".into()),
                _ => Precondition::Any,
            };
            prop_assert_eq!(put(&database, &limits, &tree, &row, &condition), block_on(twin.put(&tree, &row, &condition)));
            let rows = twin.all();
            let file_bytes = rows.iter().map(|(_, row)| row.entry.bytes).sum();
            let files = rows.len() as u64;
            prop_assert_eq!(used(&database, "t"), StorageUse { files, file_bytes, ..StorageUse::default() });
        }
    }
}
