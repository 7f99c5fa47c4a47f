-- The secrets of tenants. Only in the root database.
CREATE TABLE tenant_secrets (
  tenant     TEXT NOT NULL,
  name       TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  value      TEXT NOT NULL     -- encrypted with a key that is derived from the operator's key
);
CREATE UNIQUE INDEX tenant_secrets_by_name ON tenant_secrets (tenant, name);
