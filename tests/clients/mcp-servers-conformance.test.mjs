// The official conformance suite of MCP for clients, with the real Worker as the client: the scenarios of the two versions
// that need neither OAuth nor input of a person.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const suite = fileURLToPath(new URL("node_modules/@modelcontextprotocol/conformance/dist/index.js", import.meta.url));
const driver = fileURLToPath(new URL("mcp-servers-driver.mjs", import.meta.url));

const scenarios = {
  "2025-11-25": ["initialize", "tools_call"],
  "2026-07-28": [
    "tools_call", "request-metadata", "http-standard-headers", "http-custom-headers", "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
  ],
};

for (const [version, names] of Object.entries(scenarios)) {
  for (const name of names) {
    test(`${name} of ${version}`, async () => {
      const results = mkdtempSync(join(tmpdir(), "conformance-"));
      const options = ["--command", `${process.execPath} ${driver}`, "--scenario", name, "--spec-version", version];
      const run = promisify(execFile)(process.execPath, [suite, "client", ...options, "--output-dir", results]);
      const { stdout, stderr } = await run.catch((failed) => failed);
      const [folder] = readdirSync(results);
      assert.ok(folder, `${stdout}\n${stderr}`);
      const checks = JSON.parse(readFileSync(join(results, folder, "checks.json")));
      assert.ok(checks.length > 0);
      const failed = checks.filter(({ status }) => !["SUCCESS", "INFO", "SKIPPED"].includes(status));
      assert.deepEqual(failed, [], `${stdout}\n${stderr}`);
      rmSync(results, { recursive: true });
    });
  }
}
