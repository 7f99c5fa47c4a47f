-- The consent of users at other servers. Only in the root database.
CREATE TABLE consents (
  tenant     TEXT NOT NULL,
  user       TEXT NOT NULL,     -- empty for what belongs to the tenant
  kind       TEXT NOT NULL,     -- token, client or request
  name       TEXT NOT NULL,
  version    INTEGER NOT NULL,
  expires_at INTEGER,
  value      TEXT NOT NULL      -- encrypted with a key that is derived from the operator's key
);
CREATE UNIQUE INDEX consents_by_name ON consents (tenant, user, kind, name);
CREATE UNIQUE INDEX consent_requests ON consents (name) WHERE kind = 'request';
