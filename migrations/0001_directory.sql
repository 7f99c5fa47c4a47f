-- The directory: tenants, their API keys, the list of sessions, and idempotency keys of requests outside
-- sessions. Times are milliseconds since 1970. Every primary key starts with the tenant. The hash of an API
-- key's secret does not, because it determines the tenant.

CREATE TABLE tenants (
  id         TEXT PRIMARY KEY,
  name       TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  issuer     TEXT,              -- of jwt, for lookups
  jwt        TEXT,              -- JSON; the keys in it are encrypted
  deleted_at INTEGER            -- hidden from then on; maintenance removes the rows
) WITHOUT ROWID;
CREATE INDEX tenants_by_issuer ON tenants (issuer) WHERE issuer IS NOT NULL;
CREATE INDEX tenants_deleted ON tenants (deleted_at) WHERE deleted_at IS NOT NULL;

CREATE TABLE api_keys (
  tenant     TEXT NOT NULL,
  id         TEXT NOT NULL,
  hash       TEXT NOT NULL UNIQUE, -- SHA-256 of the secret, in hexadecimal; the secret is not stored
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
  status     INTEGER,           -- of the first response; NULL while the request runs
  answer     TEXT,              -- body of the response, encrypted
  PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_by_age ON idempotency (created_at);
