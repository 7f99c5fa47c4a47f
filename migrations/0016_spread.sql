-- The number of shards over which the users of a tenant are spread. NULL: all rows are on the tenant's shard.

ALTER TABLE tenants ADD COLUMN spread INTEGER;
