-- The parent of a subagent's session. Such sessions are not listed, and are removed with their parent.

ALTER TABLE sessions ADD COLUMN parent TEXT;
CREATE INDEX sessions_of_parent ON sessions (tenant, parent) WHERE parent IS NOT NULL;
