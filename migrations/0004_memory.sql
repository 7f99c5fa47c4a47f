-- The memory of agents about users, on the shard of the tenant. Times are milliseconds since 1970. A written
-- row costs a thousand times as much as a read one, so entries have only the indexes that searches need.

-- A single row: the last assigned serial number. Serial numbers are never reused.
CREATE TABLE memory_serial (last INTEGER NOT NULL);
INSERT INTO memory_serial (last) VALUES (0);

-- One row per collection, with the totals that ranking needs.
CREATE TABLE memory_collections (
  id         INTEGER PRIMARY KEY,
  tenant     TEXT NOT NULL,
  user       TEXT NOT NULL,
  agent      TEXT NOT NULL,
  kind       TEXT NOT NULL CHECK (kind IN ('facts', 'turns')),
  documents  INTEGER NOT NULL DEFAULT 0, -- rows of memory_entries
  length     INTEGER NOT NULL DEFAULT 0, -- sum of their lengths
  groups     INTEGER NOT NULL DEFAULT 0, -- rows of memory_groups
  UNIQUE (tenant, user, agent, kind)
);

-- Ordered groups of entries, such as sessions and days. A group exists as long as it has entries.
CREATE TABLE memory_groups (
  collection INTEGER NOT NULL,
  name       TEXT NOT NULL,
  next       INTEGER NOT NULL,  -- position of the next entry
  entries    INTEGER NOT NULL,
  bytes      INTEGER NOT NULL,
  last       INTEGER NOT NULL,  -- serial of the last part of the last entry
  updated_at INTEGER NOT NULL,  -- time of that entry
  PRIMARY KEY (collection, name)
) WITHOUT ROWID;

-- The parts of entries. The rows of a collection are stored together in insertion order, which is the order of
-- lists.
CREATE TABLE memory_entries (
  collection INTEGER NOT NULL,
  serial     INTEGER NOT NULL,  -- rowid in memory_terms
  key        TEXT NOT NULL,
  part       INTEGER NOT NULL,
  source     TEXT NOT NULL CHECK (source IN ('log', 'memory', 'session')),
  grp        TEXT NOT NULL,
  position   INTEGER NOT NULL,
  session    TEXT,
  at         INTEGER NOT NULL,
  speaker    TEXT,
  length     INTEGER NOT NULL,
  text       TEXT NOT NULL,
  PRIMARY KEY (collection, serial)
) WITHOUT ROWID;
CREATE UNIQUE INDEX memory_entries_by_key ON memory_entries (collection, key, part);
-- `part` precedes `position`, because neighbors are searched among first parts only.
CREATE UNIQUE INDEX memory_entries_by_place ON memory_entries (collection, grp, part, position);
-- Most entries of a session are in the group of the same name and need no index.
CREATE INDEX memory_entries_by_session ON memory_entries (collection, session) WHERE session <> grp;

-- The terms of all tenants. Each term is prefixed by the id of its collection (`c12_word`), so that lookups and
-- counts cover one collection only. Never use the ranking of FTS5, which would mix collections.
CREATE VIRTUAL TABLE memory_terms USING fts5 (
  terms, content = '', contentless_delete = 1, detail = none, tokenize = "ascii tokenchars '_'"
);
CREATE VIRTUAL TABLE memory_frequencies USING fts5vocab (memory_terms, 'row');

-- Insertions update the totals once per batch, which writes one row instead of one per entry. Removals are rare
-- and update the totals in these triggers.
CREATE TRIGGER memory_entries_removed AFTER DELETE ON memory_entries BEGIN
  DELETE FROM memory_terms WHERE rowid = OLD.serial;
  UPDATE memory_groups SET entries = entries - (OLD.part = 0), bytes = bytes - octet_length(OLD.text)
    WHERE collection = OLD.collection AND name = OLD.grp;
  UPDATE memory_groups SET (last, updated_at) = (
      SELECT max(serial), at FROM memory_entries WHERE collection = OLD.collection AND key = (
        SELECT key FROM memory_entries WHERE collection = OLD.collection AND grp = OLD.grp AND part = 0
          ORDER BY position DESC LIMIT 1))
    WHERE collection = OLD.collection AND name = OLD.grp AND last = OLD.serial;
  UPDATE memory_collections SET documents = documents - 1, length = length - OLD.length
    WHERE id = OLD.collection;
END;
CREATE TRIGGER memory_groups_emptied AFTER UPDATE OF entries ON memory_groups WHEN NEW.entries = 0 BEGIN
  DELETE FROM memory_groups WHERE collection = NEW.collection AND name = NEW.name;
  UPDATE memory_collections SET groups = groups - 1 WHERE id = NEW.collection;
END;

-- The state of consolidation of each memory space, and its lease.
CREATE TABLE memory_spaces (
  tenant           TEXT NOT NULL,
  user             TEXT NOT NULL,
  agent            TEXT NOT NULL,
  watermark        INTEGER NOT NULL DEFAULT 0, -- facts up to this serial are consolidated
  dirty_since      INTEGER,     -- time of the first log fact after the watermark
  requested_at     INTEGER,
  consolidated_at  INTEGER,
  flushed_at       INTEGER,
  holder           TEXT,        -- holder of the lease
  leased_until     INTEGER NOT NULL DEFAULT 0, -- not leased again before
  intent_etag      TEXT,
  intent_watermark INTEGER,
  PRIMARY KEY (tenant, user, agent)
) WITHOUT ROWID;
CREATE INDEX memory_spaces_due ON memory_spaces (requested_at IS NULL, dirty_since)
  WHERE dirty_since IS NOT NULL;
