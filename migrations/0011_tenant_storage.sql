-- What each tenant stores on its shard, and its limits. Triggers maintain the numbers in the transaction of the write
-- that they count. A written batch costs one more row.

CREATE TABLE tenant_storage (
  tenant          TEXT PRIMARY KEY,
  files           INTEGER NOT NULL DEFAULT 0,
  file_bytes      INTEGER NOT NULL DEFAULT 0,
  memory_rows     INTEGER NOT NULL DEFAULT 0, -- rows of memory_entries
  memory_bytes    INTEGER NOT NULL DEFAULT 0, -- sum of their texts
  sessions        INTEGER NOT NULL DEFAULT 0, -- without those of subagents
  max_bytes       INTEGER,                    -- NULL: the deployment's default
  max_sessions    INTEGER,
  max_files       INTEGER,
  max_memory_rows INTEGER,
  limits_version  INTEGER NOT NULL DEFAULT 0  -- of the tenant, when its limits were copied here
) WITHOUT ROWID;

-- The bytes of a user are the sums over its trees and its collections.
ALTER TABLE file_trees ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE file_trees SET bytes = (SELECT coalesce(sum(f.bytes), 0) FROM files AS f
  WHERE f.tenant = file_trees.tenant AND f.scope = file_trees.scope);
ALTER TABLE memory_collections ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE memory_collections SET bytes =
  (SELECT coalesce(sum(g.bytes), 0) FROM memory_groups AS g WHERE g.collection = memory_collections.id);

INSERT INTO tenant_storage (tenant, files, file_bytes, memory_rows, memory_bytes, sessions)
SELECT tenant, sum(files), sum(file_bytes), sum(memory_rows), sum(memory_bytes), sum(sessions) FROM (
  SELECT tenant, files, bytes AS file_bytes, 0 AS memory_rows, 0 AS memory_bytes, 0 AS sessions FROM file_trees
  UNION ALL SELECT tenant, 0, 0, documents, bytes, 0 FROM memory_collections
  UNION ALL SELECT tenant, 0, 0, 0, 0, 1 FROM sessions WHERE parent IS NULL
) GROUP BY tenant;

DROP TRIGGER files_counted;
CREATE TRIGGER files_counted AFTER INSERT ON files BEGIN
  INSERT INTO file_trees (tenant, scope, owner, files, bytes)
  VALUES (NEW.tenant, NEW.scope, substr(NEW.scope, 8 + instr(substr(NEW.scope, 8), '/')), 1, NEW.bytes)
  ON CONFLICT (tenant, scope) DO UPDATE SET files = files + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER files_resized AFTER UPDATE OF bytes ON files WHEN NEW.bytes <> OLD.bytes BEGIN
  UPDATE file_trees SET bytes = bytes + NEW.bytes - OLD.bytes WHERE tenant = NEW.tenant AND scope = NEW.scope;
END;
DROP TRIGGER files_discounted;
CREATE TRIGGER files_discounted AFTER DELETE ON files BEGIN
  UPDATE file_trees SET files = files - 1, bytes = bytes - OLD.bytes
    WHERE tenant = OLD.tenant AND scope = OLD.scope;
  DELETE FROM file_trees WHERE tenant = OLD.tenant AND scope = OLD.scope AND files <= 0;
END;

CREATE TRIGGER file_trees_added AFTER INSERT ON file_trees BEGIN
  INSERT INTO tenant_storage (tenant, files, file_bytes) VALUES (NEW.tenant, NEW.files, NEW.bytes)
  ON CONFLICT (tenant) DO UPDATE SET files = files + excluded.files, file_bytes = file_bytes + excluded.file_bytes;
END;
CREATE TRIGGER file_trees_changed AFTER UPDATE OF files, bytes ON file_trees BEGIN
  UPDATE tenant_storage SET files = files + NEW.files - OLD.files, file_bytes = file_bytes + NEW.bytes - OLD.bytes
    WHERE tenant = NEW.tenant;
END;

CREATE TRIGGER memory_collections_changed AFTER UPDATE OF documents, bytes ON memory_collections
WHEN NEW.documents <> OLD.documents OR NEW.bytes <> OLD.bytes BEGIN
  INSERT INTO tenant_storage (tenant, memory_rows, memory_bytes)
  VALUES (NEW.tenant, NEW.documents - OLD.documents, NEW.bytes - OLD.bytes)
  ON CONFLICT (tenant) DO UPDATE SET memory_rows = memory_rows + excluded.memory_rows,
    memory_bytes = memory_bytes + excluded.memory_bytes;
END;
DROP TRIGGER memory_entries_removed;
CREATE TRIGGER memory_entries_removed AFTER DELETE ON memory_entries BEGIN
  DELETE FROM memory_terms WHERE rowid = OLD.serial;
  UPDATE memory_groups SET entries = entries - (OLD.part = 0), bytes = bytes - octet_length(OLD.text)
    WHERE collection = OLD.collection AND name = OLD.grp;
  UPDATE memory_groups SET (last, updated_at) = (
      SELECT max(serial), at FROM memory_entries WHERE collection = OLD.collection AND key = (
        SELECT key FROM memory_entries WHERE collection = OLD.collection AND grp = OLD.grp AND part = 0
          ORDER BY position DESC LIMIT 1))
    WHERE collection = OLD.collection AND name = OLD.grp AND last = OLD.serial;
  UPDATE memory_collections SET documents = documents - 1, length = length - OLD.length,
      bytes = bytes - octet_length(OLD.text)
    WHERE id = OLD.collection;
END;

CREATE TRIGGER sessions_added AFTER INSERT ON sessions WHEN NEW.parent IS NULL BEGIN
  INSERT INTO tenant_storage (tenant, sessions) VALUES (NEW.tenant, 1)
  ON CONFLICT (tenant) DO UPDATE SET sessions = sessions + 1;
END;
CREATE TRIGGER sessions_removed AFTER DELETE ON sessions WHEN OLD.parent IS NULL BEGIN
  UPDATE tenant_storage SET sessions = sessions - 1 WHERE tenant = OLD.tenant;
END;
