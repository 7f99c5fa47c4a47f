-- Limits of all sessions of a tenant, as JSON. NULL if there are none.

ALTER TABLE tenants ADD COLUMN limits TEXT;
