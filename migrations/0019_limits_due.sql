-- The version of a tenant's storage limits that its shards may not have. NULL: they have the latest ones.
ALTER TABLE tenants ADD COLUMN limits_due INTEGER;
CREATE INDEX tenants_limits_due ON tenants (limits_due) WHERE limits_due IS NOT NULL;
