-- The agents of tenants, and the versions of their definitions. Only in the root database.
CREATE TABLE agents (
  tenant     TEXT NOT NULL,
  id         TEXT NOT NULL,
  active     INTEGER NOT NULL,  -- the version of new sessions
  newest     INTEGER NOT NULL,
  deleted_at INTEGER,
  PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

CREATE TABLE agent_versions (
  tenant     TEXT NOT NULL,
  agent      TEXT NOT NULL,
  version    INTEGER NOT NULL,
  definition TEXT NOT NULL,     -- JSON
  bytes      INTEGER NOT NULL,  -- of the definition
  created_at INTEGER NOT NULL,
  created_by TEXT NOT NULL      -- JSON
);
CREATE UNIQUE INDEX agent_versions_by_number ON agent_versions (tenant, agent, version, bytes);
