-- The full-text index keeps the terms of removed entries until it merges its segments, which may never happen. After an
-- erasure, cron merges all segments, in steps. A single row; the first merge is for erasures before this migration.
CREATE TABLE memory_merge (
  id        INTEGER PRIMARY KEY CHECK (id = 1),
  erased    INTEGER NOT NULL, -- whether entries were erased since the last merge began
  steps     INTEGER NOT NULL, -- of the merge that runs; 0 if none does
  merged_at INTEGER NOT NULL  -- end of the last merge
);
INSERT INTO memory_merge (id, erased, steps, merged_at) VALUES (1, 1, 0, 0);
