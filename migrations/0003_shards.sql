-- The shard of a tenant's rows: the name of a D1 binding. NULL derives the shard from the tenant's name.
-- Existing tenants stay in the first database.

ALTER TABLE tenants ADD COLUMN shard TEXT;
UPDATE tenants SET shard = 'DB';
