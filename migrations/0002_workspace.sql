-- The files of agents. Content up to 256 kB stands in its row; larger content in R2, and its key in
-- the row. Times are milliseconds since 1970.

CREATE TABLE files (
  tenant     TEXT NOT NULL,
  scope      TEXT NOT NULL,     -- whose: agents/A/users/U, agents/A/shared, agents/A/sessions/S, global
  path       TEXT NOT NULL,
  etag       TEXT NOT NULL,     -- of the content
  bytes      INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  kind       TEXT NOT NULL CHECK (kind IN ('text', 'base64', 'blob')), -- what `content` is
  content    TEXT NOT NULL,     -- the content, or its key in R2; last, so that lists need not pass it
  PRIMARY KEY (tenant, scope, path)
) WITHOUT ROWID;

-- Keys in R2 that no row has: reserved and not used yet, or of a row that was replaced or removed. The
-- triggers keep it so, whatever happens to the Worker; a cron run removes what has been free for a while.
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
