// The size of the client in an application.
import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const LIMIT_BYTES = 12_000;

test("the client has at most 12 kB, gzipped", async () => {
  const { outputFiles: [bundle] } = await build({
    entryPoints: ["dist/index.js"], bundle: true, minify: true, format: "esm", target: "es2022", write: false,
  });
  const size = gzipSync(bundle.contents, { level: 9 }).length;
  assert.ok(size <= LIMIT_BYTES, `${size} bytes`);
  console.log(`${size} bytes gzipped`);
});
