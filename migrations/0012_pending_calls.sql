-- The number of calls of a session that wait for a person or a client. Sessions that waited before are shown with their
-- number after their next change.

ALTER TABLE sessions ADD COLUMN pending INTEGER NOT NULL DEFAULT 0;
