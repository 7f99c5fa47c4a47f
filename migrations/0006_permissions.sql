-- What the agents of a tenant may do, in all of its sessions: rules in JSON. NULL: none.

ALTER TABLE tenants ADD COLUMN permissions TEXT;
