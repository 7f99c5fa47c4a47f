-- Moves of tenants between shards. Times are milliseconds since 1970.

-- The latest move of each tenant. Only the table in `DB` is used.
CREATE TABLE moves (
  tenant     TEXT PRIMARY KEY,
  id         TEXT NOT NULL,     -- later moves have higher ids
  source     TEXT NOT NULL,     -- names of shards
  target     TEXT NOT NULL,
  phase      TEXT NOT NULL
    CHECK (phase IN ('draining', 'copying', 'cleaning', 'canceling', 'done', 'canceled')),
  since      INTEGER NOT NULL,  -- start of the phase
  copied     INTEGER NOT NULL,  -- rows
  started_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX moves_open ON moves (started_at) WHERE phase NOT IN ('done', 'canceled');

-- While a tenant's rows are copied or removed, its shards refuse all other writes of the tenant. Each transaction of
-- the move opens the fence at its start and closes it at its end.
CREATE TABLE fences (
  tenant     TEXT PRIMARY KEY,
  move       TEXT NOT NULL,
  position   TEXT NOT NULL,              -- JSON: what the move does next on this shard
  copied     INTEGER NOT NULL DEFAULT 0, -- rows copied to this shard
  open       INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- Every write of memory changes a collection or a space. Objects of files without a row are only collected.
CREATE TRIGGER sessions_fenced_insert BEFORE INSERT ON sessions
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
CREATE TRIGGER sessions_fenced_update BEFORE UPDATE ON sessions
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
CREATE TRIGGER sessions_fenced_delete BEFORE DELETE ON sessions
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = OLD.tenant AND open = 0) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
CREATE TRIGGER files_fenced_insert BEFORE INSERT ON files
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
CREATE TRIGGER files_fenced_update BEFORE UPDATE ON files
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
CREATE TRIGGER files_fenced_delete BEFORE DELETE ON files
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = OLD.tenant AND open = 0) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
CREATE TRIGGER memory_collections_fenced_insert BEFORE INSERT ON memory_collections
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
CREATE TRIGGER memory_collections_fenced_update BEFORE UPDATE ON memory_collections
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
CREATE TRIGGER memory_collections_fenced_delete BEFORE DELETE ON memory_collections
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = OLD.tenant AND open = 0) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
CREATE TRIGGER memory_spaces_fenced_insert BEFORE INSERT ON memory_spaces
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
CREATE TRIGGER memory_spaces_fenced_update BEFORE UPDATE ON memory_spaces
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
CREATE TRIGGER memory_spaces_fenced_delete BEFORE DELETE ON memory_spaces
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = OLD.tenant AND open = 0) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
CREATE TRIGGER free_blobs_fenced_insert BEFORE INSERT ON free_blobs
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
CREATE TRIGGER tenant_storage_fenced_insert BEFORE INSERT ON tenant_storage
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
CREATE TRIGGER tenant_storage_fenced_update BEFORE UPDATE OF limits_version ON tenant_storage
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
