//! Migrations keep existing rows correct.

use crate::sqlite::Sqlite;
use edge_harness::platform::sql::{PROBE, Sql, Statement};
use futures::executor::block_on;
use pretty_assertions::assert_eq;

/// Rows of a schema with tenants and files, before shards and counts.
const ROWS: &str = "
INSERT INTO tenants (id, name, created_at) VALUES ('t', 'Old', 1);
INSERT INTO tenants (id, name, created_at, deleted_at) VALUES ('gone', 'Deleted', 1, 2);
INSERT INTO sessions (tenant, id, user, agent, created_at, updated_at) VALUES ('t', 'ses_1', 'u', 'a', 1, 1);
INSERT INTO files (tenant, scope, path, etag, bytes, updated_at, kind, content) VALUES
  ('t', 'agents/a/users/u', 'x', 'e', 1, 1, 'text', 'x'),
  ('t', 'agents/a/users/u', 'y', 'e', 1, 1, 'text', 'y'),
  ('t', 'agents/b/users/u', 'x', 'e', 1, 1, 'blob', 'key'),
  ('t', 'agents/a/shared', 'x', 'e', 1, 1, 'text', 'x'),
  ('t', 'agents/a/sessions/ses_1', 'x', 'e', 1, 1, 'text', 'x'),
  ('s', 'agents/a/users/u', 'x', 'e', 1, 1, 'text', 'x');
";

#[test]
fn old_tenants_stay_on_their_shard_and_their_files_are_counted() {
    let database = Sqlite::upgraded(2, ROWS);
    assert_eq!(database.dump("SELECT id, shard FROM tenants ORDER BY id"), ["gone|DB", "t|DB"]);
    let trees = || database.dump("SELECT tenant, scope, owner, files FROM file_trees ORDER BY 1, 2");
    assert_eq!(
        trees(),
        [
            "s|agents/a/users/u|users/u|1",
            "t|agents/a/sessions/ses_1|sessions/ses_1|1",
            "t|agents/a/shared|shared|1",
            "t|agents/a/users/u|users/u|2",
            "t|agents/b/users/u|users/u|1",
        ]
    );
    assert_eq!(database.dump("SELECT last FROM memory_serial"), ["0"]);

    // Later changes update the counts, and a new tenant gets its shard from its id.
    database.run_all(
        "INSERT INTO tenants (id, name, created_at) VALUES ('new', 'New', 3);
         INSERT INTO files VALUES ('t', 'agents/a/users/u', 'z', 'e', 1, 1, 'text', 'z');
         DELETE FROM files WHERE scope IN ('agents/a/shared', 'agents/b/users/u');
         DELETE FROM files WHERE tenant = 's';",
    );
    assert_eq!(database.dump("SELECT shard FROM tenants WHERE id = 'new'"), ["null"]);
    assert_eq!(trees(), ["t|agents/a/sessions/ses_1|sessions/ses_1|1", "t|agents/a/users/u|users/u|3"]);
    assert_eq!(database.dump("SELECT tenant, blob FROM free_blobs"), ["t|key"]);
}

/// Memory of a schema before storage was counted.
const MEMORY: &str = "
INSERT INTO memory_collections (id, tenant, user, agent, kind, documents, length, groups) VALUES
  (1, 't', 'u', 'a', 'facts', 2, 4, 2), (2, 't', 'u', 'a', 'turns', 0, 0, 0);
INSERT INTO memory_groups VALUES (1, 'd1', 1, 1, 5, 1, 1), (1, 'd2', 1, 1, 7, 2, 1);
INSERT INTO memory_entries (collection, serial, key, part, source, grp, position, at, length, text) VALUES
  (1, 1, 'k1', 0, 'log', 'd1', 0, 1, 2, 'likes'), (1, 2, 'k2', 0, 'log', 'd2', 0, 1, 2, 'häßlic');
INSERT INTO memory_terms (rowid, terms) VALUES (1, 'c1_likes'), (2, 'c1_x');
INSERT INTO sessions (tenant, id, user, agent, created_at, updated_at, parent) VALUES ('t', 'child', 'u', 'a', 1, 1, 'ses_1');
";

#[test]
fn what_a_tenant_stores_is_counted() {
    let database = Sqlite::upgraded(10, &format!("{ROWS}{MEMORY}"));
    let used = || {
        database.dump(
            "SELECT tenant, files, file_bytes, memory_rows, memory_bytes, sessions FROM tenant_storage ORDER BY 1",
        )
    };
    assert_eq!(used(), ["s|1|1|0|0|0", "t|5|5|2|12|1"]);
    assert_eq!(database.dump("SELECT sum(bytes) FROM file_trees WHERE owner = 'users/u'"), ["4"]);
    assert_eq!(database.dump("SELECT bytes FROM memory_collections ORDER BY id"), ["12", "0"]);

    // The statements of a Worker before the migration.
    database.run_all(
        "INSERT INTO files VALUES ('new', 'agents/a/shared', 'z', 'e', 3, 1, 'text', 'zzz');
         UPDATE files SET bytes = 10, content = 'xxxxxxxxxx' WHERE tenant = 't' AND scope = 'agents/a/shared';
         UPDATE files SET path = 'moved' WHERE tenant = 't' AND scope = 'agents/a/shared';
         DELETE FROM files WHERE tenant = 's';
         DELETE FROM memory_entries WHERE serial = 1;
         INSERT INTO sessions (tenant, id, user, agent, created_at, updated_at) VALUES ('t', 'ses_2', 'u', 'a', 1, 1)
           ON CONFLICT DO NOTHING;
         INSERT INTO sessions (tenant, id, user, agent, created_at, updated_at) VALUES ('t', 'ses_2', 'u', 'a', 1, 2)
           ON CONFLICT (tenant, id) DO UPDATE SET updated_at = excluded.updated_at;
         DELETE FROM sessions WHERE id IN ('ses_1', 'child');",
    );
    assert_eq!(used(), ["new|1|3|0|0|0", "s|0|0|0|0|0", "t|5|14|1|7|1"]);
}

#[test]
fn the_error_of_a_missing_table_or_column_says_to_apply_the_migrations() {
    let database = Sqlite::new();
    database.run_all("DROP TABLE sessions; ALTER TABLE tenants DROP COLUMN jwt;");
    for sql in
        ["SELECT id FROM sessions", "SELECT jwt FROM tenants", "INSERT INTO tenants (jwt) VALUES ('{}')"]
    {
        let failed = block_on(database.batch(&[Statement::new(sql, [])]));
        let why = failed.err().expect(sql).to_string();
        assert!(why.contains("apply the migrations"), "{why}");
    }
}

#[test]
fn the_probe_succeeds_with_all_migrations() {
    assert!(Sqlite::new().dump(PROBE).is_empty());
}

#[test]
#[should_panic(expected = "no such table")]
fn the_probe_fails_without_the_newest_migration() {
    let migrations = std::fs::read_dir("migrations").unwrap().count();
    Sqlite::upgraded(migrations - 1, PROBE);
}
