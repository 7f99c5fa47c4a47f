// The official conformance suite of MCP against the real Worker, which URL and KEY name. Most scenarios call tools of a
// server that exists only for the suite. These are the others.
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
const suite = fileURLToPath(new URL("node_modules/@modelcontextprotocol/conformance/dist/index.js", import.meta.url));
const both = [
  "completion-complete", "dns-rebinding-protection", "prompts-list", "resources-list", "server-sse-multiple-streams",
  "tools-list",
];
const scenarios = {
  "2025-11-25": [...both, "ping", "server-initialize", "server-session-lifecycle"],
  "2026-07-28": [
    ...both, "caching", "http-header-validation", "input-required-result-unsupported-methods",
    "sep-2164-resource-not-found", "server-stateless",
  ],
};

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

for (const [version, names] of Object.entries(scenarios)) {
  test(`the scenarios of ${version}`, async () => {
    const results = mkdtempSync(join(tmpdir(), "conformance-"));
    const address = `http://127.0.0.1:${proxy.address().port}/mcp`;
    // It fails, because it runs all scenarios.
    await promisify(execFile)(process.execPath,
      [suite, "server", "--url", address, "--requirements", version, "--output-dir", results]).catch(() => {});
    for (const name of names) {
      const folder = readdirSync(results).find((folder) => new RegExp(`^server-${name}-\\d{4}-`).test(folder));
      const checks = JSON.parse(readFileSync(join(results, folder ?? name, "checks.json")));
      assert.ok(checks.length > 0, name);
      const failed = checks.filter(({ status, details }) =>
        status !== "SUCCESS" && status !== "INFO" && status !== "SKIPPED" && !details?.untestable);
      assert.deepEqual(failed, [], name);
    }
    rmSync(results, { recursive: true });
  });
}
