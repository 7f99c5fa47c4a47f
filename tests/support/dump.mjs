// Prints every row of every SQLite database below a folder, as JSON: what is stored, as against
// bytes that a database has given up but not overwritten yet. The platform's own tables are left out.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";

for (const file of readdirSync(process.argv[2], { recursive: true }).filter((name) => name.endsWith(".sqlite"))) {
  const db = new DatabaseSync(join(process.argv[2], file), { readOnly: true });
  const tables = db.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB '_cf_*'").all();
  for (const { name } of tables) {
    const all = db.prepare(`SELECT * FROM "${name}"`);
    all.setReadBigInts(true);
    for (const row of all.all()) {
      console.log(JSON.stringify({ file, table: name, ...row }, (_, v) => (typeof v === "bigint" ? String(v) : v)));
    }
  }
}
