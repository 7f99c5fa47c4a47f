-- What is shared between sessions: tenants, their keys, the list of sessions, and idempotency of
-- what is not in a session. Times are milliseconds since 1970. Every key starts with the tenant,
-- but for the hash of a key's secret, which is what tells us the tenant.

CREATE TABLE tenants (
  id         TEXT PRIMARY KEY,
  name       TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  issuer     TEXT,              -- of jwt, for finding it
  jwt        TEXT,              -- JSON; the keys in it are sealed
  deleted_at INTEGER            -- from then on nothing finds it; the sweep removes it
) WITHOUT ROWID;
CREATE INDEX tenants_by_issuer ON tenants (issuer) WHERE issuer IS NOT NULL;
CREATE INDEX tenants_deleted ON tenants (deleted_at) WHERE deleted_at IS NOT NULL;

CREATE TABLE api_keys (
  tenant     TEXT NOT NULL,
  id         TEXT NOT NULL,
  hash       TEXT NOT NULL UNIQUE, -- SHA-256 of the secret, in hex; the secret itself is nowhere
  name       TEXT NOT NULL,
  scopes     TEXT NOT NULL,        -- JSON
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
CREATE INDEX api_keys_expiring ON api_keys (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE sessions (
  tenant     TEXT NOT NULL,
  id         TEXT NOT NULL,
  user       TEXT NOT NULL,
  agent      TEXT NOT NULL,
  title      TEXT,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
CREATE INDEX sessions_newest ON sessions (tenant, created_at DESC, id DESC);
CREATE INDEX sessions_newest_of_user ON sessions (tenant, user, created_at DESC, id DESC);

CREATE TABLE idempotency (
  scope      TEXT NOT NULL,     -- method, path and owner
  key        TEXT NOT NULL,
  body_hash  TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  status     INTEGER,           -- of the first answer; NULL while the request runs
  answer     TEXT,              -- its body, sealed
  PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_by_age ON idempotency (created_at);
