// Runs a statement in every D1 database below a folder, whose server must not run:
//
//     node edit.mjs DIR 'UPDATE free_blobs SET since = 0'
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";

const [folder, sql] = process.argv.slice(2);
for (const file of readdirSync(folder, { recursive: true }).filter((name) => name.endsWith(".sqlite"))) {
  const db = new DatabaseSync(join(folder, file));
  if (db.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'tenants'").get()) db.exec(sql);
  db.close();
}
