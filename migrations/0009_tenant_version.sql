-- The version of a tenant, raised by each update. A session keeps the newest rules that it has received; rules that
-- it stored before have version 0.

ALTER TABLE tenants ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
