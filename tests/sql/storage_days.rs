//! What tenants stored on each day.

use crate::sqlite::Sqlite;
use edge_harness::platform::sql::{
    Sql,
    storage_days::{PAGE, Progress, read_days, record, select_days},
};
use edge_harness::types::{Day, StorageUse, TenantId};
use futures::executor::block_on;
use pretty_assertions::assert_eq;

fn day(text: &str) -> Day {
    Day::parse(text).unwrap()
}

/// Runs until the day's rows of these shards are complete. Returns the number of pages.
fn record_all(root: &Sqlite, shards: &[(&str, &Sqlite)], day: Day) -> usize {
    let mut pages = 0;
    loop {
        let progress = block_on(Progress::read(root, day)).unwrap();
        let left = shards.iter().find_map(|(name, shard)| Some((*name, *shard, progress.after(name)?)));
        let Some((name, shard, after)) = left else { return pages };
        block_on(record(root, (name, shard), day, after)).unwrap();
        pages += 1;
    }
}

fn stored(root: &Sqlite, tenant: &str) -> Vec<(Day, StorageUse)> {
    let (tenant, from, to) = (TenantId::from(tenant), day("2020-01-01"), day("2030-01-01"));
    let results = block_on(root.batch(&[select_days(&tenant, from, to)])).unwrap();
    read_days(&results[0]).unwrap()
}

#[test]
fn each_day_has_the_sum_of_all_shards() {
    let (root, other) = (Sqlite::new(), Sqlite::new());
    root.run_all(
        "INSERT INTO tenant_storage (tenant, files, file_bytes) VALUES ('acme', 2, 30), ('b', 1, 1)",
    );
    other.run_all("INSERT INTO tenant_storage (tenant, memory_rows, memory_bytes) VALUES ('acme', 4, 50)");
    let shards = [("DB", &root), ("DB_1", &other)];
    assert_eq!(record_all(&root, &shards, day("2026-11-20")), 2);
    assert_eq!(record_all(&root, &shards, day("2026-11-20")), 0, "a day is recorded once");
    root.run_all("UPDATE tenant_storage SET file_bytes = 31 WHERE tenant = 'acme'");
    assert_eq!(record_all(&root, &shards, day("2026-11-22")), 2);
    let use_of =
        |file_bytes| StorageUse { files: 2, file_bytes, memory_rows: 4, memory_bytes: 50, sessions: 0 };
    assert_eq!(stored(&root, "acme"), [(day("2026-11-20"), use_of(30)), (day("2026-11-22"), use_of(31))]);
    assert_eq!(stored(&root, "b").len(), 2);
    assert_eq!(stored(&root, "c"), []);
}

#[test]
fn a_repeated_page_changes_nothing_and_a_deleted_tenant_has_no_row() {
    let root = Sqlite::new();
    root.run_all(
        "INSERT INTO tenants (id, name, created_at, deleted_at) VALUES ('gone', '', 1, 2), ('here', '', 1, NULL); \
         INSERT INTO tenant_storage (tenant, files, file_bytes) VALUES ('gone', 1, 1), ('here', 1, 7)",
    );
    let today = day("2026-11-20");
    for _ in 0..2 {
        block_on(record(&root, ("DB", &root), today, "")).unwrap();
    }
    let used = StorageUse { files: 1, file_bytes: 7, ..StorageUse::default() };
    assert_eq!((stored(&root, "gone"), stored(&root, "here")), (vec![], vec![(today, used)]));
}

#[test]
fn many_tenants_need_several_pages_and_old_days_are_dropped() {
    let root = Sqlite::new();
    let tenants: Vec<String> = (0..=2 * PAGE).map(|number| format!("('t{number:05}', 1)")).collect();
    root.run_all(&format!("INSERT INTO tenant_storage (tenant, sessions) VALUES {}", tenants.join(", ")));
    let [first, last] = ["t00000".to_owned(), format!("t{:05}", 2 * PAGE)];
    for (text, days) in [("2025-10-16", 1), ("2025-10-17", 2), ("2026-11-20", 2)] {
        assert_eq!(record_all(&root, &[("DB", &root)], day(text)), 3);
        assert_eq!((stored(&root, &first).len(), stored(&root, &last).len()), (days, days), "{text}");
    }
}
