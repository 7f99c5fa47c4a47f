-- Whether a turn of the session has been running for some time. Short turns are not listed.

ALTER TABLE sessions ADD COLUMN running INTEGER NOT NULL DEFAULT 0;
