-- Random secrets of the deployment, which the server creates on first use. Only those in `DB` are used.

CREATE TABLE secrets (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL          -- encrypted with a key that is derived from the operator's key
) WITHOUT ROWID;
