// The official conformance suite of MCP against the real Worker with fixtures, which URL and KEY name: the scenarios that
// the two versions require of a server, and some of the tasks extension.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const { URL: url, KEY: key } = process.env;
const authorization = `Bearer ${key}`;
const suite = fileURLToPath(new URL("node_modules/@modelcontextprotocol/conformance", import.meta.url));

/** The scenarios of the tasks extension for which turns of the demo model serve as fixtures. */
const extension = [
  "tasks-capability-negotiation", "tasks-dispatch-and-envelope", "tasks-request-headers", "tasks-request-state-removal",
  "tasks-required-task-error", "tasks-wire-fields",
];

/** Returns the scenarios that a version requires. */
function required(version) {
  const text = readFileSync(join(suite, "requirements", `${version}.yaml`), "utf8");
  const [names] = text.split("\nserver:\n")[1].split(/\n(?=\S)/);
  return names.split("\n").map((line) => line.replace(/^ *- /, "")).filter(Boolean);
}

/** Forwards requests with the credential, which the suite cannot send. */
const proxy = createServer((asked, response) => {
  const target = new URL(asked.url, url);
  const options = { method: asked.method, headers: { ...asked.headers, authorization }, setHost: false };
  const forwarded = request(target, options, (from) => {
    response.writeHead(from.statusCode, from.headers);
    from.pipe(response);
  });
  forwarded.on("error", () => response.destroy());
  response.on("close", () => forwarded.destroy());
  asked.pipe(forwarded);
});

before(async () => {
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  await fetch(`${url}/v1/workspace/files/AGENTS.md`, { method: "PUT", headers: { authorization }, body: "Be brief." });
});

after(() => proxy.close());

for (const version of ["2025-11-25", "2026-07-28"]) {
  test(`the scenarios of ${version}`, async () => {
    const results = mkdtempSync(join(tmpdir(), "conformance-"));
    const address = `http://127.0.0.1:${proxy.address().port}/mcp`;
    // It fails because of the scenarios that are not required.
    const options = ["--url", address, "--requirements", version, "--output-dir", results];
    await promisify(execFile)(process.execPath, [join(suite, "dist/index.js"), "server", ...options]).catch(() => {});
    const names = required(version);
    assert.ok(names.length > 20);
    if (version === "2026-07-28") names.push(...extension);
    for (const name of names) {
      const folder = readdirSync(results).find((folder) => new RegExp(`^server-${name}-\\d{4}-`).test(folder));
      const checks = JSON.parse(readFileSync(join(results, folder ?? name, "checks.json")));
      assert.ok(checks.length > 0, name);
      const failed = checks.filter(({ status }) => !["SUCCESS", "INFO", "SKIPPED"].includes(status));
      assert.deepEqual(failed, [], name);
    }
    rmSync(results, { recursive: true });
  });
}
