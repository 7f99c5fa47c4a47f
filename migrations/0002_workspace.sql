-- The files of agents. Content of up to 256 kB is stored in its row. Larger content is stored in R2, and its
-- row holds the key. Times are milliseconds since 1970.

CREATE TABLE files (
  tenant     TEXT NOT NULL,
  scope      TEXT NOT NULL,     -- agents/A/users/U, agents/A/shared, agents/A/sessions/S, global
  path       TEXT NOT NULL,
  etag       TEXT NOT NULL,     -- of the content
  bytes      INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  kind       TEXT NOT NULL CHECK (kind IN ('text', 'base64', 'blob')), -- format of `content`
  content    TEXT NOT NULL,     -- the content, or its key in R2; last column, so that lists need not read it
  PRIMARY KEY (tenant, scope, path)
) WITHOUT ROWID;

-- R2 keys without a row: keys that are reserved but not used yet, and keys of replaced or removed rows. Triggers
-- maintain the table, so it is correct even if a Worker is evicted; a cron job removes old entries and objects.
CREATE TABLE free_blobs (
  tenant     TEXT NOT NULL,
  blob       TEXT NOT NULL,
  since      INTEGER NOT NULL,
  PRIMARY KEY (tenant, blob)
) WITHOUT ROWID;
CREATE INDEX free_blobs_oldest ON free_blobs (since);

CREATE TRIGGER files_inserted AFTER INSERT ON files WHEN NEW.kind = 'blob' BEGIN
  DELETE FROM free_blobs WHERE tenant = NEW.tenant AND blob = NEW.content;
END;
CREATE TRIGGER files_replaced AFTER UPDATE OF content ON files WHEN OLD.kind = 'blob' BEGIN
  INSERT OR REPLACE INTO free_blobs (tenant, blob, since) VALUES (OLD.tenant, OLD.content, NEW.updated_at);
END;
CREATE TRIGGER files_updated AFTER UPDATE OF content ON files WHEN NEW.kind = 'blob' BEGIN
  DELETE FROM free_blobs WHERE tenant = NEW.tenant AND blob = NEW.content;
END;
CREATE TRIGGER files_removed AFTER DELETE ON files WHEN OLD.kind = 'blob' BEGIN
  INSERT OR REPLACE INTO free_blobs (tenant, blob, since) VALUES (OLD.tenant, OLD.content, OLD.updated_at);
END;
