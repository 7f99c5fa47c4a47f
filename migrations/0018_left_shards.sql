-- The fence of a move stays closed on the shard that the rows have left. It refuses the rows that have moved, but not the
-- limits of a tenant that still has other rows there.
DROP TRIGGER tenant_storage_fenced_insert;
CREATE TRIGGER tenant_storage_fenced_insert BEFORE INSERT ON tenant_storage
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0
  AND (part = '' OR (NEW.limits_version > 0 AND position <> '"ended"'))) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
DROP TRIGGER tenant_storage_fenced_update;
CREATE TRIGGER tenant_storage_fenced_update BEFORE UPDATE OF limits_version ON tenant_storage
WHEN EXISTS (SELECT 1 FROM fences WHERE tenant = NEW.tenant AND open = 0
  AND (part = '' OR position <> '"ended"')) BEGIN
  SELECT RAISE(ABORT, 'the tenant is moving to another shard');
END;
