-- The sessions of subagents: they stand in no list, and go with the session that sent them out.

ALTER TABLE sessions ADD COLUMN parent TEXT;
CREATE INDEX sessions_of_parent ON sessions (tenant, parent) WHERE parent IS NOT NULL;
