-- How many files each tree has, kept in step by triggers: a tree may have so many and no more, and a
-- user's or a session's trees are found under all agents without a look at any file.

CREATE TABLE file_trees (
  tenant     TEXT NOT NULL,
  scope      TEXT NOT NULL,
  owner      TEXT NOT NULL,     -- what follows the agent in the scope: users/U, sessions/S, shared
  files      INTEGER NOT NULL,
  PRIMARY KEY (tenant, scope)
) WITHOUT ROWID;
CREATE INDEX file_trees_by_owner ON file_trees (tenant, owner);

INSERT INTO file_trees (tenant, scope, owner, files)
SELECT tenant, scope, substr(scope, 8 + instr(substr(scope, 8), '/')), count(*)
FROM files GROUP BY tenant, scope;

-- `agents/` has seven characters, and no id holds a slash.
CREATE TRIGGER files_counted AFTER INSERT ON files BEGIN
  INSERT INTO file_trees (tenant, scope, owner, files)
  VALUES (NEW.tenant, NEW.scope, substr(NEW.scope, 8 + instr(substr(NEW.scope, 8), '/')), 1)
  ON CONFLICT (tenant, scope) DO UPDATE SET files = files + 1;
END;
CREATE TRIGGER files_discounted AFTER DELETE ON files BEGIN
  UPDATE file_trees SET files = files - 1 WHERE tenant = OLD.tenant AND scope = OLD.scope;
  DELETE FROM file_trees WHERE tenant = OLD.tenant AND scope = OLD.scope AND files <= 0;
END;
