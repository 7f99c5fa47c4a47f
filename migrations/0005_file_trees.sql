-- The number of files of each tree, maintained by triggers. It enforces the limit per tree, and finds the trees of
-- a user or a session under all agents without reading files.

CREATE TABLE file_trees (
  tenant     TEXT NOT NULL,
  scope      TEXT NOT NULL,
  owner      TEXT NOT NULL,     -- the scope after the agent: users/U, sessions/S, shared
  files      INTEGER NOT NULL,
  PRIMARY KEY (tenant, scope)
) WITHOUT ROWID;
CREATE INDEX file_trees_by_owner ON file_trees (tenant, owner);

INSERT INTO file_trees (tenant, scope, owner, files)
SELECT tenant, scope, substr(scope, 8 + instr(substr(scope, 8), '/')), count(*)
FROM files GROUP BY tenant, scope;

-- `agents/` has seven characters, and ids contain no slash.
CREATE TRIGGER files_counted AFTER INSERT ON files BEGIN
  INSERT INTO file_trees (tenant, scope, owner, files)
  VALUES (NEW.tenant, NEW.scope, substr(NEW.scope, 8 + instr(substr(NEW.scope, 8), '/')), 1)
  ON CONFLICT (tenant, scope) DO UPDATE SET files = files + 1;
END;
CREATE TRIGGER files_discounted AFTER DELETE ON files BEGIN
  UPDATE file_trees SET files = files - 1 WHERE tenant = OLD.tenant AND scope = OLD.scope;
  DELETE FROM file_trees WHERE tenant = OLD.tenant AND scope = OLD.scope AND files <= 0;
END;
