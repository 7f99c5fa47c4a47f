// Debian's Chromium, driven by Playwright.
import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

export const DESKTOP = { viewport: { width: 1200, height: 800 } };
export const PHONE = { viewport: { width: 390, height: 780 }, isMobile: true, hasTouch: true, deviceScaleFactor: 2 };

const PATHS = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** Starts Chromium without its connections to the outside. */
export function launch() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? PATHS.find(existsSync),
    args: [
      "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync",
    ],
  });
}
