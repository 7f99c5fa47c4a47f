// Uploads the files of a folder to the shared files of an agent: creates missing files and replaces different
// ones. Files that are not in the folder are not removed. See workspace-push.sh.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { Refused, ask } from "./api.mjs";

const { DIR, AGENT } = process.env;
const FILES = "/v1/workspace/files";
const QUERY = `agent=${encodeURIComponent(AGENT)}&layer=shared`;
const SKIPPED = new Set([".git", ".DS_Store"]);
// Maximum size of a file that the server accepts, in bytes.
const MAX_FILE = 4 << 20;

// Returns the etags of the existing shared files.
async function existingEtags() {
  const etags = new Map();
  for (let cursor = ""; cursor !== null;) {
    const page = (await ask(`${FILES}?${QUERY}&limit=100${cursor && `&cursor=${encodeURIComponent(cursor)}`}`)).body;
    for (const { path, etag } of page.data) etags.set(path, etag);
    cursor = page.next_cursor ?? null;
  }
  return etags;
}

function* walk(folder, prefix = "") {
  const entries = readdirSync(folder, { withFileTypes: true }).filter(({ name }) => !SKIPPED.has(name));
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const [file, path] = [join(folder, entry.name), prefix + entry.name];
    if (entry.isDirectory()) yield* walk(file, `${path}/`);
    else if (entry.isFile()) yield [file, path];
    else report("skipped", path, entry.isSymbolicLink() ? "a symbolic link" : "neither a file nor a folder");
  }
}

const counts = { created: 0, replaced: 0, unchanged: 0, refused: 0, skipped: 0 };
function report(what, path, why = "") {
  counts[what] += 1;
  if (what !== "unchanged") console.log(`${what.padEnd(10)} ${path}${why && `: ${why}`}`);
}

try {
  const etags = await existingEtags();
  for (const [file, path] of walk(DIR)) {
    const { size } = statSync(file);
    if (size > MAX_FILE) { report("refused", path, `the file has ${size} bytes; the maximum is ${MAX_FILE}`); continue; }
    const bytes = readFileSync(file);
    const etag = `"${createHash("sha256").update(bytes).digest("hex").slice(0, 32)}"`;
    if (etags.get(path) === etag) { report("unchanged", path); continue; }
    try {
      const url = `${FILES}/${path.split("/").map(encodeURIComponent).join("/")}?${QUERY}`;
      const { status } = await ask(url, { method: "PUT", body: bytes });
      report(status === 201 ? "created" : "replaced", path);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      report("refused", path, error.message);
    }
  }
  console.log(`agent ${AGENT}: ${Object.entries(counts).map(([what, n]) => `${n} ${what}`).join(", ")}`);
  process.exitCode = counts.refused + counts.skipped > 0 ? 1 : 0;
} catch (error) {
  console.error(`error: ${error.message}`);
  process.exitCode = 1;
}
