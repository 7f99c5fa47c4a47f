// Runs a Worker under Miniflare for a test or a measurement:
//
//     node mf.mjs '{"config": "wrangler.toml", "main": "build/index.js", "home": DIR,
//                   "port": 0, "bindings": {...}, "databases": 1, "inspected": true, "page": true}'
//
// The Worker's configuration is its wrangler.toml; `main` and `bindings` override it, and `databases` limits how many of
// its D1 databases are bound; `page` serves its static assets. When the Worker is ready and its D1 migrations are applied,
// the program prints one line, `{"port": N}`. A line `scheduled CRON` on stdin runs the scheduled handler; its result is
// printed as one line of JSON. A line `heap` prints the bytes in use by JavaScript, garbage included, as `{"heap": N}`; it
// needs `inspected`. When stdin closes, because the parent closed it or died, the program deletes DIR and exits.
import { readFileSync, readdirSync, existsSync, rmSync, writeFileSync } from "node:fs";
import { dirname, resolve, join } from "node:path";
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { parse } from "smol-toml";

// Not imported: Node would first search the 7 MB of this CommonJS module for its exports, which takes a second.
const { Miniflare, convertV4MiniflareOptions } = createRequire(import.meta.url)("miniflare");

const options = JSON.parse(process.argv[2]);
const config = parse(readFileSync(options.config, "utf8"));
const root = dirname(resolve(options.config));
const main = resolve(root, options.main ?? config.main);
const databases = (config.d1_databases ?? []).slice(0, options.databases ?? undefined);
const sqlite = new Set((config.migrations ?? []).flatMap((step) => step.new_sqlite_classes ?? []));

// Returns the modules next to the main one.
function modules(suffix, type) {
  const files = readdirSync(dirname(main)).filter((file) => file.endsWith(suffix));
  return files.map((file) => ({ type, path: join(dirname(main), file) }));
}

const mf = new Miniflare(convertV4MiniflareOptions({
  host: "127.0.0.1",
  port: options.port ?? 0,
  cf: false,
  logRequests: false,
  resourcePersistencePath: join(options.home, "state"),
  inspectorPort: options.inspected ? 0 : undefined,
  handleStructuredLogs: ({ level, message }) => console.error(`${level}: ${message}`),
  workers: [{
    name: config.name,
    modulesRoot: dirname(main),
    modules: [
      { type: "ESModule", path: main },
      ...modules(".js", "ESModule").filter(({ path }) => path !== main),
      ...modules(".wasm", "CompiledWasm"),
    ],
    compatibilityDate: config.compatibility_date,
    compatibilityFlags: config.compatibility_flags,
    bindings: { ...config.vars, ...options.bindings },
    durableObjects: Object.fromEntries((config.durable_objects?.bindings ?? []).map(
      ({ name, class_name }) => [name, { className: class_name, useSQLite: sqlite.has(class_name) }])),
    d1Databases: Object.fromEntries(databases.map((d1) => [d1.binding, d1.database_name])),
    r2Buckets: Object.fromEntries((config.r2_buckets ?? []).map((r2) => [r2.binding, r2.bucket_name])),
    assets: options.page ? { directory: join(root, config.assets.directory), routerConfig: { has_user_worker: true } } : undefined,
  }],
}));

// What `wrangler d1 migrations apply` does, without a second process. Each call takes 20 ms, so all files are one
// statement. A restarted server has the same files, so it makes no call.
async function migrate({ binding, migrations_dir }) {
  const folder = join(root, migrations_dir ?? "migrations");
  const migrated = join(options.home, `${binding}.migrated`);
  if (!existsSync(folder) || existsSync(migrated)) return;
  const names = readdirSync(folder).filter((name) => name.endsWith(".sql")).sort();
  const db = await mf.getD1Database(binding);
  await db.prepare(names.map((name) => readFileSync(join(folder, name), "utf8")).join("\n")).run();
  writeFileSync(migrated, "");
}

// Asks V8's inspector for the size of the Worker's heap. A garbage collection cannot be requested: workerd does not
// respond to it.
async function heap() {
  const inspector = new WebSocket(new URL(`./core:user:${config.name}`, await mf.getInspectorURL()));
  await new Promise((open) => inspector.addEventListener("open", open, { once: true }));
  const answer = new Promise((resolve) => inspector.addEventListener("message", resolve, { once: true }));
  inspector.send(JSON.stringify({ id: 1, method: "Runtime.getHeapUsage" }));
  const { result } = JSON.parse((await answer).data);
  inspector.close();
  return result.usedSize;
}

const url = await mf.ready;
for (const d1 of databases) await migrate(d1);
console.log(JSON.stringify({ port: Number(url.port) }));

for await (const line of createInterface({ input: process.stdin })) {
  const [command, ...cron] = line.split(" ");
  if (command === "scheduled") {
    const worker = await mf.getWorker();
    console.log(JSON.stringify(await worker.scheduled({ cron: cron.join(" ") })));
  } else if (command === "heap") {
    console.log(JSON.stringify({ heap: await heap() }));
  } else {
    throw new Error(`unknown command: ${line}`);
  }
}
await mf.dispose();
rmSync(options.home, { recursive: true, force: true });
