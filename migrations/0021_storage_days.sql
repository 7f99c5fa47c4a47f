-- What each tenant stored at the start of each UTC day, a row for each of its shards. Only in the root database. Cron adds
-- the rows (src/platform/sql/storage_days.rs).
CREATE TABLE storage_days (
  tenant       TEXT NOT NULL,
  day          TEXT NOT NULL, -- such as 2026-11-20
  shard        TEXT NOT NULL,
  files        INTEGER NOT NULL,
  file_bytes   INTEGER NOT NULL,
  memory_rows  INTEGER NOT NULL,
  memory_bytes INTEGER NOT NULL,
  sessions     INTEGER NOT NULL,
  PRIMARY KEY (tenant, day, shard)
) WITHOUT ROWID;

-- How far the rows of a day are complete. Only in the root database.
CREATE TABLE storage_progress (
  shard TEXT PRIMARY KEY,
  day   TEXT NOT NULL,
  after TEXT -- the last recorded tenant; NULL: all tenants are recorded
) WITHOUT ROWID;
