-- Which shard has a tenant's rows: the name of a D1 binding. NULL: the one that the tenant's name
-- gives. Tenants that are there already have been in the only database so far.

ALTER TABLE tenants ADD COLUMN shard TEXT;
UPDATE tenants SET shard = 'DB';
