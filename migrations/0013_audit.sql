-- The audit trail: one row for each change of a tenant and its keys, for each export and erasure of a user, and for each
-- decision on a tool call. In the root database only. Rows contain ids, rules and limits, but no secrets and no content of
-- users.

CREATE TABLE audit (
  tenant     TEXT NOT NULL,
  id         TEXT NOT NULL,     -- starts with the time
  at         INTEGER NOT NULL,
  actor      TEXT NOT NULL,     -- JSON
  action     TEXT NOT NULL,
  object     TEXT NOT NULL,     -- id of what was changed or decided
  address    TEXT,              -- of the client
  request_id TEXT,
  details    TEXT NOT NULL,     -- JSON
  PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
CREATE INDEX audit_by_age ON audit (at);
CREATE INDEX audit_by_action ON audit (tenant, action, id);

-- Rows are only added. REPLACE deletes without a delete trigger, so a row that exists is kept before that.
CREATE TRIGGER audit_kept BEFORE INSERT ON audit
WHEN EXISTS (SELECT 1 FROM audit WHERE tenant = NEW.tenant AND id = NEW.id) BEGIN
  SELECT RAISE(IGNORE);
END;
CREATE TRIGGER audit_unchanged BEFORE UPDATE ON audit BEGIN
  SELECT RAISE(ABORT, 'rows of the audit trail cannot change');
END;
CREATE TRIGGER audit_retained BEFORE DELETE ON audit WHEN OLD.at > (unixepoch() - 400 * 86400) * 1000 BEGIN
  SELECT RAISE(ABORT, 'rows of the audit trail cannot be deleted for 400 days');
END;
