//! Migrations keep existing rows correct.

use crate::sqlite::Sqlite;
use edge_harness::platform::sql::{Sql, Statement};
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
