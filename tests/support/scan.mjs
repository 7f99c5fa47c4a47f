// Searches everything that is stored below a folder, whose server must not run, for texts:
//
//     node scan.mjs DIR TABLES TEXT…
//
// Prints a line of JSON for each file that contains one, in any case. SQLite leaves the bytes of deleted rows in its
// files until it overwrites them, so a database is searched in a vacuumed copy, which has all bytes of all tables and
// indexes that still exist. TABLES, separated by commas, are left out.
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { DatabaseSync } from "node:sqlite";

const [folder, tables, ...texts] = process.argv.slice(2);
const home = mkdtempSync(join(tmpdir(), "edge-harness-scan-"));

function vacuumed(path) {
  const copy = join(home, basename(path));
  for (const suffix of ["", "-wal", "-shm"]) {
    try {
      cpSync(path + suffix, copy + suffix);
    } catch (error) {
      if (error.code !== "ENOENT") throw error;
    }
  }
  const db = new DatabaseSync(copy);
  for (const table of tables.split(",").filter(Boolean)) db.exec(`DROP TABLE IF EXISTS "${table}"`);
  db.exec("VACUUM; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE");
  db.close();
  return readFileSync(copy);
}

for (const name of readdirSync(folder, { recursive: true })) {
  const path = join(folder, name);
  if (!statSync(path).isFile() || /-(wal|shm)$/.test(name)) continue;
  const bytes = (name.endsWith(".sqlite") ? vacuumed(path) : readFileSync(path)).toString("latin1").toLowerCase();
  for (const text of texts) {
    const at = bytes.indexOf(text.toLowerCase());
    if (at >= 0) console.log(JSON.stringify({ file: name, text, around: bytes.slice(Math.max(0, at - 60), at + 90) }));
  }
}
rmSync(home, { recursive: true });
