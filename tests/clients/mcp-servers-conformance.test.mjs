// The official conformance suite of MCP for clients, with the real Worker as the client. Its servers listen on PORTS, and
// GROUP names the scenarios. Not among them are those of extensions, of streams that are resumed, which the Worker does not
// support, and of the defaults of legacy forms: there, a question that is refused until a person has answered is a failure.
// `mcp-servers.test.mjs` has such questions.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const suite = fileURLToPath(new URL("node_modules/@modelcontextprotocol/conformance/dist/index.js", import.meta.url));
const ports = fileURLToPath(new URL("conformance-ports.mjs", import.meta.url));
const driver = fileURLToPath(new URL("mcp-servers-driver.mjs", import.meta.url));

const consent = [
  "metadata-default", "metadata-var1", "metadata-var2", "metadata-var3", "basic-cimd", "scope-from-www-authenticate",
  "scope-from-scopes-supported", "scope-omitted-when-undefined", "scope-step-up", "scope-retry-limit",
  "token-endpoint-auth-basic", "token-endpoint-auth-post", "token-endpoint-auth-none", "pre-registration",
].map((name) => `auth/${name}`);
const scenarios = {
  calls: {
    "2025-11-25": ["initialize", "tools_call"],
    "2026-07-28": [
      "tools_call", "request-metadata", "http-standard-headers", "http-custom-headers", "http-invalid-tool-headers",
      "json-schema-ref-no-deref", "sep-2322-client-request-state",
    ],
  },
  "legacy consent": {
    "2025-03-26": ["auth/2025-03-26-oauth-metadata-backcompat", "auth/2025-03-26-oauth-endpoint-fallback"],
    "2025-11-25": consent,
  },
  consent: { "2026-07-28": consent },
  issuers: {
    "2026-07-28": [
      "resource-mismatch", "offline-access-scope", "offline-access-not-supported", "authorization-server-migration",
      "iss-supported", "iss-not-advertised", "iss-supported-missing", "iss-wrong-issuer", "iss-unexpected",
      "iss-normalized", "metadata-issuer-mismatch",
    ].map((name) => `auth/${name}`),
  },
}[process.env.GROUP];
/** The ports of a scenario, which no other one has: the Worker keeps the tokens of each server. */
const free = process.env.PORTS.split(",");

for (const [version, names] of Object.entries(scenarios)) {
  for (const name of names) {
    test(`${name} of ${version}`, async () => {
      const results = mkdtempSync(join(tmpdir(), "conformance-"));
      const options = ["--command", `${process.execPath} ${driver}`, "--scenario", name, "--spec-version", version];
      const env = { ...process.env, PORTS: free.splice(0, 4).join(",") };
      const command = ["--import", ports, suite, "client", ...options, "--output-dir", results];
      const run = promisify(execFile)(process.execPath, command, { env });
      const { stdout, stderr } = await run.catch((failed) => failed);
      const found = readdirSync(results, { recursive: true }).find((path) => path.endsWith("checks.json"));
      assert.ok(found, `${stdout}\n${stderr}`);
      const checks = JSON.parse(readFileSync(join(results, found)));
      assert.ok(checks.length > 0);
      const failed = checks.filter(({ status }) => !["SUCCESS", "INFO", "SKIPPED"].includes(status));
      assert.deepEqual(failed, [], `${stdout}\n${stderr}`);
      rmSync(results, { recursive: true });
    });
  }
}
