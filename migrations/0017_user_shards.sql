-- Moves of single users, and of spread tenants.

-- Users whose memory and files are on another shard than their tenant's, or than their id determines. Only the table in
-- `DB` is used.
CREATE TABLE user_shards (
  tenant     TEXT NOT NULL,
  user       TEXT NOT NULL,
  shard      TEXT NOT NULL,     -- the name of a D1 binding
  PRIMARY KEY (tenant, user)
) WITHOUT ROWID;

-- The user that moves. NULL: the tenant moves.
ALTER TABLE moves ADD COLUMN user TEXT;

-- The tree of the object's file; '' for rows from before this migration.
ALTER TABLE free_blobs ADD COLUMN scope TEXT NOT NULL DEFAULT '';

DROP TRIGGER files_replaced;
CREATE TRIGGER files_replaced AFTER UPDATE OF content ON files WHEN OLD.kind = 'blob' BEGIN
  INSERT OR REPLACE INTO free_blobs (tenant, blob, since, scope)
  VALUES (OLD.tenant, OLD.content, NEW.updated_at, OLD.scope);
END;
DROP TRIGGER files_removed;
CREATE TRIGGER files_removed AFTER DELETE ON files WHEN OLD.kind = 'blob' BEGIN
  INSERT OR REPLACE INTO free_blobs (tenant, blob, since, scope)
  VALUES (OLD.tenant, OLD.content, OLD.updated_at, OLD.scope);
END;

-- The rows that move: '' for all rows of the tenant, 'shared' for those that belong to no user, and 'users/U' for those of
-- one user.
ALTER TABLE fences ADD COLUMN part TEXT NOT NULL DEFAULT '';

DROP TRIGGER sessions_fenced_insert;
CREATE TRIGGER sessions_fenced_insert BEFORE INSERT ON sessions
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0 AND part IN ('', 'shared')) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
DROP TRIGGER sessions_fenced_update;
CREATE TRIGGER sessions_fenced_update BEFORE UPDATE ON sessions
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0 AND part IN ('', 'shared')) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
DROP TRIGGER sessions_fenced_delete;
CREATE TRIGGER sessions_fenced_delete BEFORE DELETE ON sessions
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = OLD.tenant AND open = 0 AND part IN ('', 'shared')) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;

-- `agents/` has seven characters, and the ids of agents contain no slash.
DROP TRIGGER files_fenced_insert;
CREATE TRIGGER files_fenced_insert BEFORE INSERT ON files
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0 AND part IN ('',
  CASE WHEN substr(NEW.scope, 8 + instr(substr(NEW.scope, 8), '/')) GLOB 'users/*'
  THEN substr(NEW.scope, 8 + instr(substr(NEW.scope, 8), '/')) ELSE 'shared' END)) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
DROP TRIGGER files_fenced_update;
CREATE TRIGGER files_fenced_update BEFORE UPDATE ON files
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0 AND part IN ('',
  CASE WHEN substr(NEW.scope, 8 + instr(substr(NEW.scope, 8), '/')) GLOB 'users/*'
  THEN substr(NEW.scope, 8 + instr(substr(NEW.scope, 8), '/')) ELSE 'shared' END)) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
DROP TRIGGER files_fenced_delete;
CREATE TRIGGER files_fenced_delete BEFORE DELETE ON files
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = OLD.tenant AND open = 0 AND part IN ('',
  CASE WHEN substr(OLD.scope, 8 + instr(substr(OLD.scope, 8), '/')) GLOB 'users/*'
  THEN substr(OLD.scope, 8 + instr(substr(OLD.scope, 8), '/')) ELSE 'shared' END)) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
DROP TRIGGER free_blobs_fenced_insert;
CREATE TRIGGER free_blobs_fenced_insert BEFORE INSERT ON free_blobs
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0 AND part IN ('',
  CASE WHEN substr(NEW.scope, 8 + instr(substr(NEW.scope, 8), '/')) GLOB 'users/*'
  THEN substr(NEW.scope, 8 + instr(substr(NEW.scope, 8), '/')) ELSE 'shared' END)) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;

DROP TRIGGER memory_collections_fenced_insert;
CREATE TRIGGER memory_collections_fenced_insert BEFORE INSERT ON memory_collections
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0 AND part IN ('', 'users/' || NEW.user)) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
DROP TRIGGER memory_collections_fenced_update;
CREATE TRIGGER memory_collections_fenced_update BEFORE UPDATE ON memory_collections
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0 AND part IN ('', 'users/' || NEW.user)) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
DROP TRIGGER memory_collections_fenced_delete;
CREATE TRIGGER memory_collections_fenced_delete BEFORE DELETE ON memory_collections
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = OLD.tenant AND open = 0 AND part IN ('', 'users/' || OLD.user)) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
DROP TRIGGER memory_spaces_fenced_insert;
CREATE TRIGGER memory_spaces_fenced_insert BEFORE INSERT ON memory_spaces
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0 AND part IN ('', 'users/' || NEW.user)) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
DROP TRIGGER memory_spaces_fenced_update;
CREATE TRIGGER memory_spaces_fenced_update BEFORE UPDATE ON memory_spaces
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0 AND part IN ('', 'users/' || NEW.user)) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
DROP TRIGGER memory_spaces_fenced_delete;
CREATE TRIGGER memory_spaces_fenced_delete BEFORE DELETE ON memory_spaces
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = OLD.tenant AND open = 0 AND part IN ('', 'users/' || OLD.user)) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;

-- While a part moves, other writes are counted, but no limits are copied. Their version is above 0.
DROP TRIGGER tenant_storage_fenced_insert;
CREATE TRIGGER tenant_storage_fenced_insert BEFORE INSERT ON tenant_storage
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0 AND (part = '' OR NEW.limits_version > 0)) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
