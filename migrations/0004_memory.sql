-- What agents remember of users, on the shard of the tenant. Times are milliseconds since 1970. What is
-- written costs a thousand times what is read, so an entry has no more indexes than its search needs.

-- One row: the number that was given out last. Numbers are never given out again, whatever is removed.
CREATE TABLE memory_serial (last INTEGER NOT NULL);
INSERT INTO memory_serial (last) VALUES (0);

-- Whose memory, and what the ranking needs to know of it.
CREATE TABLE memory_collections (
  id         INTEGER PRIMARY KEY,
  tenant     TEXT NOT NULL,
  user       TEXT NOT NULL,
  agent      TEXT NOT NULL,
  kind       TEXT NOT NULL CHECK (kind IN ('facts', 'turns')),
  documents  INTEGER NOT NULL DEFAULT 0, -- rows of memory_entries
  length     INTEGER NOT NULL DEFAULT 0, -- the sum of theirs
  groups     INTEGER NOT NULL DEFAULT 0, -- rows of memory_groups
  UNIQUE (tenant, user, agent, kind)
);

-- What stands together, in order. A group is there as long as it has entries.
CREATE TABLE memory_groups (
  collection INTEGER NOT NULL,
  name       TEXT NOT NULL,
  next       INTEGER NOT NULL,  -- the position of the next entry
  entries    INTEGER NOT NULL,
  bytes      INTEGER NOT NULL,
  last       INTEGER NOT NULL,  -- the number of the last part of the last entry
  updated_at INTEGER NOT NULL,  -- the time of that entry
  PRIMARY KEY (collection, name)
) WITHOUT ROWID;

-- The parts of entries. A collection's rows lie together in the order of adding, which is how they are
-- listed.
CREATE TABLE memory_entries (
  collection INTEGER NOT NULL,
  serial     INTEGER NOT NULL,  -- the rowid in memory_terms
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
-- The part stands before the position: neighbours are looked for among first parts alone.
CREATE UNIQUE INDEX memory_entries_by_place ON memory_entries (collection, grp, part, position);
-- Most entries of a session are a group of that name, and are found as such.
CREATE INDEX memory_entries_by_session ON memory_entries (collection, session) WHERE session <> grp;

-- The terms of all tenants. Each term is stored behind the number of its collection (`c12_word`), so what
-- is looked up and counted is one collection's alone. The ranking of FTS5 would mix them: never use it.
CREATE VIRTUAL TABLE memory_terms USING fts5 (
  terms, content = '', contentless_delete = 1, detail = none, tokenize = "ascii tokenchars '_'"
);
CREATE VIRTUAL TABLE memory_frequencies USING fts5vocab (memory_terms, 'row');

-- Adding keeps the numbers right once for all entries that come together (one row written, not one for
-- each); removing is rare, and does so here.
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

-- How far each user's memory is consolidated, and who is at it.
CREATE TABLE memory_spaces (
  tenant           TEXT NOT NULL,
  user             TEXT NOT NULL,
  agent            TEXT NOT NULL,
  watermark        INTEGER NOT NULL DEFAULT 0, -- facts up to this number are consolidated
  dirty_since      INTEGER,     -- the time of the first fact of a log behind the watermark
  requested_at     INTEGER,
  consolidated_at  INTEGER,
  flushed_at       INTEGER,
  holder           TEXT,        -- who has the lease
  leased_until     INTEGER NOT NULL DEFAULT 0, -- not given out before
  intent_etag      TEXT,
  intent_watermark INTEGER,
  PRIMARY KEY (tenant, user, agent)
) WITHOUT ROWID;
CREATE INDEX memory_spaces_due ON memory_spaces (requested_at IS NULL, dirty_since)
  WHERE dirty_since IS NOT NULL;
