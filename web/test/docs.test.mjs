// The API reference in a real browser, against the real Worker, which URL names.
import assert from "node:assert/strict";
import { test } from "node:test";
import { DESKTOP, launch } from "./browser.mjs";

test("the reference shows every route and obeys its policy", async () => {
  const document = await (await fetch(`${process.env.URL}/openapi.json`)).json();
  const routes = Object.values(document.paths).flatMap((methods) => Object.keys(methods)).length;
  const browser = await launch();
  try {
    const page = await browser.newPage(DESKTOP);
    const faults = [];
    page.on("pageerror", (error) => faults.push(error.message));
    page.on("console", (line) => line.type() === "error" && faults.push(line.text()));
    const response = await page.goto(`${process.env.URL}/docs`);
    assert.match(response.headers()["content-security-policy"], /script-src 'self';/);
    assert.doesNotMatch(response.headers()["content-security-policy"], /trusted-types/);
    await page.locator(".opblock").nth(routes - 1).waitFor();
    await page.locator("#operations-Sessions-postMessage button").first().click();
    await page.getByText("Creates the session if there is none.").waitFor();
    assert.deepEqual(faults, []);
  } finally {
    await browser.close();
  }
});
