import { defineConfig } from "vite";

export default defineConfig({
  resolve: {
    // From its source, so that the page needs no build of the client.
    alias: { "@edge-harness/client": new URL("../clients/ts/src/index.ts", import.meta.url).pathname },
  },
  // `npm run dev` shows changes at once; the API is that of `make dev`.
  server: { proxy: { "/v1": "http://localhost:8787" } },
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  build: {
    target: "es2022",
    // The policy of the page forbids inline scripts and data URLs.
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
  },
});
